{{- /* One object of the manifests as YAML. */ -}}
{{- define "phasewise.object" }}
{{- $object := .object }}
{{- if eq $object.kind "CustomResourceDefinition" }}
{{- /* Upgraded with the release, and kept on uninstall together with everything learned. */ -}}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- else if eq $object.kind "Deployment" }}
{{- include "phasewise.deployment" . }}
{{- else if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "phasewise-controller-moves") }}
{{- /* Planning reads profiles and Jobs, and writes on profiles what it planned. */ -}}
{{- if eq .release.Values.controller.moves "plan" }}{{ $_ := set $object "rules" (slice $object.rules 0 4) }}{{ end }}
{{- else if eq (dig "roleRef" "name" "" $object) "extension-apiserver-authentication-reader" }}
{{- $_ := set $object.metadata "namespace" "kube-system" }}
{{- end }}
{{- toYaml $object }}
{{- end }}

{{- define "phasewise.deployment" }}
{{- $release := .release }}
{{- $spec := .object.spec }}
{{- $pod := $spec.template.spec }}
{{- $values := index $release.Values (trimPrefix "phasewise-" .object.metadata.name) }}
{{- $_ := set $spec "replicas" $values.replicas }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with index $values $key }}{{ $_ := set $pod $key . }}{{ end }}
{{- end }}
{{- with $values.podAnnotations }}
{{- $_ := set $spec.template.metadata "annotations" (mergeOverwrite (default dict $spec.template.metadata.annotations) .) }}
{{- end }}
{{- with $values.volumes }}{{ $_ := set $pod "volumes" (concat (default list $pod.volumes) .) }}{{ end }}
{{- with $release.Values.imagePullSecrets }}{{ $_ := set $pod "imagePullSecrets" . }}{{ end }}
{{- range $container := $pod.containers }}
{{- $values := index $release.Values $container.name }}
{{- with $values.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- with $values.volumeMounts }}
{{- $_ := set $container "volumeMounts" (concat (default list $container.volumeMounts) .) }}
{{- end }}
{{- if eq $container.name "scheduler" }}
{{- /* Distributions append suffixes to the version of Kubernetes: v1.36.2-gke.100. */ -}}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" $release.Capabilities.KubeVersion.Version }}
{{- $_ := set $container "image" (default (printf "registry.k8s.io/kube-scheduler:%s" $version) $values.image) }}
{{- else }}
{{- $_ := set $container "image" (printf "%s:%s" $release.Values.image.repository (default $release.Chart.AppVersion $release.Values.image.tag)) }}
{{- $_ := set $container "imagePullPolicy" $release.Values.image.pullPolicy }}
{{- $taken := ternary "args" "command" (hasKey $container "args") }}
{{- $given := include "phasewise.arguments" (dict "name" $container.name "release" $release) | fromYamlArray }}
{{- $_ := set $container $taken (concat (index $container $taken) $given) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Additional arguments of a program: the namespace of the release, and args of the values. */ -}}
{{- define "phasewise.arguments" }}
{{- $namespace := .release.Release.Namespace }}
{{- $given := list }}
{{- if ne $namespace "kube-system" }}
{{- if eq .name "webhook" }}
{{- $given = list (printf "--namespace=%s" $namespace) (printf "--name=phasewise-webhook.%s.svc" $namespace) }}
{{- else if ne .name "web" }}
{{- $given = list (printf "--lease-namespace=%s" $namespace) }}
{{- end }}
{{- end }}
{{- if and (eq .name "controller") (ne .release.Values.controller.moves "off") }}
{{- $given = append $given (printf "--moves=%s" .release.Values.controller.moves) }}
{{- end }}
{{- if and (eq .name "recommender") .release.Values.recommender.resizeWaiting }}
{{- $given = append $given "--resize-waiting" }}
{{- end }}
{{- concat $given (index .release.Values .name).args | toYaml }}
{{- end }}
