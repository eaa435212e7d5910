"""What fails in our kube-scheduler without one of its rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from kubernetes import client

from tests.extender.missing.stage import Stage, Symptom
from tests.rig.installing import configured, documents, start_scheduler

LEASE = "phasewise-scheduler"


@contextlib.contextmanager
def never_schedules(stage: Stage) -> Iterator[Symptom]:
    """It never holds its Lease, so it never schedules; its log says why."""
    stage.reset_lease(LEASE)
    file = configured(stage.cluster, documents(), stage.account.kubeconfig, "http://127.0.0.1:1")
    server = start_scheduler(stage.cluster, documents(), file, stage.account.kubeconfig)

    def does_not_lead() -> bool:
        leases = client.CoordinationV1Api(stage.cluster.client()).list_namespaced_lease("kube-system").items
        held = any(each.metadata.name == LEASE and each.spec.holder_identity for each in leases)
        return not held and stage.refused in server.log.read_text().replace('\\"', '"')

    try:
        yield does_not_lead
    finally:
        stage.cluster.dismiss(server.name)
        server.log.unlink()
