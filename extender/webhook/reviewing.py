"""The mutating webhook: pods of a gang get our gate and our scheduler when they are made.

It is asked about pods of namespaces that carry the label `phasewise.dev/gangs: enabled`, and only about those that name
a group. A gate can only be set when a pod is made, so while it does not answer such pods cannot be made (their
controllers try again); let through without a gate, a gang would be placed pod by pod.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from typing import Any

import orjson
from flask import Flask, Response, request

from extender.gangs.names import GATE
from extender.gangs.reading import group_of
from recommender.cluster.objects.reading import BadField, Fields

log = logging.getLogger(__name__)

LARGEST_BYTES = 8 << 20
"""An object may have 3 MB, and a review holds it once."""

DEFAULT_SCHEDULER = "default-scheduler"


def create_webhook(scheduler: str) -> Flask:
    """The application.

    Parameters
    ----------
    scheduler
        Put in place of the default one; empty leaves pods to the scheduler they name.
    """
    app = Flask("webhook", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = LARGEST_BYTES

    @app.post("/mutate")
    def mutate() -> Response:
        try:
            answer = reviewed(orjson.loads(request.get_data()), scheduler)
        except (orjson.JSONDecodeError, BadField) as error:
            log.warning("no review: %s", str(error)[:200])
            return Response("this is no AdmissionReview of a pod\n", 400, content_type="text/plain")
        return Response(orjson.dumps(answer), content_type="application/json")

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", content_type="text/plain")

    return app


def reviewed(review: Any, scheduler: str) -> dict[str, Any]:
    """The answer to an AdmissionReview: always allowed, changed where needed. BadField for what is none."""
    asked = Fields(review).child("request")
    answer: dict[str, Any] = {"uid": asked.required("uid"), "allowed": True}
    if asked.text("operation") == "CREATE" and (patch := changes(asked.child("object"), scheduler)):
        answer |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer}


def changes(pod: Fields, scheduler: str) -> list[Mapping[str, Any]]:
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
