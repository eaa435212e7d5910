"""The history that a starting recommender loads from Prometheus: worked examples, failures and bounds."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import Block, ContainerKey, Sample
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pods import Pod
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.vpas.checkpoints import CheckpointKey
from recommender.kernels import histogram as kernel
from recommender.live import past as prior_history
from recommender.live.past import LOAD_TIMEOUT_S, PriorHistory, recent_start_s
from recommender.live.view.view import SelectedPods
from recommender.policies.histogram import HistogramSession
from recommender.sources.prometheus_faults import QueryRefused, Unavailable
from recommender.sources.prometheus_past import Owner, Owners
from recommender.sources.prometheus_usage import UsageBlock
from tests.fakes.records import a_container, pod_of

HOUR_S, DAY_S, GIB = 3600.0, 86400.0, 2.0**30
NOW_S = 1_000_000 * 60.0
STEP_S = 60.0
WEB = ObjectKey("ns", "web")


def block(pod: str, times_s: Sequence[float], cpu_cores: float, memory_bytes: float = GIB) -> UsageBlock:
    """One container with constant usage."""
    n = len(times_s)
    usage = np.tile([cpu_cores, memory_bytes], (n, 1))
    name = ContainerKey("ns", pod, "main")
    times = np.array(times_s, np.int64)
    return UsageBlock(
        (name,), (None,), (None,), np.zeros(n, np.int64), times, usage, np.full((n, 2), np.nan), np.full(n, np.nan)
    )


def hours(first: int, last: int) -> list[float]:
    """Times from `first` to `last` hours ago, the oldest first."""
    return [NOW_S - ago * HOUR_S for ago in range(first, last - 1, -1)]


@dataclass
class Records:
    """A VPA of a Deployment, its live pods, and what Prometheus knows."""

    pods: Sequence[Pod] = ()
    checkpoints: Mapping[CheckpointKey, HistogramSession] = field(default_factory=dict)
    blocks: Sequence[UsageBlock] = ()
    recent: Sequence[UsageBlock] = ()
    owner_of: Mapping[str, Owner] = field(default_factory=dict)
    fault: Exception | None = None
    owners_fault: Exception | None = None
    unreadable: bool = False
    adopted: dict[CheckpointKey, HistogramSession] = field(default_factory=dict)
    queries: list[tuple[float, float, float]] = field(default_factory=list)
    recalled: list[tuple[ContainerKey, Sample]] = field(default_factory=list)
    seconds: float = 0.0
    seconds_per_block: float = 0.0
    stopped: bool = False

    # the view

    def vpas(self) -> Sequence[Vpa]:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec: dict[str, Any] = {"targetRef": target, "recommenders": [{"name": "phasewise"}]}
        return [read_vpa({"metadata": {"namespace": "ns", "name": "web", "uid": "u"}, "spec": spec})]

    def select(self, vpa: Vpa) -> SelectedPods:
        if self.unreadable:
            raise Unreachable("the API server does not answer")
        return SelectedPods(self.pods, {})

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        return self.checkpoints.get(CheckpointKey(vpa, container))

    def adopt(self, histories: Mapping[CheckpointKey, HistogramSession]) -> None:
        self.adopted.update(histories)

    # Prometheus

    def owners(self, namespaces: Collection[str], start_s: float, end_s: float) -> Owners:
        if self.owners_fault:
            raise self.owners_fault
        above = {("ns", Owner("ReplicaSet", "web-1")): Owner("Deployment", "web")}
        return Owners({("ns", pod): owner for pod, owner in self.owner_of.items()}, above)

    def stretches(
        self, namespaces: Collection[str], start_s: float, end_s: float, stretch_s: float
    ) -> Iterator[UsageBlock]:
        self.queries.append((start_s, end_s, stretch_s))
        for one in self.blocks:
            self.seconds += self.seconds_per_block
            yield one
        if self.fault:
            raise self.fault

    def samples(self, namespaces: Collection[str], start_s: float, end_s: float, step_s: float) -> Iterator[UsageBlock]:
        self.queries.append((start_s, end_s, step_s))
        yield from self.recent

    # loading

    def load(self, length_s: float = 8 * DAY_S) -> tuple[int, int]:
        prior = PriorHistory(
            self,
            length_s,
            HOUR_S,
            STEP_S,
            clock=lambda: NOW_S + 7.0,
            stopwatch=lambda: self.seconds,
            stopped=lambda: self.stopped,
        )
        loaded = prior.load(self)
        self.recalled = list(prior.samples())
        assert list(prior.samples()) == []
        return loaded

    @property
    def session(self) -> HistogramSession:
        return self.adopted[CheckpointKey(WEB, "main")]


def a_pod(name: str, phase: str = "Running", age_s: float = DAY_S) -> Pod:
    started = np.datetime_as_string(np.datetime64(int(NOW_S - age_s), "s")) + "Z"
    return pod_of(name, a_container(), phase=phase, status={"startTime": started})


def test_deleted_pods_fill_the_histogram_of_their_vpa() -> None:
    """Ninety hours at 0.1 cores and ten at 1; a pod without a known owner is skipped."""
    records = Records(
        blocks=[block("web-1-a", hours(100, 11), 0.1), block("web-1-b", hours(10, 1), 1.0), block("other", [NOW_S], 9)],
        owner_of={"web-1-a": Owner("ReplicaSet", "web-1"), "web-1-b": Owner("ReplicaSet", "web-1")},
    )
    assert records.load() == (1, 2)
    sums = records.session.cpu.sums
    assert sums[kernel.SAMPLES] == 100
    assert sums[kernel.LAST_S] - sums[kernel.FIRST_S] == 99 * HOUR_S
    weights = records.session.cpu.weights
    assert np.count_nonzero(weights) == 2
    assert set(records.adopted) == {CheckpointKey(WEB, "main")}


def test_a_loaded_history_equals_that_of_the_histogram_policy_for_the_same_samples() -> None:
    times = hours(190, 1)
    blocks = [block("a", part, 0.5) for part in (times[:60], times[60:110], times[110:])]
    records = Records(blocks=blocks, owner_of={"a": WEB_OWNER})
    records.load()
    alone = HistogramSession()
    alone.advance(Block(np.tile([0.5, GIB], (190, 1)), np.array(times, np.int64), np.empty(0, np.int64)))
    np.testing.assert_allclose(records.session.estimate().target, alone.estimate().target)
    np.testing.assert_allclose(records.session.memory.weights, alone.memory.weights)


WEB_OWNER = Owner("Deployment", "web")


def test_the_histogram_of_a_live_container_ends_where_its_samples_begin() -> None:
    times = [NOW_S - 120.0, NOW_S - 60.0, NOW_S]
    records = Records(
        pods=[a_pod("live", age_s=2 * HOUR_S)],
        blocks=[block("live", hours(5, 0), 0.3)],
        recent=[block("live", times, 0.4)],
    )
    assert records.load() == (1, 0)
    assert records.queries == [(NOW_S - 8 * DAY_S, NOW_S, HOUR_S), (NOW_S - 2 * HOUR_S, NOW_S, STEP_S)]
    assert records.session.samples == 4  # 5, 4, 3 and 2 hours ago
    assert [(place.pod, sample.timestamp_s, sample.cpu_cores) for place, sample in records.recalled] == [
        ("live", at_s, 0.4) for at_s in times
    ]


def test_the_open_memory_window_of_a_live_container_is_left_to_its_samples() -> None:
    """Its one-day window is still open: a peak counted here would count again when its samples open a new one."""
    records = Records(pods=[a_pod("live")], blocks=[block("live", hours(60, 0), 0.3)])
    records.load()
    gone = Records(blocks=[block("live", hours(60, 0), 0.3)], owner_of={"live": WEB_OWNER})
    gone.load()
    assert np.count_nonzero(gone.session.memory.weights) == 1
    assert 0.0 < records.session.memory.sums[kernel.TOTAL] < gone.session.memory.sums[kernel.TOTAL]


def test_a_finished_pod_counts_up_to_its_end() -> None:
    records = Records(pods=[a_pod("done", phase="Succeeded")], blocks=[block("done", hours(5, 0), 0.3)])
    assert records.load() == (1, 1)
    assert records.session.samples == 6


def test_pods_without_a_vpa_are_skipped() -> None:
    records = Records(blocks=[block("a", hours(3, 1), 1.0)], owner_of={"a": Owner("Deployment", "another")})
    assert records.load() == (0, 0)
    assert records.adopted == {}


def checkpoint(first_s: float) -> dict[CheckpointKey, HistogramSession]:
    session = HistogramSession()
    times = np.array([first_s, NOW_S - HOUR_S], np.int64)
    session.advance(Block(np.tile([0.7, GIB], (2, 1)), times, np.empty(0, np.int64)))
    return {CheckpointKey(WEB, "main"): session}


@pytest.mark.parametrize(
    ("checkpoint_days", "prometheus_days", "replaced"),
    [
        pytest.param(60, 8, True, id="all of the requested history"),
        pytest.param(2, 3, True, id="longer than the checkpoint"),
        pytest.param(60, 3, False, id="Prometheus keeps three days"),
        pytest.param(2, 0.5, False, id="new Prometheus"),
    ],
)
def test_a_checkpoint_is_kept_where_prometheus_knows_less(
    checkpoint_days: float, prometheus_days: float, replaced: bool
) -> None:
    records = Records(
        checkpoints=checkpoint(NOW_S - checkpoint_days * DAY_S),
        blocks=[block("a", hours(int(prometheus_days * 24), 1), 0.1)],
        owner_of={"a": WEB_OWNER},
    )
    records.load()
    assert bool(records.adopted) == replaced


@pytest.mark.parametrize("blocks", [[], [block("a", hours(9, 1), 1.0)]], ids=["from the start", "halfway"])
def test_checkpoints_are_kept_if_prometheus_stops_answering(
    blocks: list[UsageBlock], caplog: pytest.LogCaptureFixture
) -> None:
    fault = Unavailable("http://p does not answer", retryable=True)
    records = Records(fault=fault, blocks=blocks, recent=[block("a", [NOW_S], 1)], owner_of={"a": WEB_OWNER})
    assert records.load() == (0, 0)
    assert "going on from checkpoints: http://p does not answer" in caplog.text
    assert (records.adopted, records.recalled) == ({}, [])


def test_loading_ends_at_its_timeout_and_when_the_process_stops(caplog: pytest.LogCaptureFixture) -> None:
    blocks = [block("a", hours(ago, ago), 1.0) for ago in range(9, 0, -1)]
    slow = Records(blocks=blocks, owner_of={"a": WEB_OWNER}, seconds_per_block=0.3 * LOAD_TIMEOUT_S)
    assert slow.load() == (0, 0)
    assert "Give a shorter --history" in caplog.text
    stopping = Records(blocks=blocks, owner_of={"a": WEB_OWNER}, stopped=True)
    assert stopping.load() == (0, 0)


def test_the_history_of_live_pods_is_loaded_without_known_owners(caplog: pytest.LogCaptureFixture) -> None:
    for fault in (None, QueryRefused("too many series")):
        records = Records(pods=[a_pod("live")], blocks=[block("live", hours(40, 30), 1.0)], owners_fault=fault)
        assert records.load() == (1, 0)
    assert caplog.text.count("deleted pods are unknown") == 2


def test_pods_that_cannot_be_listed_are_matched_by_their_owners() -> None:
    records = Records(unreadable=True, blocks=[block("a", hours(3, 1), 1.0)], owner_of={"a": WEB_OWNER})
    assert records.load() == (1, 1)


@given(ages_s=st.lists(st.floats(1.0, 1e7), min_size=1, max_size=20), allowed=st.integers(1, 5000))
def test_as_many_recent_samples_are_fetched_as_allowed_and_no_more(ages_s: list[float], allowed: int) -> None:
    ages = np.maximum(np.array(ages_s), STEP_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_history, "MAX_INITIAL_SAMPLES", allowed)
        reach_s = NOW_S - recent_start_s(ages, NOW_S, STEP_S)
    fetched = np.minimum(ages, reach_s).sum() / STEP_S
    assert fetched <= max(allowed, len(ages)) * (1 + 1e-6)
    slightly_longer = np.minimum(ages, reach_s + 2 * STEP_S).sum() / STEP_S
    assert slightly_longer > allowed or reach_s >= ages.max() - STEP_S


def test_a_container_without_a_known_start_gets_as_many_samples_as_allowed() -> None:
    assert recent_start_s(np.array([np.nan]), NOW_S, STEP_S) == NOW_S - prior_history.MAX_INITIAL_SAMPLES * STEP_S
    assert recent_start_s(np.array([]), NOW_S, STEP_S) == NOW_S
