{{- define "headgate.name" -}}
{{- if contains "headgate" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-headgate{{ end }}
{{- end }}

{{- define "headgate.selector" -}}
app.kubernetes.io/name: headgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headgate.labels" -}}
{{ include "headgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "headgate.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "headgate.store" -}}
{{ .Values.store | default (printf "kafka://%s" .Values.upstream) }}
{{- end }}

{{- define "headgate.least" -}}
{{- $least := first .Values.brokers | int }}
{{- range .Values.brokers }}{{ $least = min $least (int .) }}{{ end }}
{{- $least }}
{{- end }}

{{- define "headgate.greatest" -}}
{{- $greatest := 0 }}
{{- range .Values.brokers }}{{ $greatest = max $greatest (int .) }}{{ end }}
{{- $greatest }}
{{- end }}

{{/* Settings by name, a line each. */}}
{{- define "headgate.properties" -}}
{{- range $name, $value := . }}
{{ $name }}={{ $value }}
{{- end }}
{{- end }}

{{/* The "restricted" standard of Kubernetes. */}}
{{- define "headgate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "headgate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* What a pod mounts, and an init container that joins settings with secret ones. */}}
{{- define "headgate.mounts" -}}
- {name: config, mountPath: /etc/headgate, readOnly: true}
- {name: data, mountPath: /var/lib/headgate}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "headgate.join" -}}
initContainers:
  - name: settings
    {{- include "headgate.image" . | nindent 4 }}
    command: [sh, -c, "cat /given/settings/* /given/secret/* > /etc/headgate/headgate.properties"]
    securityContext: {{- include "headgate.containerSecurity" . | nindent 6 }}
    resources:
      requests: {cpu: 10m, memory: 16Mi}
      limits: {memory: 64Mi}
    volumeMounts:
      - {name: settings, mountPath: /given/settings, readOnly: true}
      - {name: secret, mountPath: /given/secret, readOnly: true}
      - {name: config, mountPath: /etc/headgate}
{{- end }}

{{- define "headgate.configVolumes" -}}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- if .secret }}
- name: config
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: settings
  configMap: {name: {{ .name }}}
- name: secret
  secret:
    secretName: {{ .secret }}
    items: [{key: headgate.properties, path: headgate.properties}]
{{- else }}
- name: config
  configMap: {name: {{ .name }}}
{{- end }}
{{- end }}

{{/* headgate.properties of the gateways; what `properties` says comes last. */}}
{{- define "headgate.settings" -}}
{{- $host := .Values.advertisedHost | default (printf "%s-{id}.%s.svc" (include "headgate.name" .) .Release.Namespace) -}}
headgate.upstream={{ .Values.upstream }}
headgate.broker.id.min={{ include "headgate.least" . }}
headgate.broker.id.max={{ include "headgate.greatest" . }}
listeners={{ .Values.listener.name }}://:{{ .Values.listener.port }}
listener.security.protocol.map={{ .Values.listener.name }}:{{ .Values.listener.protocol }}
advertised.listeners={{ .Values.listener.name }}://{{ $host }}:{{ .Values.listener.port }}
headgate.store={{ include "headgate.store" . }}
headgate.data.dir=/var/lib/headgate
headgate.log.format=json
{{- include "headgate.properties" .Values.properties }}
{{- end }}

{{- define "headgate.consoleSettings" -}}
headgate.console.listener=:8088
headgate.console.url={{ required "console.url: the https:// address that browsers open" .Values.console.url }}
headgate.console.data.dir=/var/lib/headgate/console
headgate.store={{ include "headgate.store" . }}
{{- if .Values.console.tlsSecret }}
headgate.console.ssl.certificate=/etc/headgate-tls/tls.crt
headgate.console.ssl.key=/etc/headgate-tls/tls.key
{{- end }}
{{- include "headgate.properties" .Values.console.properties }}
{{- end }}
