{{- define "callfuse.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "callfuse.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "callfuse.labels" -}}
{{ include "callfuse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "callfuse.secret" -}}
{{- .Values.secret.existing | default (include "callfuse.fullname" .) -}}
{{- end -}}

{{- define "callfuse.maxProcesses" -}}
{{- $pods := .Values.replicas -}}
{{- if .Values.autoscaling.enabled -}}{{- $pods = .Values.autoscaling.maxReplicas -}}{{- end -}}
{{- mul $pods (.Values.settings.serve.workers | default 1) -}}
{{- end -}}

{{- define "callfuse.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
