{{/*
The flags of the controllers: from the values, from cert-manager's ControllerConfiguration (`config`), and from
`extraArgs`, which may have cert-manager's flags. What has no meaning here is left out; what would be lost is refused.
*/}}

{{/* Settings of ControllerConfiguration, and the flags that have their meaning. */}}
{{- define "certwright.configFlags" -}}
kubernetesAPIQPS: kube-api-qps
kubernetesAPIBurst: kube-api-burst
clusterResourceNamespace: cluster-resource-namespace
leaderElectionConfig.enabled: leader-elect
leaderElectionConfig.namespace: leader-election-namespace
leaderElectionConfig.leaseDuration: leader-election-lease-duration
leaderElectionConfig.renewDeadline: leader-election-renew-deadline
leaderElectionConfig.retryPeriod: leader-election-retry-period
issuerAmbientCredentials: issuer-ambient-credentials
clusterIssuerAmbientCredentials: cluster-issuer-ambient-credentials
enableCertificateOwnerRef: enable-certificate-owner-ref
enableGatewayAPI: enable-gateway-api
enableGatewayAPIListenerSet: enable-gateway-api-listenerset
gatewayAPI.enabled: enable-gateway-api
gatewayAPI.enableListenerSet: enable-gateway-api-listenerset
gatewayAPI.extraProtocols: gateway-api-extra-protocols
copiedAnnotationPrefixes: copied-annotation-prefixes
maxConcurrentChallenges: max-concurrent-challenges
ingressShimConfig.defaultIssuerName: default-issuer-name
ingressShimConfig.defaultIssuerKind: default-issuer-kind
ingressShimConfig.defaultIssuerGroup: default-issuer-group
ingressShimConfig.defaultAutoCertificateAnnotations: auto-certificate-annotations
ingressShimConfig.extraCertificateAnnotations: extra-certificate-annotations
acmeHTTP01Config.solverNameservers: acme-http01-solver-nameservers
acmeHTTP01Config.solverExtraLabels: acme-http01-solver-extra-labels
acmeDNS01Config.recursiveNameservers: dns01-recursive-nameservers
acmeDNS01Config.recursiveNameserversOnly: dns01-recursive-nameservers-only
acmeDNS01Config.checkRetryPeriod: dns01-check-retry-period
metricsTLSConfig.cipherSuites: metrics-tls-cipher-suites
metricsTLSConfig.minTLSVersion: metrics-tls-min-version
metricsTLSConfig.filesystem.certFile: metrics-tls-cert-file
metricsTLSConfig.filesystem.keyFile: metrics-tls-private-key-file
metricsTLSConfig.dynamic.secretNamespace: metrics-dynamic-serving-ca-secret-namespace
metricsTLSConfig.dynamic.secretName: metrics-dynamic-serving-ca-secret-name
metricsTLSConfig.dynamic.dnsNames: metrics-dynamic-serving-dns-names
metricsTLSConfig.dynamic.leafDuration: metrics-dynamic-serving-leaf-duration
certificateRequestMinimumBackoffDuration: certificate-request-minimum-backoff-duration
certificateRequestMaximumBackoffDuration: certificate-request-maximum-backoff-duration
{{- end -}}

{{/* Settings that are read elsewhere in this file, or that have no meaning here, by their beginnings. */}}
{{- define "certwright.configWithoutFlags" -}}
[apiVersion, kind, namespace, controllers, featureGates, logging., numberOfConcurrentWorkers, healthzListenAddress,
 leaderElectionConfig.healthzTimeout, enablePprof, pprofAddress, acmeHTTP01Config.solver, pemSizeLimitsConfig.]
{{- end -}}

{{/* cert-manager's flags that have no meaning here, by their beginnings: there are no solver pods, no worker threads
     to count, no profiler and no second port for health; the sizes of PEM files have bounds of their own. */}}
{{- define "certwright.unneededFlags" -}}
[acme-http01-solver-image, acme-http01-solver-resource, acme-http01-solver-run-as-non-root,
 acme-http01-solver-runtime-class-name, concurrent-workers, enable-profiling, profiler-address, internal-healthz-,
 vmodule, log-flush-frequency, log-json-, log-text-, max-certificate-, max-private-key-size]
{{- end -}}

