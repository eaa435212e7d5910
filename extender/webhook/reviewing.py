"""The mutating webhook: adds our gate and scheduler name to the pods of gangs on creation.

It is called for pods that name a group, in namespaces with the label `phasewise.dev/gangs: enabled`. Gates can only be
set on creation, so while the webhook is down such pods cannot be created (their controllers retry): without a gate, a
gang would be scheduled pod by pod.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from extender.errors import BadRequest
from extender.gangs.member import GATE
from extender.pods.pod import GANG_LABEL, group_of
from recommender.cluster.objects.reading import BadField, Fields

log = logging.getLogger(__name__)

DEFAULT_SCHEDULER = "default-scheduler"

EXCLUSIVE, BY_NODE_LABELS = "alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector"
"""Annotations: a JobSet creates most pods of a Job once the first has a node, except with the second one."""


def handlers(scheduler: str) -> Mapping[str, Callable[[bytes], bytes]]:
    """The handlers of the API server's calls; `scheduler` replaces the default scheduler, empty for no change."""

    def mutate(body: bytes) -> bytes:
        try:
            return orjson.dumps(review_response(orjson.loads(body), scheduler))
        except (orjson.JSONDecodeError, BadField) as error:
            problem = str(error)[:200]
        # Only raised here, as the traceback of the other error would keep everything parsed until it is collected.
        log.warning("no review: %s", problem)
        raise BadRequest("not an AdmissionReview of a pod")

    return {"/mutate": mutate}


def review_response(review: Any, scheduler: str) -> dict[str, Any]:
    """The response to an AdmissionReview: always allowed, with a patch if needed. BadField if it is malformed."""
    asked = Fields(review).child("request")
    answer: dict[str, Any] = {"uid": asked.required("uid"), "allowed": True}
    if asked.text("operation") == "CREATE" and (patch := pod_patch(asked.child("object"), scheduler)):
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def pod_patch(pod: Fields, scheduler: str) -> list[Mapping[str, Any]]:
    """The JSON patch for a pod of a gang; empty for other pods, bound pods, pods of Kubernetes PodGroups, and pods of
    JobSets with exclusive placement."""
    metadata, spec = pod.child("metadata"), pod.child("spec")
    words = {**metadata.string_map("annotations"), **metadata.string_map("labels")}
    name, _ = group_of(words)
    if EXCLUSIVE in words and not words.keys() & {BY_NODE_LABELS, GANG_LABEL}:
        return []  # its gang would never be complete
    if not name or spec.text("nodeName") or "schedulingGroup" in spec or "workloadRef" in spec:
        return []
    found: list[Mapping[str, Any]] = []
    gates = [gate.text("name") for gate in spec.children("schedulingGates")]
    if GATE not in gates:
        path, value = (
            ("/spec/schedulingGates/-", {"name": GATE}) if gates else ("/spec/schedulingGates", [{"name": GATE}])
        )
        found.append({"op": "add", "path": path, "value": value})
    if scheduler and spec.text("schedulerName") in ("", DEFAULT_SCHEDULER):
        found.append({"op": "add", "path": "/spec/schedulerName", "value": scheduler})
    return found
