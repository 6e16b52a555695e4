{{- define "certwright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "certwright.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "certwright.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "certwright.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "certwright.selector" -}}
app.kubernetes.io/name: {{ include "certwright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end -}}

{{- define "certwright.labels" -}}
{{ include "certwright.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.global.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "certwright.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "certwright.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "certwright.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "certwright.leaseNamespace" -}}
{{- default (default "kube-system" .Values.namespace) .Values.global.leaderElection.namespace -}}
{{- end -}}

{{/* What the controllers may do where their objects are. One list for the ClusterRole and for the Role. */}}
{{- define "certwright.rules" -}}
- apiGroups: [cert-manager.io]
  # patch: the annotation that records the next attempt after a failure.
  # create, delete: the Certificates of Ingresses, Gateways and ListenerSets.
  resources: [certificates]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets]
  verbs: [list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xlistenersets]
  verbs: [list, watch]
- apiGroups: [networking.k8s.io]
  # So that their Certificates may name them as owners (OwnerReferencesPermissionEnforcement); also below.
  resources: [ingresses/finalizers]
  verbs: [update]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/finalizers, listenersets/finalizers]
  verbs: [update]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xlistenersets/finalizers]
  verbs: [update]
- apiGroups: [cert-manager.io]
  # patch: the annotation that records the circuit breaker of an issuer that fails.
  resources: [issuers]
  verbs: [list, watch, patch]
- apiGroups: [cert-manager.io]
  # patch: the annotations that record the member of an IssuerSet that a request was sent to, and a pickup ID.
  resources: [certificaterequests]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [certwright.io]
  resources: [issuersets]
  verbs: [list, watch]
- apiGroups: [certwright.io]
  resources: [issuersets/status]
  verbs: [patch]
- apiGroups: [cert-manager.io]
  resources: [certificates/status, certificaterequests/status, issuers/status]
  verbs: [patch]
- apiGroups: [cert-manager.io]
  # So that what they make may name them as owners that must not go before (OwnerReferencesPermissionEnforcement).
  resources: [certificates/finalizers, certificaterequests/finalizers]
  verbs: [update]
- apiGroups: [acme.cert-manager.io]
  resources: [orders]
  verbs: [get, list, watch, create, patch]
- apiGroups: [acme.cert-manager.io]
  resources: [challenges]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [acme.cert-manager.io]
  resources: [orders/status, challenges/status]
  verbs: [patch]
- apiGroups: [acme.cert-manager.io]
  resources: [orders/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  # What ACME servers have allowed so far.
  resources: [configmaps]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* The controllers to run, where those are not just all that run by default. */}}
{{- define "certwright.controllers" -}}
*
{{- if .Values.disableAutoApproval }},-certificaterequests-approver{{ end }}
{{- if not .Values.cainjector.enabled }},-cainjector{{ end }}
{{- if and .Values.certificateSigningRequests.enabled (not .Values.namespace) -}}
,certificatesigningrequests-issuer-acme,certificatesigningrequests-issuer-ca,certificatesigningrequests-issuer-selfsigned
{{- /* One line in the output. */ -}}
,certificatesigningrequests-issuer-vault,certificatesigningrequests-issuer-venafi
{{- end }}
{{- end }}
