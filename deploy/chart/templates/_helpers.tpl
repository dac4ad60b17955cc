{{- define "letterbox.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "letterbox.labels" -}}
app.kubernetes.io/name: letterbox
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "letterbox.selector" -}}
app.kubernetes.io/name: letterbox
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "letterbox.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "letterbox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Additional mounts, for example certificates. */}}
{{- define "letterbox.mounts" -}}
{{- with .Values.extraVolumeMounts }}
volumeMounts: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "letterbox.volumes" -}}
{{- with .Values.extraVolumes }}
volumes: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The environment of a program: references to its secrets, and its settings. */}}
{{- define "letterbox.env" -}}
{{- range $name, $key := .secrets }}
- name: {{ $name }}
  valueFrom: {secretKeyRef: {name: {{ $.secret }}, key: {{ $key }}}}
{{- end }}
{{- range $name, $value := .settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* Spreads pods over nodes and zones where possible. */}}
{{- define "letterbox.spread" -}}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "letterbox.selector" $ | nindent 6 }}
{{- end }}
{{- end }}

{{- define "letterbox.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  failureThreshold: 2
{{- end }}
