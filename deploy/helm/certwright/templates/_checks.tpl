{{/* Values that are well formed and cannot be honoured: each is refused with a sentence. Prints nothing. */}}
{{- define "certwright.checks" -}}
{{- $values := .Values -}}
{{- if and .Values.installCRDs .Values.crds.enabled -}}
{{- fail "installCRDs and crds.enabled are the same; keep crds.enabled" -}}
{{- end -}}
{{- if and .Values.installCRDs (not .Values.crds.keep) -}}
{{- fail "crds.keep: false needs crds.enabled: true instead of installCRDs: true" -}}
{{- end -}}
{{- $image := include "certwright.image" . -}}
{{- if contains "cert-manager-controller" $image -}}
{{- fail (printf "image: %s is cert-manager's image; name an image of certwright (README.md, \"Image and registry\")" $image) -}}
{{- end -}}
{{- if hasPrefix "v1." (default "" .Values.image.tag) -}}
{{- fail (printf "image.tag: %s is a version of cert-manager; remove it or name a version of certwright" .Values.image.tag) -}}
{{- end -}}
{{- if .Values.global.podSecurityPolicy.enabled -}}
{{- fail "global.podSecurityPolicy.enabled: Kubernetes 1.25 removed PodSecurityPolicies; set it to false" -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if and .enabled (hasKey . "minAvailable") (hasKey . "maxUnavailable") -}}
{{- fail "podDisruptionBudget: only one of minAvailable and maxUnavailable can be set" -}}
{{- end -}}
{{- end -}}
{{- with .Values.prometheus -}}
{{- if and .enabled .podmonitor.enabled .servicemonitor.enabled -}}
{{- fail "prometheus: only one of podmonitor.enabled and servicemonitor.enabled can be true, or metrics are counted twice" -}}
{{- end -}}
{{- end -}}
{{- if .Values.cainjector.enabled -}}
{{- range $name, $_ := .Values.cainjector.config -}}
{{- if has $name (list "namespace" "ignoreNamespaces" "enableDataSourceConfig" "enableInjectableConfig") -}}
{{- fail (printf "cainjector.config.%s cannot be honoured: certwright injects into all annotated objects; remove it, or set cainjector.enabled to false" $name) -}}
{{- end -}}
{{- end -}}
{{- range .Values.cainjector.extraArgs -}}
{{- $name := . | trimAll "-" | splitList "=" | first -}}
{{- if or (has $name (list "namespace" "ignore-namespaces")) (and (hasPrefix "enable-" $name) (hasSuffix "=false" .) (ne $name "enable-profiling")) -}}
{{- fail (printf "cainjector.extraArgs: --%s cannot be honoured: certwright injects into all annotated objects; remove it, or set cainjector.enabled to false" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
