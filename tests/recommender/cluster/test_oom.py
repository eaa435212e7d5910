"""OOM kills: each way in which a pod or an event can show one, counted exactly once."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from recommender.cluster.errors import BadObject
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.usage.oom import (
    OomObservation,
    OomQueue,
    ooms_of_change,
    read_eviction,
)

MIB = 2**20
SEEN_S = 1_700_000_000.0
FIRST_END, SECOND_END = "2026-11-21T09:00:00Z", "2026-11-21T09:05:00Z"
FIRST_END_S, SECOND_END_S = 1795251600.0, 1795251900.0

Json = dict[str, Any]


def killed(at: str = FIRST_END, reason: str = "OOMKilled") -> Json:
    return {"terminated": {"reason": reason, "exitCode": 137, "finishedAt": at}}


RUNNING: Json = {"running": {"startedAt": "2026-11-21T08:00:00Z"}}
BACKING_OFF: Json = {"waiting": {"reason": "CrashLoopBackOff"}}
CREATING: Json = {"waiting": {"reason": "ContainerCreating"}}


def pod(
    state: Json,
    last: Json | None = None,
    *,
    restarts: int = 0,
    request: str | None = "500Mi",
    uid: str = "u",
    init: bool = False,
    reason: str = "",
) -> Pod:
    """A pod whose one container is in this state and has this request in force."""
    status: Json = {"name": "main", "state": state, "lastState": last or {}, "restartCount": restarts}
    if request is not None:
        status["resources"] = {"requests": {"memory": request}}
    return read_pod(
        {
            "metadata": {"name": "job-0", "namespace": "team", "uid": uid},
            "spec": {
                "containers": [{"name": "other" if init else "main"}],
                "initContainers": [{"name": "main"}] if init else [],
            },
            "status": {
                "phase": "Failed" if reason else "Running",
                "reason": reason,
                "initContainerStatuses" if init else "containerStatuses": [status],
            },
        }
    )


CASES: dict[str, tuple[Pod | None, Pod | None, list[tuple[float, float]]]] = {
    "running, then killed: the current request": (
        pod(RUNNING, request="300Mi"), pod(killed()), [(FIRST_END_S, 500)],
    ),
    "running, then running again: the previous request": (
        pod(RUNNING, request="300Mi"), pod(RUNNING, killed(), restarts=1), [(FIRST_END_S, 300)],
    ),
    "running, then waiting for its restart, the kill itself missed": (
        pod(RUNNING, request="300Mi"), pod(BACKING_OFF, killed()), [(FIRST_END_S, 300)],
    ),
    "killed, then waiting for its restart": (pod(killed()), pod(BACKING_OFF, killed()), []),
    "waiting for its restart, then running": (pod(BACKING_OFF, killed()), pod(RUNNING, killed(), restarts=1), []),
    "killed, then running": (pod(killed()), pod(RUNNING, killed(), restarts=1), []),
    "killed, then killed again after a restart": (
        pod(killed()), pod(killed(SECOND_END), killed(), restarts=1), [(SECOND_END_S, 500)],
    ),
    "killed, then reported again without a restart": (pod(killed()), pod(killed(SECOND_END)), []),
    "waiting for its second restart after a kill": (
        pod(RUNNING, killed(), restarts=1), pod(BACKING_OFF, killed(SECOND_END), restarts=1), [(SECOND_END_S, 500)],
    ),
    "reported again unchanged": (pod(RUNNING, killed(), restarts=1), pod(RUNNING, killed(), restarts=1), []),
    "being created, then killed": (pod(CREATING), pod(killed()), [(FIRST_END_S, 500)]),
    "ended for another reason": (pod(RUNNING), pod(killed(reason="Error")), []),
    "restarted for another reason after an old kill": (
        pod(RUNNING, killed(), restarts=1), pod(RUNNING, killed(SECOND_END, reason="Error"), restarts=2), [],
    ),
    "several restarts at once, the last after an OOM kill": (
        pod(RUNNING), pod(RUNNING, killed(SECOND_END), restarts=3), [(SECOND_END_S, 500)],
    ),
    "without a request": (pod(RUNNING, request=None), pod(killed(), request=None), [(FIRST_END_S, 0)]),
    "without a time": (pod(RUNNING), pod({"terminated": {"reason": "OOMKilled", "exitCode": 137}}), [(SEEN_S, 500)]),
    "an init container": (pod(RUNNING, init=True), pod(killed(), init=True), []),
    "seen for the first time": (None, pod(killed()), []),
    "deleted": (pod(RUNNING), None, []),
    "another pod of the same name": (pod(RUNNING, uid="before"), pod(killed(), restarts=0), []),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_a_pod_yields_each_kill_once(case: str) -> None:
    old, new, kills = CASES[case]
    found = list(ooms_of_change(old, new, SEEN_S))
    assert found == [
        OomObservation(ObjectKey("team", "job-0"), "main", when_s, memory_mib * MIB) for when_s, memory_mib in kills
    ]


def test_a_crash_loop_yields_each_kill_once_whatever_states_are_missed() -> None:
    """Two kills in seven states, of which any between the first and the last may be missed."""
    states = [
        pod(RUNNING),
        pod(killed()),
        pod(BACKING_OFF, killed()),
        pod(RUNNING, killed(), restarts=1),
        pod(killed(SECOND_END), killed(), restarts=1),
        pod(BACKING_OFF, killed(SECOND_END), restarts=1),
        pod(RUNNING, killed(SECOND_END), restarts=2),
    ]
    for missed in range(2 ** (len(states) - 2)):
        seen = [0, *(place for place in range(1, 6) if not missed >> (place - 1) & 1), 6]
        found = [oom.when_s for old, new in pairwise(seen) for oom in ooms_of_change(states[old], states[new], SEEN_S)]
        shows_first = any(1 <= place <= 4 for place in seen)  # later states no longer show the first kill
        assert found == ([FIRST_END_S, SECOND_END_S] if shows_first else [SECOND_END_S])


def event(
    containers: str = "main",
    used: str = "300Mi",
    starved: str = "memory",
    *,
    reason: str = "Evicted",
    kind: str = "Pod",
) -> Json:
    annotations = {"offending_containers": containers, "offending_containers_usage": used, "starved_resource": starved}
    return {
        "metadata": {
            "name": "job-0.17", "namespace": "team", "uid": "e1", "creationTimestamp": FIRST_END,
            "annotations": annotations,
        },
        "involvedObject": {"kind": kind, "namespace": "team", "name": "job-0"},
        "reason": reason,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raw", "kills"),
    [
        (event(), [("main", 300)]),
        (event("a,b", "1Gi,200Mi", "memory,memory"), [("a", 1024), ("b", 200)]),
        (event("a,b", "1Gi,7", "memory,ephemeral-storage"), [("a", 1024)]),
        (event("a,b", "1Gi", "memory,memory"), []),
        (event("", "", ""), []),
        (event(reason="Preempted"), []),
        (event(kind="Node"), []),
        (event() | {"metadata": {"name": "job-0.17", "namespace": "team"}}, []),
    ],
)
def test_an_eviction_names_the_containers_that_used_too_much_memory(raw: Json, kills: list[tuple[str, int]]) -> None:
    eviction = read_eviction(raw)
    wanted = tuple(
        OomObservation(ObjectKey("team", "job-0"), name, FIRST_END_S, mib * MIB, evicted=True) for name, mib in kills
    )
    assert (eviction or ()) == wanted


def test_an_eviction_with_a_malformed_amount_is_refused_by_name() -> None:
    with pytest.raises(BadObject, match=r"Event team/job-0\.17: .*offending_containers_usage"):
        read_eviction(event(used="much"))


def test_an_eviction_counts_once_the_kubelet_shows_it_in_the_status_of_the_pod() -> None:
    """Anybody may write an event, only the kubelet the status; they may come in either order."""
    queue, claim = OomQueue(clock=lambda: FIRST_END_S), read_eviction(event(used="900Ti"))
    assert claim is not None
    queue.eviction_changed(None, claim)
    queue.pod_changed(pod(RUNNING), pod(killed(reason="Error"), reason="DeadlineExceeded"))
    assert queue.drain() == []
    queue.pod_changed(pod(RUNNING), pod(killed(reason="Error"), reason="Evicted"))
    assert queue.drain() == list(claim)
    queue.eviction_changed(None, claim)
    assert queue.drain() == list(claim)


def test_an_eviction_that_no_status_shows_is_forgotten_after_ten_minutes() -> None:
    now_s = FIRST_END_S
    queue = OomQueue(clock=lambda: now_s)
    queue.eviction_changed(None, read_eviction(event()))
    now_s += 601.0
    assert queue.drain() == []
    queue.pod_changed(pod(RUNNING), pod(killed(reason="Error"), reason="Evicted"))
    assert queue.drain() == []


def test_the_queue_returns_each_kill_once_and_beyond_its_maximum_only_the_latest() -> None:
    queue = OomQueue(clock=lambda: SEEN_S, max_length=2)
    queue.pod_changed(pod(RUNNING), pod(killed()))
    queue.pod_changed(pod(killed()), pod(killed()))
    assert [oom.when_s for oom in queue.drain()] == [FIRST_END_S]
    assert queue.drain() == []
    for at in (FIRST_END, SECOND_END, "2026-11-21T09:10:00Z"):
        queue.pod_changed(pod(RUNNING), pod(killed(at)))
    assert [oom.when_s for oom in queue.drain()] == [SECOND_END_S, SECOND_END_S + 300.0]


def test_invented_evictions_in_one_namespace_do_not_drop_the_kills_of_another() -> None:
    queue = OomQueue(clock=lambda: SEEN_S, max_length=2)
    real = OomObservation(ObjectKey("team", "job-0"), "main", SEEN_S, 1.0, evicted=True)
    invented = [replace(real, pod=ObjectKey("other", f"p{number}")) for number in range(9)]
    queue.eviction_changed(None, (real,))
    queue.eviction_changed(None, tuple(invented))
    queue.pod_changed(pod(RUNNING), pod(RUNNING, reason="Evicted"))
    assert queue.drain() == [real]


def test_evictions_before_the_start_and_repeated_ones_do_not_count() -> None:
    oom = OomObservation(ObjectKey("team", "job-0"), "main", SEEN_S - 1, 1.0, evicted=True)
    old, new = (oom,), (replace(oom, when_s=SEEN_S + 1),)
    queue = OomQueue(clock=lambda: SEEN_S)
    queue.pod_changed(pod(RUNNING), pod(RUNNING, reason="Evicted"))
    queue.eviction_changed(None, old)
    queue.eviction_changed(None, new)
    queue.eviction_changed(new, new)
    queue.eviction_changed(new, None)
    assert queue.drain() == list(new)
