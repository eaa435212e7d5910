"""The service that runs the rounds: when it acts, when it is healthy, what it writes how often, and how it stops.

View and recommender are stubs here; the tests on a cluster use the real ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from recommender.base.errors import Misuse
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.vpas.checkpoints import WriteReport
from recommender.engine.container_arrays import ContainerArrays
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.tally import Report
from recommender.live import service as under_test
from recommender.live import telemetry
from recommender.live.outside.model_source import Refusal
from recommender.live.service import Service, Timing, checkpoint_statuses
from recommender.live.telemetry import Telemetry
from recommender.live.view.view import SelectedPods
from recommender.live.vpa_state import VpaState
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, use
from tests.rig.waiting import wait_until


def until(condition: Callable[[], object], what: str) -> None:
    wait_until(condition, what, timeout_s=5, every_s=0.01)


class View:
    """A cluster view that records its calls."""

    def __init__(self) -> None:
        self.is_synced = True
        self.asked_whether_synced = 0
        self.unreadable = 0
        self.calls: list[str] = []
        self.checkpoint_writes: list[tuple[float, float]] = []
        self.deadlines_s: list[float] = []
        self.problem: Exception | None = None

    @property
    def synced(self) -> bool:
        self.asked_whether_synced += 1
        return self.is_synced

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def hurry(self, until_s: float) -> None:
        self.deadlines_s.append(until_s)

    def forget_histories(self) -> None:
        self.calls.append("forget")

    def load_histories(self) -> None:
        if self.problem is not None:
            raise self.problem

    def write_checkpoints(
        self, statuses: Mapping[Any, Any], within_s: float, every_s: float, at_most: float
    ) -> WriteReport:
        self.checkpoint_writes.append((within_s, every_s))
        return WriteReport(written=1)

    def collect_checkpoints(self) -> list[str]:
        self.calls.append("collect")
        return []


class Rounds:
    """A recommender whose rounds a test can block or fail."""

    def __init__(self) -> None:
        self.begun = 0
        self.safe_values = 0
        self.stopping = False
        self.proceed = threading.Event()
        self.proceed.set()
        self.error: BaseException | None = None
        self.vpas: dict[Any, Any] = {}
        self.profiles = SimpleNamespace()
        groups = SimpleNamespace(arrays=GroupArrays(), by_slot={})
        self.engine = SimpleNamespace(
            adopt=lambda model: None,
            fleet=SimpleNamespace(members={}, arrays=ContainerArrays()),
            groups=groups,
            lead_time=SimpleNamespace(seconds=85.0),
            rails_acting=dict,
        )

    def run(self) -> Report:
        self.begun += 1
        self.proceed.wait()
        if self.error is not None:
            raise self.error
        return Report()

    def publish_safe_values(self, values_until_s: float, profiles_until_s: float) -> Report:
        self.safe_values += 1
        return Report()


class Models:
    refreshes = 0
    refusal: Refusal | None = None

    def refresh(self, adopt: Callable[[Any], None]) -> None:
        self.refreshes += 1

    def stop(self) -> None: ...


class Running:
    """A service in its own thread."""

    def __init__(self) -> None:
        self.view, self.models, self.leads, self.asked_whether_leading = View(), Models(), True, 0
        self.recommenders: list[Rounds] = []
        self.next, self.registry = Rounds(), CollectorRegistry()
        timing = Timing(interval_s=0.01, checkpoint_interval_s=60.0, checkpoints_within_s=5.0, clear_away_s=600.0)
        self.service = Service(
            self.view,  # type: ignore[arg-type]
            self._make,  # type: ignore[arg-type]
            Telemetry(self.registry),
            timing,
            self.models,  # type: ignore[arg-type]
            self._is_leading,
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _is_leading(self) -> bool:
        self.asked_whether_leading += 1
        return self.leads

    def _make(self) -> Rounds:
        self.recommenders.append(self.next)
        return self.next

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:  # noqa: BLE001  # checked by the tests
            self.error = error

    @property
    def rounds(self) -> int:
        return sum(each.begun for each in self.recommenders)

    def start(self) -> None:
        self.thread.start()

    def start_a_round(self) -> None:
        self.start()
        until(lambda: self.rounds, "a round")

    def end(self) -> float:
        """Stop the service; returns how long that took."""
        began_s = time.monotonic()
        self.service.stop()
        self.thread.join(10.0)
        assert not self.thread.is_alive()
        return time.monotonic() - began_s


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    # It would collect the garbage of the whole test process: half a second each time.
    monkeypatch.setattr(under_test, "MemoryTrimmer", lambda: SimpleNamespace(trim=lambda now_s: None))
    service = Running()
    yield service
    for rounds in (*service.recommenders, service.next):
        rounds.proceed.set()
    if service.thread.ident is not None:
        service.end()


def test_rounds_repeat_until_the_stop_and_then_safe_values_are_published(running: Running) -> None:
    running.start()
    until(lambda: running.rounds > 2, "rounds")
    assert running.models.refreshes > 2
    assert running.end() < 2.0
    assert running.recommenders[0].safe_values == 1
    assert running.view.calls[0] == "start"
    assert running.view.calls[-1] == "stop"
    assert running.view.checkpoint_writes[-1][1] == 0.0  # at the end every VPA is written
    assert {every_s for _, every_s in running.view.checkpoint_writes[:-1]} == {60.0}
    assert running.view.calls.count("collect") == 1


def test_until_the_caches_are_synced_no_round_runs_and_the_service_is_healthy_but_not_ready(running: Running) -> None:
    running.view.is_synced = False
    running.start()
    until(lambda: running.view.asked_whether_synced > 1, "two attempts")
    assert running.rounds == 0
    assert not running.service.ready
    assert running.service.healthy
    running.view.is_synced = True
    until(lambda: running.rounds, "the first round")
    assert running.service.ready


def test_nothing_is_written_before_the_histories_are_loaded(running: Running) -> None:
    running.view.problem = Unreachable("no server")
    running.start()
    until(lambda: running.view.calls.count("forget") > 1, "two attempts")
    assert running.rounds == 0
    running.end()
    assert running.view.checkpoint_writes == []
    assert running.recommenders == []


def test_rounds_continue_when_later_histories_cannot_be_loaded(running: Running) -> None:
    """The view leaves out VPAs without a loaded history; the others continue."""
    running.start_a_round()
    running.view.problem = Unreachable("no server")
    before = running.rounds
    until(lambda: running.rounds > before + 2, "more rounds")


def test_a_replica_that_does_not_lead_does_nothing_and_is_healthy(running: Running) -> None:
    running.leads = False
    running.start()
    until(lambda: running.asked_whether_leading > 1, "two attempts")
    assert running.service.healthy
    running.end()
    assert running.rounds == 0
    assert running.view.checkpoint_writes == []


def test_a_replica_that_leads_again_starts_with_a_new_recommender(running: Running) -> None:
    running.start_a_round()
    running.next, first = Rounds(), running.next
    running.leads = False
    until(lambda: running.service._recommender is None, "the recommender to be dropped")
    running.leads = True
    until(lambda: running.next.begun, "rounds of a new recommender")
    assert running.recommenders == [first, running.next]
    assert running.view.calls.count("forget") == 2
    running.leads = False
    running.end()
    assert running.next.safe_values == 0  # another replica leads: its values are not overwritten


def test_a_replica_that_no_longer_leads_resets_its_metrics(running: Running) -> None:
    """Alerts use the maximum over all replicas."""
    running.next.engine.rails_acting = lambda: {"room": 1}
    running.models.refusal = Refusal("it is damaged", 0.0)
    running.view.unreadable = 3
    running.start()

    def metric(name: str, **labels: str) -> float | None:
        return running.registry.get_sample_value(f"phasewise_{name}", labels)

    until(lambda: metric("guard_rails", rail="room"), "a round")
    assert (metric("model_refused"), metric("unreadable_objects"), metric("lead_time_seconds")) == (1, 3, 85)
    assert running.next.profiles.refusal is running.models.refusal, "profiles say so, too"
    running.leads = False
    until(lambda: running.service._recommender is None, "the recommender to be dropped")
    assert metric("guard_rails", rail="room") is metric("vpas", state="silent") is None
    assert (metric("model_refused"), metric("unreadable_objects"), metric("lead_time_seconds")) == (0, 0, 0)


def test_a_stuck_round_makes_the_service_unhealthy(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MIN_UNHEALTHY_S", 0.05)
    running.next.proceed.clear()
    running.start_a_round()
    until(lambda: not running.service.healthy, "it to be unhealthy")
    assert running.service.ready
    running.next.proceed.set()
    until(lambda: running.service.healthy, "it to be healthy again")


def test_a_hanging_round_does_not_keep_the_process_from_stopping(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "EXIT_DEADLINE_S", 0.3)
    running.next.proceed.clear()
    running.start_a_round()
    assert running.end() < 2.0
    assert running.error is None
    assert running.next.safe_values == 0


def test_a_stop_sets_a_deadline_for_requests_of_the_round_and_one_for_the_safe_values(running: Running) -> None:
    running.start_a_round()
    began_s = time.monotonic()
    running.end()
    round_s, values_s = (until_s - began_s for until_s in running.view.deadlines_s)
    assert round_s == pytest.approx(under_test.ROUND_DEADLINE_S, abs=0.5)
    assert values_s == pytest.approx(under_test.VALUES_DEADLINE_S, abs=0.5)
    assert under_test.ROUND_DEADLINE_S < under_test.VALUES_DEADLINE_S < under_test.EXIT_DEADLINE_S < 8.5


def test_a_round_cut_short_by_the_stop_writes_no_checkpoints_of_its_own(running: Running) -> None:
    running.next.proceed.clear()
    running.start_a_round()
    running.service.stop()
    running.next.proceed.set()
    running.thread.join(5.0)
    assert [every_s for _, every_s in running.view.checkpoint_writes] == [0.0]
    assert running.next.safe_values == 1


def test_an_unforeseen_error_ends_the_process(running: Running) -> None:
    running.next.error = Misuse("this model knows no demand")
    running.start()
    running.thread.join(5.0)
    assert str(running.error) == "this model knows no demand"


def test_a_problem_is_logged_when_it_appears_and_disappears(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    service = running.service
    with caplog.at_level("INFO"):
        for problems in ({"ns/a": "broken"}, {"ns/a": "broken"}, {"ns/a": "worse"}, {}, {}):
            service._log_problems(Report(problems=problems))
    assert [record.getMessage() for record in caplog.records] == ["ns/a: broken", "ns/a: worse", "ns/a: resolved"]
    assert caplog.records[0].about == "ns/a"


def test_each_round_counts_vpas_that_have_long_had_no_recommendation(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "UNSERVED_AFTER_S", 0.0)
    state = VpaState(read_vpa(a_vpa()), SelectedPods([a_pod("p")], {}))
    running.next.vpas = {state.vpa.key: state}
    running.start()
    wait_until(lambda: running.registry.get_sample_value("phasewise_vpas_unserved") == 1.0, "it to be counted")


def test_no_checkpoint_is_written_for_a_container_that_no_pod_has() -> None:
    cluster = FakeView()
    cluster.raw["job"], cluster.pods["job"] = a_vpa(), [a_pod("job-1")]
    ours = recommender(cluster)
    use(cluster, "job-1", 0.5, 1.0)
    ours.run()
    (state,) = ours.vpas.values()
    assert set(checkpoint_statuses(ours.engine, state, cluster.now_s)) == {"main"}
    cluster.pods["job"] = [a_pod("job-2", containers=("renamed",))]
    use(cluster, "job-2", 0.5, 1.0, "renamed")
    ours.run()
    assert set(checkpoint_statuses(ours.engine, state, cluster.now_s)) == {"renamed"}
    cluster.pods["job"] = []
    ours.run()
    assert len(checkpoint_statuses(ours.engine, state, cluster.now_s)) == 2, "without pods none is omitted"
