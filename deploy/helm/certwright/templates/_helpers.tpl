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
{{- /* As in cert-manager's charts, so that its users' selectors go on to match. */}}
app: {{ include "certwright.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- if eq .Values.creator "helm" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}
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

{{/* Where the objects of the chart are. */}}
{{- define "certwright.namespace" -}}
{{- .Values.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* The Service whose EndpointSlices name the ready replicas, for HTTP-01. */}}
{{- define "certwright.http01Service" -}}
{{- printf "%s-http01" (include "certwright.fullname" . | trunc 56 | trimSuffix "-") -}}
{{- end -}}

{{/* The image, as cert-manager's charts put it together. */}}
{{- define "certwright.image" -}}
{{- $image := .Values.image -}}
{{- $parts := list .Values.imageRegistry .Values.imageNamespace $image.name -}}
{{- if $image.repository }}{{ $parts = list $image.repository }}{{ end -}}
{{- join "/" (compact (prepend $parts $image.registry)) -}}
{{- with $image.tag }}:{{ . }}{{ end -}}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- if not (or $image.tag $image.digest) }}:{{ .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{/* The one namespace that is watched; empty: all. */}}
{{- define "certwright.watchNamespace" -}}
{{- $found := .Values.watchNamespace | default (.Values.config).namespace | default "" -}}
{{- range .Values.extraArgs }}{{ if hasPrefix "--namespace=" . }}{{ $found = trimPrefix "--namespace=" . }}{{ end }}{{ end -}}
{{- $found -}}
{{- end -}}

{{/* With cert-manager's own settings of one namespace the Lease is where cert-manager has it. */}}
{{- define "certwright.leaseNamespace" -}}
{{- .Values.global.leaderElection.namespace | default .Values.watchNamespace | default "kube-system" -}}
{{- end -}}

{{/* What the controllers may do where their objects are. One list for the ClusterRole and for the Role. */}}
{{- define "certwright.rules" -}}
- apiGroups: [cert-manager.io]
  # patch: the annotation that records the next attempt after a failure.
  # create, delete: the Certificates of Ingresses, Gateways and ListenerSets.
  resources: [certificates]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  # get, create, patch, delete: those of HTTP-01 challenges, and edits in place; also below.
  resources: [ingresses]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets]
  verbs: [list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [list, create, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [create, patch]
- apiGroups: [discovery.k8s.io]
  # OpenShift: addresses of pods.
  resources: [endpointslices/restricted]
  verbs: [create]
- apiGroups: [route.openshift.io]
  # OpenShift: Ingresses with hosts.
  resources: [routes/custom-host]
  verbs: [create]
- apiGroups: [""]
  # Solver pods that cert-manager has left behind.
  resources: [pods]
  verbs: [list, delete]
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
- apiGroups: [certwright.io]
  resources: [deliveries]
  verbs: [list, watch]
- apiGroups: [certwright.io]
  # A Delivery that no process serves.
  resources: [deliveries/status]
  verbs: [patch]
- apiGroups: [coordination.k8s.io]
  # The roots that processes offer to Deliveries.
  resources: [leases]
  verbs: [list]
- apiGroups: [""]
  # What ACME servers have allowed so far.
  resources: [configmaps]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* cert-manager's names of these templates, for `extraObjects`. */}}
{{- define "cert-manager.name" }}{{ include "certwright.name" . }}{{ end -}}
{{- define "cert-manager.fullname" }}{{ include "certwright.fullname" . }}{{ end -}}
{{- define "cert-manager.namespace" }}{{ include "certwright.namespace" . }}{{ end -}}
{{- define "cert-manager.serviceAccountName" }}{{ include "certwright.serviceAccount" . }}{{ end -}}
