{{/*
Labels and annotations of an object: (list $ LABELS ANNOTATIONS). Its own take precedence over those
of the values. Its own with an empty value are left out.
*/}}
{{- define "vsphere-operators.metadata" -}}
{{- $root := index . 0 }}
{{- $chart := dict
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version)
}}
{{- $shared := dict
  "labels" (merge $chart (default dict $root.Values.labels))
  "annotations" (merge (dict) (default dict $root.Values.annotations))
}}
{{- $own := dict "labels" (index . 1) "annotations" (index . 2) }}
{{- range $field, $present := $shared }}
{{- range $key, $value := index $own $field }}
{{- if $value }}
{{- $_ := set $present $key $value }}
{{- end }}
{{- end }}
{{- if $present }}
{{ $field }}:
  {{- toYaml $present | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- define "vsphere-operators.image" -}}
{{- $image := .Values.image }}
{{- required "image.repository is not set. Set it to your image without its tag: --set image.repository=example.com/vsphere-operators" $image.repository }}
{{- if $image.digest }}@{{ $image.digest }}
{{- else }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}
{{/*
A rule of the NetworkPolicy as JSON: (list VALUES PROTOCOLS).
*/}}
{{- define "vsphere-operators.egress" -}}
{{- $rule := index . 0 }}
{{- $ports := list }}
{{- range $port := $rule.ports }}
{{- range $protocol := index $ 1 }}
{{- $ports = append $ports (dict "port" $port "protocol" $protocol) }}
{{- end }}
{{- end }}
{{- $result := dict "ports" $ports }}
{{- if $rule.to }}
{{- $_ := set $result "to" $rule.to }}
{{- end }}
{{- toJson $result }}
{{- end }}
{{/*
Not empty if two rules of the NetworkPolicy have a port in common: (list VALUES VALUES).
*/}}
{{- define "vsphere-operators.common-port" -}}
{{- range $port := (index . 0).ports }}
{{- range (index $ 1).ports }}
{{- if eq (int $port) (int .) }}{{ $port }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- define "vsphere-operators.checks" -}}
{{- if and (gt (int .Values.shards) 1) (not .Values.leaderElection.enabled) }}
{{- fail "shards is greater than 1, but leaderElection.enabled is false: the replicas need the permissions of the election. Enable it, or set shards=1" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) }}
{{- fail "replicas is greater than 1, but leaderElection.enabled is false: all replicas would act at the same time. Enable the election, or set replicas=1" }}
{{- end }}
{{- if and .Values.podDisruptionBudget.enabled (not (gt (int .Values.replicas) 1)) }}
{{- fail "podDisruptionBudget.enabled is true, but there is only one replica: its Node could not be drained. Set replicas=2, or podDisruptionBudget.enabled=false" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (ne (toString .Values.podDisruptionBudget.enabled) "false") (not (kindIs "invalid" .Values.podDisruptionBudget.minAvailable)) (not (hasSuffix "%" (toString .Values.podDisruptionBudget.minAvailable))) (ge (int .Values.podDisruptionBudget.minAvailable) (int .Values.replicas)) }}
{{- fail "podDisruptionBudget.minAvailable is not less than replicas: no Node with a replica could be drained. Lower it, or set more replicas" }}
{{- end }}
{{- if and .Values.metrics.certManager .Values.metrics.existingSecret }}
{{- fail "metrics.certManager and metrics.existingSecret are both set, but there can be only one certificate. Unset one of them" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}
{{- fail "metrics.serviceMonitor.enabled is true, but metrics.enabled is false: there is nothing to scrape. Set metrics.enabled=true, or disable the ServiceMonitor" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.serviceMonitor.insecureSkipVerify) (not .Values.metrics.certManager) (not .Values.metrics.existingSecret) }}
{{- fail "metrics.serviceMonitor.enabled is true, but Prometheus cannot verify the self-signed certificate of the manager. Set metrics.certManager=true or metrics.existingSecret, or accept any certificate with metrics.serviceMonitor.insecureSkipVerify=true" }}
{{- end }}
{{- if and .Values.networkPolicy.egress.enabled (not .Values.networkPolicy.enabled) }}
{{- fail "networkPolicy.egress.enabled is true, but networkPolicy.enabled is false. Set networkPolicy.enabled=true" }}
{{- end }}
{{- if and .Values.webhooks.certManager .Values.webhooks.existingSecret }}
{{- fail "webhooks.certManager and webhooks.existingSecret are both set, but webhooks have only one CA. Unset one of them" }}
{{- end }}
{{- if and .Values.webhooks.existingSecret (not .Values.webhooks.caBundle) }}
{{- fail "webhooks.existingSecret is set, but webhooks.caBundle is not: the API server could not verify the certificate. Set it to the CA of the certificate, PEM in Base64" }}
{{- end }}
{{- if and .Values.webhooks.caBundle (not .Values.webhooks.existingSecret) }}
{{- fail "webhooks.caBundle is set, but webhooks.existingSecret is not. Set it to the Secret with the certificate of this CA, or unset webhooks.caBundle" }}
{{- end }}
{{- if and (or .Values.vcenter.server .Values.vcenter.username .Values.vcenter.password) (not (and .Values.vcenter.server .Values.vcenter.username .Values.vcenter.password)) }}
{{- fail "only some of vcenter.server, vcenter.username and vcenter.password are set. Set all three, or none of them and create the Secret yourself" }}
{{- end }}
{{- if and .Values.vmGroups.limits .Values.vmGroups.existingLimitsSecret }}
{{- fail "vmGroups.limits and vmGroups.existingLimitsSecret are both set. Unset one of them" }}
{{- end }}
{{- if and .Values.networkPolicy.egress.enabled .Values.networkPolicy.egress.vcenters.to (not .Values.networkPolicy.egress.apiServer.to) (include "vsphere-operators.common-port" (list .Values.networkPolicy.egress.vcenters .Values.networkPolicy.egress.apiServer)) }}
{{- fail "networkPolicy.egress.vcenters.to is set, but networkPolicy.egress.apiServer.to is not: its rule allows connections to any address on the same port. Set networkPolicy.egress.apiServer.to to the addresses of the API server, which `kubectl get endpointslices kubernetes -n default` shows, or remove the port from networkPolicy.egress.apiServer.ports" }}
{{- end }}
{{- if and (.Values.metrics.serviceMonitor.enabled) (.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor")) }}
{{- fail "metrics.serviceMonitor.enabled is true, but the cluster has no CRD for ServiceMonitor (monitoring.coreos.com). Install the Prometheus Operator first, or set metrics.serviceMonitor.enabled=false" }}
{{- end }}
{{- if and (and .Values.metrics.enabled .Values.metrics.certManager) (.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate")) }}
{{- fail "metrics.certManager is true, but the cluster has no CRD for Certificate (cert-manager.io). Install cert-manager first, or set metrics.certManager=false" }}
{{- end }}
{{- if and (and .Values.webhooks.enabled .Values.webhooks.certManager) (.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (not (.Capabilities.APIVersions.Has "cert-manager.io/v1/Certificate")) }}
{{- fail "webhooks.certManager is true, but the cluster has no CRD for Certificate (cert-manager.io). Install cert-manager first, or set webhooks.certManager=false" }}
{{- end }}
{{- if and (.Values.manifests.prometheusRule) (.Capabilities.APIVersions.Has "apiregistration.k8s.io/v1") (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule")) }}
{{- fail "manifests.prometheusRule is true, but the cluster has no CRD for PrometheusRule (monitoring.coreos.com). Install the Prometheus Operator first, or set manifests.prometheusRule=false" }}
{{- end }}
{{- end }}
