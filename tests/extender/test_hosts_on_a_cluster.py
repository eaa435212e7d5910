"""An extender that tells of differing hosts alone: a real kube-scheduler does what it would do if told of all."""

from __future__ import annotations

from tests.cluster.cluster import Cluster
from tests.cluster.scheduling import start_scheduler
from tests.cluster.simulated.pods import create
from tests.cluster.waiting import wait_until
from tests.extender.placing import EARLY, LATE, job, judged_by_history, number, placed, profile, together
from tests.extender.test_on_a_cluster import ROOT, VERBS, start


def test_a_scheduler_that_is_told_of_differing_hosts_alone_does_as_advised(cluster: Cluster, namespace: str) -> None:
    cluster.apply(ROOT / "manifests" / "crd" / "phaseprofiles.yaml", ROOT / "manifests" / "extender" / "rbac.yaml")
    account = cluster.service_account("kube-system", "phasewise-extender")
    twenty = cluster.start_nodes(20, cpu="16", memory="64Gi")
    port, name = cluster.ports.free(), "differing"
    url = f"http://127.0.0.1:{port}"
    server = start(cluster, account, port, "--hosts", "differing", "--scheduler-name", name, name="extender-differing")
    scheduler = start_scheduler(cluster, name, extender=url, verbs=VERBS, weight=20)
    try:
        for kind, cores in (("early", EARLY), ("late", LATE)):
            profile(cluster, namespace, kind, cores)
        for kind in ("early", "late"):
            wait_until(lambda kind=kind: judged_by_history(url, namespace, kind), "the extender to see the profile")
            pod = job(twenty, kind)
            pod["spec"]["schedulerName"] = name
            for count in range(20):
                create(cluster, namespace, f"{kind}-{count}", pod)
        where = placed(cluster, namespace, 40)
        assert together(where, "early") == together(where, "late") == 1, where
        agreed = 'phasewise_extender_outcomes_total{outcome="bound where advised"}'
        wait_until(lambda: number(url, agreed) == 40, "the extender to see all bound where advised")
    finally:
        scheduler.stop()
        server.stop()
        twenty.remove()
