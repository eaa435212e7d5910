"""The mutating webhook: pods of a gang get our gate and our scheduler when they are made.

It is asked about pods of namespaces that carry the label `phasewise.dev/gangs: enabled`, and only about those that name
a group. A gate can only be set when a pod is made, so while it does not answer such pods cannot be made (their
controllers try again); let through without a gate, a gang would be placed pod by pod.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from extender.errors import BadRequest
from extender.gangs.member import GATE
from extender.pods.pod import group_of
from recommender.cluster.objects.reading import BadField, Fields

log = logging.getLogger(__name__)

DEFAULT_SCHEDULER = "default-scheduler"


def handlers(scheduler: str) -> Mapping[str, Callable[[bytes], bytes]]:
    """What answers the API server, by path.

    Parameters
    ----------
    scheduler
        Put in place of the default one; empty leaves pods to the scheduler they name.
    """

    def mutate(body: bytes) -> bytes:
        try:
            return orjson.dumps(review_response(orjson.loads(body), scheduler))
        except (orjson.JSONDecodeError, BadField) as error:
            log.warning("no review: %s", str(error)[:200])
            raise BadRequest("this is no AdmissionReview of a pod") from error

    return {"/mutate": mutate}


def review_response(review: Any, scheduler: str) -> dict[str, Any]:
    """The answer to an AdmissionReview: always allowed, changed where needed. BadField for what is none."""
    asked = Fields(review).child("request")
    answer: dict[str, Any] = {"uid": asked.required("uid"), "allowed": True}
    if asked.text("operation") == "CREATE" and (patch := pod_patch(asked.child("object"), scheduler)):
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def pod_patch(pod: Fields, scheduler: str) -> list[Mapping[str, Any]]:
    """The JSON patch that makes a pod wait for its gang; nothing for one that belongs to none, or is left to others."""
    metadata, spec = pod.child("metadata"), pod.child("spec")
    name, _ = group_of({**metadata.words("annotations"), **metadata.words("labels")})
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
