"""Thousands of nodes and pods, made by plain requests to the API server. Nobody runs the pods: they are bound, no more.

Controllers and the default scheduler are stopped first, so that nobody minds that there are no kubelets and no jobs.
To pause them would not do: the API server waits for watchers that do not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from rich.progress import Progress

from local_cluster.waiting import wait_until
from scale_bench.objects import AT_A_TIME, MERGE
from scheduler_bench import objects
from scheduler_bench.objects import Json
from scheduler_bench.place import Place

ACTING = ("kube-controller-manager", "kube-scheduler")
PROFILES = "/apis/phasewise.dev/v1alpha1/namespaces/{}/phaseprofiles"


def prepare(place: Place, namespaces: Iterable[str], classes: Iterable[tuple[str, int]]) -> None:
    """The namespaces, and in them the workload classes that are known; afterwards nobody but the API server acts."""
    names = list(namespaces)
    _all(lambda name: place.wire.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}}), names)
    account = place.cluster.core.read_namespaced_service_account
    for name in names:
        wait_until(lambda name=name: account("default", name), f"the account of {name}", every_s=0.02)
    for controller in ACTING:
        place.cluster.servers[controller].stop()
    _all(lambda each: _learn(place, *each), classes)


def fill(place: Place, progress: Progress, nodes: range, pods: range, all_nodes: int) -> None:
    """Nodes and bound pods of these numbers, the pods evenly over the first `all_nodes` nodes."""

    def bound(number: int) -> None:
        at = objects.node_name(number % all_nodes)
        body = objects.pod(f"{objects.workload_of(number)}-{number}", number, node=at)
        place.wire.send("POST", f"/api/v1/namespaces/{objects.namespace_of(number)}/pods", body)

    _told(progress, "nodes", nodes, lambda number: place.wire.send("POST", "/api/v1/nodes", objects.node(number)))
    _told(progress, "pods", pods, bound)


def waiting(place: Place, progress: Progress, numbers: range) -> list[Json]:
    """Pods of these numbers that wait for a scheduler, each as one would send it."""
    made: list[Json] = []

    def create(number: int) -> None:
        path = f"/api/v1/namespaces/{objects.namespace_of(number)}/pods"
        pod = place.wire.send("POST", path, objects.pod(f"waiting-{number}", number))
        del pod["metadata"]["managedFields"]
        made.append({part: told for part, told in pod.items() if part not in ("kind", "apiVersion")})

    _told(progress, "waiting pods", numbers, create)
    return made


def _learn(place: Place, namespace: str, number: int) -> None:
    profile, status = objects.learned(namespace, number)
    path = PROFILES.format(namespace)
    place.wire.send("POST", path, profile)
    place.wire.send("PATCH", f"{path}/{profile['metadata']['name']}/status", status, MERGE)


def _told(progress: Progress, what: str, numbers: range, make: Callable[[int], object]) -> None:
    task = progress.add_task(f"making {len(numbers):,} {what}", total=len(numbers))
    with ThreadPoolExecutor(AT_A_TIME) as workers:
        for _ in workers.map(make, numbers):
            progress.advance(task)
    progress.remove_task(task)


def _all(make: Callable[..., object], these: Iterable[object]) -> None:
    with ThreadPoolExecutor(AT_A_TIME) as workers:
        for _ in workers.map(make, these):
            pass
