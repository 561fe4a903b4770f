{{- if .Values.vcenters }}
- name: vcenters
  mountPath: /etc/vcenters
  readOnly: true
{{- end }}
{{- range .Values.vcenters }}
- name: vcenter-{{ .name }}
  mountPath: /etc/vcenter-credentials/{{ .name }}
  readOnly: true
{{- end }}
{{- if or .Values.vmGroups.limits .Values.vmGroups.existingLimitsSecret }}
- name: vmgroup-limits
  mountPath: /etc/vmgroup-limits
  readOnly: true
{{- end }}
