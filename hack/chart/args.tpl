{{- if .Values.vcenters }}
- -vcenters=/etc/vcenters/vcenters.yaml
{{- end }}
{{- if or .Values.vmGroups.limits .Values.vmGroups.existingLimitsSecret }}
- -vmgroup-limits=/etc/vmgroup-limits/limits.yaml
{{- end }}
{{- range .Values.vmGroups.allowedTemplates }}
- {{ printf "-vmgroup-allowed-template=%s" . | quote }}
{{- end }}
