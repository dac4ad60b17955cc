{{/* What several templates share: names, the parts of a pod, and the sum of database connections. */}}

{{- define "letterbox.fullname" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{- define "letterbox.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else -}}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{- end -}}
{{- end -}}
{{- end }}

{{- define "letterbox.labels" -}}
{{ include "letterbox.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "letterbox.selector" -}}
app.kubernetes.io/name: letterbox
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The annotations of a pod. They follow its secret, so that an upgrade restarts the pod after the
secret has changed; where the cluster can't be asked (helm template), they don't. */}}
{{- define "letterbox.annotations" -}}
{{- $annotations := deepCopy .root.Values.podAnnotations }}
{{- with lookup "v1" "Secret" .root.Release.Namespace .secret }}
{{- $_ := set $annotations "letterbox/secret-version" .metadata.resourceVersion }}
{{- end }}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What every pod has: no rights, and the files of its secret. `secrets` maps settings to keys. */}}
{{- define "letterbox.pod" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  # The group that may read the secret's files.
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: secrets
    secret:
      secretName: {{ .secret }}
      defaultMode: 0440
      items:
        {{- range $key := values .secrets | sortAlpha }}
        - {key: {{ $key }}, path: {{ $key }}}
        {{- end }}
  {{- with .root.Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* What every container has. */}}
{{- define "letterbox.container" -}}
image: {{ include "letterbox.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: secrets, mountPath: /run/secrets/letterbox, readOnly: true}
  {{- with .root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- range $name, $key := .secrets }}
  - name: {{ $name }}_FILE
    value: /run/secrets/letterbox/{{ $key }}
  {{- end }}
  {{- range $name, $value := .settings }}
  - name: {{ $name }}
    {{- /* A large number in YAML is a float, which would be written as 1e+06. */}}
    {{- if and (kindIs "float64" $value) (eq (floor $value) $value) }}
    value: {{ int64 $value | quote }}
    {{- else }}
    value: {{ $value | quote }}
    {{- end }}
  {{- end }}
{{- end }}

{{/* The settings of gateways or workers as a map: its own, then those of both, then the chart's. */}}
{{- define "letterbox.settings" -}}
{{ toYaml (merge (dict) .component.settings .root.Values.settings .own (dict "LETTERBOX_DATABASE_POOL_SIZE" 8)) }}
{{- end }}

{{/* The settings of the desk. A page needs a connection for a few milliseconds. */}}
{{- define "letterbox.desk" -}}
{{- $base := .Values.baseUrl }}
{{- $own := dict "LETTERBOX_DESK_LISTEN" "0.0.0.0:8082" "LETTERBOX_ADMIN_LISTEN" "0.0.0.0:9080" "LETTERBOX_DESK_URL" .Values.desk.url "LETTERBOX_BASE_URL" $base "LETTERBOX_APP_URL" (.Values.appUrl | default $base) "LETTERBOX_TRUSTED_PROXIES" .Values.desk.trustedProxies "LETTERBOX_DATABASE_POOL_SIZE" 3 }}
{{- include "letterbox.settings" (dict "root" . "component" .Values.desk "own" $own) }}
{{- end }}

{{/* The connections to PostgreSQL at the largest size: an upgrade adds one pod of each kind; the job
that migrates, a command and KEDA have one each. */}}
{{- define "letterbox.connections" -}}
{{- $gateway := .Values.gateway }}
{{- $worker := .Values.worker }}
{{- $gateways := int $gateway.replicas }}
{{- if $gateway.autoscaling.enabled }}
{{- $gateways = max $gateway.replicas $gateway.autoscaling.maxReplicas }}
{{- end }}
{{- $workers := int $worker.replicas }}
{{- if $worker.keda.enabled }}
{{- $workers = int $worker.keda.maxReplicas }}
{{- end }}
{{- $gatewayPool := (include "letterbox.settings" (dict "root" . "component" $gateway "own" (dict)) | fromYaml).LETTERBOX_DATABASE_POOL_SIZE }}
{{- $workerPool := (include "letterbox.settings" (dict "root" . "component" $worker "own" (dict)) | fromYaml).LETTERBOX_DATABASE_POOL_SIZE }}
{{- $desks := 0 }}
{{- if .Values.desk.enabled }}
{{- $desks = mul (add (int .Values.desk.replicas) 1) (int (include "letterbox.desk" . | fromYaml).LETTERBOX_DATABASE_POOL_SIZE) }}
{{- end }}
{{- add (mul (add $gateways 1) (int $gatewayPool)) (mul (add $workers 1) (int $workerPool)) $desks 3 }}
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

{{/* Where the pods of gateways or workers may run. */}}
{{- define "letterbox.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