{{/* cert-manager's flags and settings that cannot be honoured, and why. */}}
{{- define "certwright.refusedFlags" -}}
config: write the file's content into the value `config`
kubeconfig: the pod uses the cluster that it runs in
master: the pod uses the cluster that it runs in
{{- end -}}
{{- define "certwright.refusedConfig" -}}
kubeConfig: the pod uses the cluster that it runs in
apiServerHost: the pod uses the cluster that it runs in
metricsListenAddress: metrics are at port 9402, which the probe and the Service use
{{- end -}}

{{/* Feature gates: which settings are accepted, and whether the program has the gate itself. The others have no
     effect here: what `true` enables is on. */}}
{{- define "certwright.knownGates" -}}
SecretsFilteredCaching: program
PostQuantum: program
NameGenerationRetries: program
RetryGenerateName: program
NameGenerationLookAhead: program
ExperimentalCertificateSigningRequestControllers: both
ExperimentalGatewayAPISupport: both
ListenerSets: both
XListenerSets: both
ServerSideApply: both
StableCertificateRequestName: both
UseCertificateRequestBasicConstraints: both
UseDomainQualifiedFinalizer: both
ACMEHTTP01IngressPathTypeExact: program
ACMEUseARI: both
ValidateCAA: both
ClientWatchList: both
AllBeta: both
AllAlpha: "false"
AdditionalCertificateOutputFormats: "true"
DisallowInsecureCSRUsageDefinition: "true"
DefaultPrivateKeyRotationPolicyAlways: "true"
LiteralCertificateSubject: "true"
NameConstraints: "true"
OtherNames: "true"
{{- end -}}

{{/* cert-manager's beta gates, which AllBeta=false switches off where they are not set themselves. */}}
{{- define "certwright.betaGates" -}}
[StableCertificateRequestName, SecretsFilteredCaching, ExperimentalGatewayAPISupport, LiteralCertificateSubject,
 NameConstraints, OtherNames, ACMEHTTP01IngressPathTypeExact]
{{- end -}}

{{/* The gates that are set, by name: those of `config`, then those of the flag, then `featureGates`. */}}
{{- define "certwright.gates" -}}
{{- $gates := dict -}}
{{- range $name, $on := (.Values.config).featureGates }}{{ $_ := set $gates $name (toString $on) }}{{ end -}}
{{- $texts := list -}}
{{- range .Values.extraArgs }}{{ if hasPrefix "--feature-gates=" . }}{{ $texts = append $texts (trimPrefix "--feature-gates=" .) }}{{ end }}{{ end -}}
{{- range append $texts (default "" .Values.featureGates) }}{{ range compact (splitList "," .) }}
{{- $parts := splitList "=" (trim .) -}}
{{- if ne (len $parts) 2 }}{{ fail (printf "featureGates: %q is not NAME=true or NAME=false" .) }}{{ end -}}
{{- $_ := set $gates (first $parts) (last $parts) -}}
{{- end }}{{ end -}}
{{- $remedy := "remove it" -}}
{{- if eq (toString (get $gates "AllBeta")) "false" -}}
{{- $remedy = "set it to true, or remove it and AllBeta=false" -}}
{{- range include "certwright.betaGates" . | fromYamlArray }}{{ if not (hasKey $gates .) }}{{ $_ := set $gates . "false" }}{{ end }}{{ end -}}
{{- end -}}
{{- $known := include "certwright.knownGates" . | fromYaml -}}
{{- range $name, $on := $gates -}}
{{- $accepted := get $known $name -}}
{{- if not $accepted }}{{ fail (printf "featureGates: %s is no feature gate of cert-manager 1.21 or of certwright; remove it" $name) }}{{ end -}}
{{- if not (has $on (list "true" "false")) }}{{ fail (printf "featureGates: %s=%s is neither true nor false" $name $on) }}{{ end -}}
{{- if and (has $accepted (list "true" "false")) (ne $on $accepted) -}}
{{- fail (printf "featureGates: %s=%s cannot be honoured, because certwright always behaves as with %s; %s" $name $on $accepted $remedy) -}}
{{- end -}}
{{- end -}}
{{- toYaml $gates -}}
{{- end -}}

