"""Processes that move training jobs: the extender with its scheduler, and the controller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS, documents
from tests.rig.processes import Server
from tests.rig.recommender import address_of
from tests.rig.rights import Account, roles_in
from tests.rig.scheduling import start_scheduler

SCHEDULER = "phasewise"
VERBS = ("filter", "prioritize", "preempt")
MOVES_RIGHTS = MANIFESTS / "overlays" / "moves" / "rights.yaml"
CONTROLLER_RIGHTS = MANIFESTS / "extender" / "controller.yaml"


def mover_account(cluster: Cluster) -> Account:
    """An account with the rights of the controller and of the overlay `moves`; VPAs are served."""
    cluster.vpa_resources()
    reserved_in = next(each for each in documents() if each["metadata"]["name"] == "phasewise-reservations")
    cluster.apply(reserved_in)
    roles = roles_in(CONTROLLER_RIGHTS, MOVES_RIGHTS)
    for role in roles:
        role["metadata"]["name"] = role["metadata"]["name"].replace("controller", "mover")
    return Account(cluster, "phasewise-mover", roles)


def start_controller(cluster: Cluster, account: Path, *options: str, name: str = "controller") -> Server:
    return cluster.start_program(name, "-m", "extender", "controller", "--kubeconfig", account, *options)


def start_extender(cluster: Cluster, *options: str, name: str = "extender") -> Server:
    """Start the extender under the account of its manifests, and wait until it has synced."""
    account = cluster.service_account("kube-system", "phasewise-extender")
    return cluster.start_program(name, "-m", "extender", "extender", "serve", "--kubeconfig", account, *options)


@contextmanager
def extender_with_scheduler(cluster: Cluster) -> Iterator[None]:
    """Run the extender, and a scheduler `phasewise` that calls it."""
    cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml", MANIFESTS / "extender" / "rbac.yaml")
    server = start_extender(cluster, name="gang-extender")
    scheduler = start_scheduler(cluster, SCHEDULER, extender=f"http://{address_of(server)}", verbs=VERBS)
    try:
        yield
    finally:
        scheduler.stop()
        server.stop()
