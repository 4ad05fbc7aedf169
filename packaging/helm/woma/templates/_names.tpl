{{- define "woma.labels" -}}
app.kubernetes.io/name: woma
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "woma.volume" -}}
{{- and .Values.persistence.enabled (eq (int .Values.replicas) 1) -}}
{{- end }}