{{/* Whether Kubernetes' CertificateSigningRequests are signed: `true`, or nothing. */}}
{{- define "certwright.signs" -}}
{{- $gates := include "certwright.gates" . | fromYaml -}}
{{- $wanted := or .Values.certificateSigningRequests.enabled (eq (get $gates "ExperimentalCertificateSigningRequestControllers") "true") -}}
{{- if and $wanted (not (include "certwright.watchNamespace" .)) }}true{{ end -}}
{{- end -}}

{{/* The controllers to run; nothing if those are just all that run by default. */}}
{{- define "certwright.controllers" -}}
{{- $names := default (list "*") (.Values.config).controllers -}}
{{- range .Values.extraArgs }}{{ if hasPrefix "--controllers=" . }}{{ $names = splitList "," (trimPrefix "--controllers=" . | nospace) | compact }}{{ end }}{{ end -}}
{{- /* A list that only leaves out means all others. BEFORE names are added below. */ -}}
{{- $positive := false -}}
{{- range $names }}{{ if not (hasPrefix "-" .) }}{{ $positive = true }}{{ end }}{{ end -}}
{{- if not $positive }}{{ $names = prepend $names "*" }}{{ end -}}
{{- if .Values.disableAutoApproval }}{{ $names = append $names "-certificaterequests-approver" }}{{ end -}}
{{- /* cert-manager's CA injector is another program, which its controller's list does not turn off. */ -}}
{{- if not .Values.cainjector.enabled }}{{ $names = append $names "-cainjector" }}
{{- else if not (has "*" $names) }}{{ $names = append $names "cainjector" }}{{ end -}}
{{- if include "certwright.signs" . -}}
{{- range list "acme" "ca" "selfsigned" "vault" "venafi" }}{{ $names = append $names (printf "certificatesigningrequests-issuer-%s" .) }}{{ end -}}
{{- end -}}
{{- if ne (join "," $names) "*" }}{{ join "," $names }}{{ end -}}
{{- end -}}

{{/* The log level: ours by name, or cert-manager's number (4 and more are details). */}}
{{- define "certwright.logLevel" -}}
{{- $logging := default dict (.Values.config).logging -}}
{{- $number := default .Values.global.logLevel $logging.verbosity -}}
{{- range .Values.extraArgs }}{{ if regexMatch "^--?v=[0-9]+$" . }}{{ $number = last (splitList "=" .) }}{{ end }}{{ end -}}
{{- default (ternary "debug" "info" (ge (int $number) 4)) .Values.logLevel -}}
{{- end -}}

{{- define "certwright.logFormat" -}}
{{- $logging := default dict (.Values.config).logging -}}
{{- $format := default "json" $logging.format -}}
{{- range .Values.extraArgs }}{{ if hasPrefix "--logging-format=" . }}{{ $format = trimPrefix "--logging-format=" . }}{{ end }}{{ end -}}
{{- $format -}}
{{- end -}}

