"""kwok stages that end containers: killed for memory, or after the annotated time, whichever comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

WHAT_ENDS_FIRST = (Path(__file__).parent / "what-ends-first.jq").read_text()
MAX_WATCHED_CONTAINERS = 4
"""Containers per pod that are watched for memory: a stage cannot loop, so each has its own."""

EXIT_CODE = '(.metadata.annotations["phasewise.dev/exit-code"] // "0")'
STARTED_AGAIN = f'(.spec.restartPolicy == "Always" or (.spec.restartPolicy == "OnFailure" and {EXIT_CODE} != "0"))'

PLANNED = """
{{ $code := get (.metadata.annotations | default dict) "phasewise.dev/exit-code" | default "0" | atoi }}
{{ $reason := ternary "Completed" "Error" (eq $code 0) }}
"""
KILLED = """
{{ $code := 137 }}
{{ $reason := "OOMKilled" }}
"""
ENDED = """
{{ $now := Now }}
{{ $chosen := CHOSEN }}
containerStatuses:
{{ range $index, $status := .status.containerStatuses }}
{{ if WHICH }}
{{ $why := ternary $reason "Error" (or (eq $chosen -1) (eq $chosen $index)) }}
{{ $ended := dict "exitCode" $code "reason" $why "startedAt" $status.state.running.startedAt "finishedAt" $now }}
{{ $_ := set $ended "containerID" $status.containerID }}
AFTERWARDS
{{ end }}
- {{ $status | toJson }}
{{ end }}
"""
STARTED = """
{{ $again := add1 (int $status.restartCount) }}
{{ $_ := set $status "restartCount" $again }}
{{ $_ := set $status "containerID" (printf "simulated://%s/%s/%d" $.metadata.uid $status.name $again) }}
{{ $_ := set $status "lastState" (dict "terminated" $ended) }}
{{ $_ := set $status "state" (dict "running" (dict "startedAt" $now)) }}
"""
STOPPED = """
{{ $_ := set $status "ready" false }}
{{ $_ := set $status "started" false }}
{{ $_ := set $status "state" (dict "terminated" $ended) }}
"""
FINISHED = """
phase: {{ ternary "Succeeded" "Failed" (eq $code 0) }}
conditions:
{{ $how := ternary "PodCompleted" "PodFailed" (eq $code 0) }}
{{ range list "Ready" "ContainersReady" }}
- {type: {{ . }}, status: "False", reason: {{ $how }}, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
"""
NOTED = """
metadata:
  annotations:
    {{ $chosen := CHOSEN }}
    {{ range $index, $container := .status.containerStatuses }}
    {{ if WHICH }}
    phasewise.dev/restarted-at.{{ $container.name }}: "{{ now | unixEpoch }}"
    {{ end }}
    {{ end }}
"""
"""Usage expressions cannot read container statuses, so the time of a restart is also stored in an annotation."""


def ending_stages() -> list[dict[str, Any]]:
    """All stages: a planned end with and without restart, and the same for each container that may be killed."""
    stages = [
        _stage("pod-ends", "all", f"{STARTED_AGAIN} | not", PLANNED, again=False),
        _stage("pod-starts-again", "all", STARTED_AGAIN, PLANNED, again=True),
    ]
    for index in range(MAX_WATCHED_CONTAINERS):
        which = str(index)
        stages.append(_stage(f"container-killed-{which}", which, '.spec.restartPolicy != "Never"', KILLED, again=True))
        stages.append(_stage(f"pod-killed-{which}", which, '.spec.restartPolicy == "Never"', KILLED, again=False))
    return stages


def _stage(name: str, who: str, condition: str, why: str, *, again: bool) -> dict[str, Any]:
    def filled(template: str) -> str:
        which = "eq $chosen $index" if again and who != "all" else "true"  # all containers of a failed pod end
        return template.replace("WHICH", which).replace("CHOSEN", "-1" if who == "all" else who)

    status = why + ENDED.replace("AFTERWARDS", STARTED if again else STOPPED) + ("" if again else FINISHED)
    steps = [{"subresource": "status", "root": "status", "template": filled(status)}]
    if again:
        steps.append({"template": filled(NOTED)})
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {
                "matchExpressions": [
                    {"jq": {"key": condition, "operator": "In", "values": ["true"]}},
                    {"jq": {"key": f"{WHAT_ENDS_FIRST} | .who", "operator": "In", "values": [who]}},
                ]
            },
            "delay": {"durationFrom": {"jq": {"expression": f"{WHAT_ENDS_FIRST} | .at | rfc3339"}}},
            "steps": [{"patch": {"type": "strategic", **step}} for step in steps],
        },
    }
