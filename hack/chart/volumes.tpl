{{- if .Values.vcenters }}
- name: vcenters
  configMap:
    name: vsphere-operators-vcenters
{{- end }}
{{- range .Values.vcenters }}
- name: vcenter-{{ .name }}
  secret:
    secretName: {{ .existingSecret | default (printf "vsphere-operators-vcenter-%s" .name) | quote }}
    optional: true
{{- end }}
{{- if .Values.vmGroups.limits }}
- name: vmgroup-limits
  configMap:
    name: vsphere-operators-limits
{{- else if .Values.vmGroups.existingLimitsSecret }}
- name: vmgroup-limits
  secret:
    secretName: {{ .Values.vmGroups.existingLimitsSecret | quote }}
{{- end }}