{{/* The flags of `config`: a YAML list. */}}
{{- define "certwright.flagsOfConfig" -}}
{{- $flags := include "certwright.configFlags" . | fromYaml -}}
{{- $without := include "certwright.configWithoutFlags" . | fromYamlArray -}}
{{- $refused := include "certwright.refusedConfig" . | fromYaml -}}
{{- $settings := dict -}}
{{- range $name, $value := .Values.config -}}
{{- if and (kindIs "map" $value) (ne $name "featureGates") -}}
{{- range $inner, $one := $value -}}
{{- if and (eq $name "metricsTLSConfig") (kindIs "map" $one) -}}
{{- range $last, $text := $one }}{{ $_ := set $settings (printf "%s.%s.%s" $name $inner $last) $text }}{{ end -}}
{{- else }}{{ $_ := set $settings (printf "%s.%s" $name $inner) $one }}{{ end -}}
{{- end -}}
{{- else }}{{ $_ := set $settings $name $value }}{{ end -}}
{{- end -}}
{{- $found := list -}}
{{- range $name, $value := $settings -}}
{{- range $start, $why := $refused }}{{ if hasPrefix $start $name }}{{ fail (printf "config.%s cannot be honoured: %s" $name $why) }}{{ end }}{{ end -}}
{{- $flag := get $flags $name -}}
{{- if $flag -}}
{{- $text := ternary $value (toJson $value) (kindIs "string" $value) -}}
{{- if kindIs "slice" $value }}{{ $text = join "," $value }}{{ end -}}
{{- if kindIs "map" $value }}{{ $text = include "certwright.pairs" $value }}{{ end -}}
{{- $found = append $found (printf "--%s=%s" $flag $text) -}}
{{- else -}}
{{- $expected := false -}}
{{- range $without }}{{ if hasPrefix . $name }}{{ $expected = true }}{{ end }}{{ end -}}
{{- if not $expected }}{{ fail (printf "config.%s is no setting of cert-manager's ControllerConfiguration v1alpha1; correct or remove it" $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* The flags of `extraArgs` that the program has: a YAML list. */}}
{{- define "certwright.flagsOfExtraArgs" -}}
{{- $refused := include "certwright.refusedFlags" . | fromYaml -}}
{{- $elsewhere := list "--namespace=" "--feature-gates=" "--controllers=" "--logging-format=" "--v=" "-v=" -}}
{{- $without := include "certwright.unneededFlags" . | fromYamlArray -}}
{{- $known := .Files.Get "files/flags.txt" | splitList "\n" -}}
{{- $found := list -}}
{{- range $argument := .Values.extraArgs -}}
{{- if not (hasPrefix "-" $argument) }}{{ fail (printf "extraArgs: %q is no flag; write a flag and its value as one item: --flag=value" $argument) }}{{ end -}}
{{- $name := $argument | trimAll "-" | splitList "=" | first -}}
{{- range $start, $why := $refused }}{{ if or (eq $start $name) (and (hasSuffix "-" $start) (hasPrefix $start $name)) }}{{ fail (printf "extraArgs: --%s cannot be honoured: %s" $name $why) }}{{ end }}{{ end -}}
{{- $dropped := false -}}
{{- range $elsewhere }}{{ if hasPrefix . $argument }}{{ $dropped = true }}{{ end }}{{ end -}}
{{- range $without }}{{ if hasPrefix . $name }}{{ $dropped = true }}{{ end }}{{ end -}}
{{- if not $dropped -}}
{{- if not (has $name $known) }}{{ fail (printf "extraArgs: --%s is no flag of `certwright controllers`, which would not start; correct or remove it" $name) }}{{ end -}}
{{- $found = append $found $argument -}}
{{- end -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}

{{/* Whether metrics and the probe are served over HTTPS: `true`, or nothing. */}}
{{- define "certwright.metricsOverHTTPS" -}}
{{- $text := include "certwright.flags" . -}}
{{- if or (contains "--metrics-tls-cert-file=" $text) (contains "--metrics-dynamic-serving-ca-secret-name=" $text) }}true{{ end -}}
{{- end -}}

{{/* A map as k=v,k=v. */}}
{{- define "certwright.pairs" -}}
{{- $pairs := list -}}
{{- range $key, $value := . }}{{ $pairs = append $pairs (printf "%s=%s" $key (toString $value)) }}{{ end -}}
{{- join "," $pairs -}}
{{- end -}}

{{/* All flags: a YAML list. The program takes the last of two that are the same. */}}
{{- define "certwright.flags" -}}
{{- $values := .Values -}}
{{- $gates := include "certwright.gates" . | fromYaml -}}
{{- $known := include "certwright.knownGates" . | fromYaml -}}
{{- $flags := list
    (printf "--log-format=%s" (include "certwright.logFormat" .))
    (printf "--log-level=%s" (include "certwright.logLevel" .))
    "--metrics-listen-address=0.0.0.0:9402"
    "--identity=$(POD_NAME)"
    "--http01-listen=:8089"
    "--http01-cluster-address=$(POD_IPS)"
    (printf "--http01-cluster-service=%s/%s" (include "certwright.namespace" .) (include "certwright.http01Service" .)) -}}
{{- $flags = concat $flags (include "certwright.flagsOfConfig" . | fromYamlArray) -}}
{{- $flags = append $flags (printf "--cluster-resource-namespace=%s" (default (include "certwright.namespace" .) .Values.clusterResourceNamespace)) -}}
{{- with include "certwright.watchNamespace" . }}{{ $flags = append $flags (printf "--namespace=%s" .) }}{{ end -}}
{{- $flags = append $flags (printf "--leader-election-namespace=%s" (include "certwright.leaseNamespace" .)) -}}
{{- with .Values.global.leaderElection -}}
{{- with .leaseDuration }}{{ $flags = append $flags (printf "--leader-election-lease-duration=%s" .) }}{{ end -}}
{{- with .renewDeadline }}{{ $flags = append $flags (printf "--leader-election-renew-deadline=%s" .) }}{{ end -}}
{{- with .retryPeriod }}{{ $flags = append $flags (printf "--leader-election-retry-period=%s" .) }}{{ end -}}
{{- end -}}
{{- if gt (int .Values.shards) 1 }}{{ $flags = append $flags (printf "--shards=%d" (int .Values.shards)) }}{{ end -}}
{{- with .Values.kubernetesAPIQPS }}{{ $flags = append $flags (printf "--kube-api-qps=%s" (toJson .)) }}{{ end -}}
{{- with .Values.kubernetesAPIBurst }}{{ $flags = append $flags (printf "--kube-api-burst=%d" (int .)) }}{{ end -}}
{{- with .Values.maxConcurrentChallenges }}{{ $flags = append $flags (printf "--max-concurrent-challenges=%d" (int .)) }}{{ end -}}
{{- /* As cert-manager 1.21: the objects of HTTP-01 challenges have the labels, too. */ -}}
{{- with .Values.global.commonLabels }}{{ $flags = append $flags (printf "--acme-http01-solver-extra-labels=%s" (include "certwright.pairs" .)) }}{{ end -}}
{{- with include "certwright.controllers" . }}{{ $flags = append $flags (printf "--controllers=%s" .) }}{{ end -}}
{{- $own := list -}}
{{- range $name, $on := $gates }}{{ if eq (get $known $name) "program" }}{{ $own = append $own (printf "%s=%s" $name $on) }}{{ end }}{{ end -}}
{{- with $own }}{{ $flags = append $flags (printf "--feature-gates=%s" (join "," .)) }}{{ end -}}
{{- if eq (get $gates "ExperimentalGatewayAPISupport") "false" }}{{ $flags = append $flags "--enable-gateway-api=false" }}{{ end -}}
{{- if or (eq (get $gates "ListenerSets") "false") (eq (get $gates "XListenerSets") "false") }}{{ $flags = append $flags "--enable-gateway-api-listenerset=false" }}{{ end -}}
{{- if .Values.enableCertificateOwnerRef }}{{ $flags = append $flags "--enable-certificate-owner-ref=true" }}{{ end -}}
{{- with .Values.dns01RecursiveNameservers }}{{ $flags = append $flags (printf "--dns01-recursive-nameservers=%s" .) }}{{ end -}}
{{- if .Values.dns01RecursiveNameserversOnly }}{{ $flags = append $flags "--dns01-recursive-nameservers-only=true" }}{{ end -}}
{{- range $name, $value := .Values.global.commonLabels }}{{ $flags = append $flags (printf "--acme-http01-solver-extra-labels=%s=%s" $name (toString $value)) }}{{ end -}}
{{- with .Values.ingressShim -}}
{{- with .defaultIssuerName }}{{ $flags = append $flags (printf "--default-issuer-name=%s" .) }}{{ end -}}
{{- with .defaultIssuerKind }}{{ $flags = append $flags (printf "--default-issuer-kind=%s" .) }}{{ end -}}
{{- with .defaultIssuerGroup }}{{ $flags = append $flags (printf "--default-issuer-group=%s" .) }}{{ end -}}
{{- end -}}
{{- with .Values.dashboard -}}
{{- if .enabled -}}
{{- $flags = concat $flags (list "--dashboard-listen=:8444" (printf "--dashboard=%s" .mode)) -}}
{{- if .tlsSecretName -}}
{{- $flags = append $flags "--dashboard-tls-cert-file=/etc/certwright/dashboard/tls.crt" -}}
{{- $flags = append $flags "--dashboard-tls-private-key-file=/etc/certwright/dashboard/tls.key" -}}
{{- end -}}
{{- range .scan }}{{ $flags = append $flags (printf "--dashboard-scan=%s" .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $flags = concat $flags (include "certwright.flagsOfExtraArgs" . | fromYamlArray) -}}
{{- toYaml $flags -}}
{{- end -}}
