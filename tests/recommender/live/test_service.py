"""The program around the rounds: when it acts, when it is healthy, what it writes how often, and how it ends.

The view and the recommender here do what a test tells them, no more; the real ones are in the tests on a cluster.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from local_cluster.waiting import wait_until
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.vpa import read_vpa
from recommender.cluster.vpas.checkpoints import WriteReport
from recommender.engine.group_arrays import GroupArrays
from recommender.engine.tally import Report
from recommender.errors import Misuse
from recommender.live import service as under_test
from recommender.live import telemetry
from recommender.live.outside.model_source import Refusal
from recommender.live.service import Service, Timing, checkpoint_statuses
from recommender.live.telemetry import Telemetry
from recommender.live.vpa_state import VpaState
from tests.fakes.records import FakeView, a_pod, a_vpa, recommender, use


class View:
    """A cluster view that notes what it is asked."""

    def __init__(self) -> None:
        self.synced = True
        self.unreadable = 0
        self.done: list[str] = []
        self.kept: list[tuple[float, float]] = []
        self.until_s: list[float] = []
        self.problem: Exception | None = None

    def start(self) -> None:
        self.done.append("start")

    def stop(self) -> None:
        self.done.append("stop")

    def hurry(self, until_s: float) -> None:
        self.until_s.append(until_s)

    def forget_histories(self) -> None:
        self.done.append("forget")

    def load_histories(self) -> None:
        if self.problem is not None:
            raise self.problem

    def write_checkpoints(
        self, statuses: Mapping[Any, Any], within_s: float, every_s: float, at_most: float
    ) -> WriteReport:
        self.kept.append((within_s, every_s))
        return WriteReport(written=1)

    def collect_checkpoints(self) -> list[str]:
        self.done.append("clear away")
        return []


class Rounds:
    """A recommender whose rounds a test can hold up or spoil."""

    def __init__(self) -> None:
        self.begun = 0
        self.left = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self.error: BaseException | None = None
        self.vpas: dict[Any, Any] = {}
        groups = SimpleNamespace(arrays=GroupArrays())
        self.engine = SimpleNamespace(
            adopt=lambda model: None,
            fleet=SimpleNamespace(members={}),
            groups=groups,
            lead_time=SimpleNamespace(seconds=85.0),
            rails_acting=dict,
        )

    def run(self) -> Report:
        self.begun += 1
        self.go_on.wait()
        if self.error is not None:
            raise self.error
        return Report()

    def publish_safe_values(self, values_until_s: float, profiles_until_s: float) -> Report:
        self.left += 1
        return Report()


class Models:
    renewed = 0
    refusal: Refusal | None = None

    def refresh(self, adopt: Callable[[Any], None]) -> None:
        self.renewed += 1

    def stop(self) -> None: ...


class Running:
    """A service on a thread of the test's."""

    def __init__(self) -> None:
        self.view, self.models, self.leads = View(), Models(), True
        self.made: list[Rounds] = []
        self.next, self.registry = Rounds(), CollectorRegistry()
        timing = Timing(interval_s=0.01, checkpoint_interval_s=60.0, checkpoints_within_s=5.0, clear_away_s=600.0)
        self.service = Service(
            self.view,  # type: ignore[arg-type]
            self._make,  # type: ignore[arg-type]
            Telemetry(self.registry),
            timing,
            self.models,  # type: ignore[arg-type]
            lambda: self.leads,
        )
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _make(self) -> Rounds:
        self.made.append(self.next)
        return self.next

    def _run(self) -> None:
        try:
            self.service.run()
        except BaseException as error:  # noqa: BLE001  # looked at by the tests
            self.error = error

    @property
    def rounds(self) -> int:
        return sum(made.begun for made in self.made)

    def start(self) -> Running:
        self.thread.start()
        return self

    def end(self) -> float:
        """Stop it; returns how long that took."""
        began_s = time.monotonic()
        self.service.stop()
        self.thread.join(10.0)
        assert not self.thread.is_alive()
        return time.monotonic() - began_s


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    # It would look for garbage in all that the tests' process holds: half a second each time.
    monkeypatch.setattr(under_test, "MemoryTrimmer", lambda: SimpleNamespace(trim=lambda now_s: None))
    made = Running()
    yield made
    for rounds in (*made.made, made.next):
        rounds.go_on.set()
    if made.thread.ident is not None:
        made.end()


def test_rounds_run_one_after_another_and_at_the_end_safe_values_are_left(running: Running) -> None:
    running.start()
    wait_until(lambda: running.rounds > 2, "rounds", timeout_s=5, every_s=0.01)
    assert running.models.renewed > 2
    assert running.end() < 2.0
    assert running.made[0].left == 1
    assert running.view.done[0] == "start"
    assert running.view.done[-1] == "stop"
    assert running.view.kept[-1][1] == 0.0  # the last time every VPA is written
    assert {every_s for _, every_s in running.view.kept[:-1]} == {60.0}
    assert running.view.done.count("clear away") == 1


def test_nothing_runs_before_the_caches_are_synced_and_that_is_no_fault(running: Running) -> None:
    running.view.synced = False
    running.start()
    assert not running.service.ready
    assert running.service.healthy
    running.view.synced = True
    wait_until(lambda: running.rounds, "the first round", timeout_s=5, every_s=0.01)
    assert running.service.ready


def test_before_the_histories_are_known_nothing_is_written(running: Running) -> None:
    running.view.problem = Unreachable("no server")
    running.start()
    wait_until(lambda: running.view.done.count("forget") > 1, "two tries", timeout_s=5, every_s=0.01)
    assert running.rounds == 0
    running.end()
    assert running.view.kept == []
    assert running.made == []


def test_later_only_those_wait_whose_histories_are_not_known(running: Running) -> None:
    """The view does not name them; the others' rounds go on."""
    running.start()
    wait_until(lambda: running.rounds, "a round", timeout_s=5, every_s=0.01)
    running.view.problem = Unreachable("no server")
    before = running.rounds
    wait_until(lambda: running.rounds > before + 2, "more rounds", timeout_s=5, every_s=0.01)


def test_who_does_not_lead_does_nothing_and_is_healthy(running: Running) -> None:
    running.leads = False
    running.start()
    wait_until(lambda: running.view.done, "the start", timeout_s=5, every_s=0.01)
    assert running.service.healthy
    running.end()
    assert running.rounds == 0
    assert running.view.kept == []


def test_who_leads_again_begins_with_what_stands_in_the_cluster(running: Running) -> None:
    running.start()
    wait_until(lambda: running.rounds, "a round", timeout_s=5, every_s=0.01)
    running.next, first = Rounds(), running.next
    running.leads = False
    wait_until(lambda: running.service._recommender is None, "it to let go", timeout_s=5, every_s=0.01)
    running.leads = True
    wait_until(lambda: running.next.begun, "rounds of a new recommender", timeout_s=5, every_s=0.01)
    assert running.made == [first, running.next]
    assert running.view.done.count("forget") == 2
    running.leads = False
    running.end()
    assert running.next.left == 0  # another leads: its values are not ours to replace


def test_who_does_not_lead_any_more_does_not_go_on_telling_what_was_so(running: Running) -> None:
    """Alerts go by the largest of what the replicas tell."""
    running.next.engine.rails_acting = lambda: {"room": 1}
    running.models.refusal = Refusal("it is damaged", 0.0)
    running.view.unreadable = 3
    running.start()

    def told(name: str, **labels: str) -> float | None:
        return running.registry.get_sample_value(f"phasewise_{name}", labels)

    wait_until(lambda: told("guard_rails", rail="room"), "a round", timeout_s=5, every_s=0.01)
    assert (told("model_refused"), told("unreadable_objects"), told("lead_time_seconds")) == (1, 3, 85)
    running.leads = False
    wait_until(lambda: running.service._recommender is None, "it to let go", timeout_s=5, every_s=0.01)
    assert told("guard_rails", rail="room") is told("vpas", state="silent") is None
    assert (told("model_refused"), told("unreadable_objects"), told("lead_time_seconds")) == (0, 0, 0)


def test_stuck_rounds_are_told(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "MIN_UNHEALTHY_S", 0.05)
    running.next.go_on.clear()
    running.start()
    wait_until(lambda: running.rounds, "the round", timeout_s=5, every_s=0.01)
    wait_until(lambda: not running.service.healthy, "it to be told", timeout_s=5, every_s=0.01)
    assert running.service.ready
    running.next.go_on.set()
    wait_until(lambda: running.service.healthy, "it to be well again", timeout_s=5, every_s=0.01)


def test_a_round_that_hangs_does_not_keep_the_process_from_ending(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "EXIT_DEADLINE_S", 0.3)
    running.next.go_on.clear()
    running.start()
    wait_until(lambda: running.rounds, "the round", timeout_s=5, every_s=0.01)
    assert running.end() < 2.0
    assert running.error is None
    assert running.next.left == 0


def test_the_word_to_stop_bounds_all_requests_first_those_of_the_round_then_those_of_the_end(running: Running) -> None:
    running.start()
    wait_until(lambda: running.rounds, "a round", timeout_s=5, every_s=0.01)
    began_s = time.monotonic()
    running.end()
    first_s, then_s = (until_s - began_s for until_s in running.view.until_s)
    assert first_s == pytest.approx(under_test.ROUND_DEADLINE_S, abs=0.5)
    assert then_s == pytest.approx(under_test.VALUES_DEADLINE_S, abs=0.5)
    assert under_test.ROUND_DEADLINE_S < under_test.VALUES_DEADLINE_S < under_test.EXIT_DEADLINE_S < 8.5


def test_what_nobody_foresaw_ends_the_process_with_its_error(running: Running) -> None:
    running.next.error = Misuse("this model knows no demand")
    running.start()
    running.thread.join(5.0)
    assert str(running.error) == "this model knows no demand"


def test_a_problem_is_logged_when_it_comes_and_when_it_goes(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    service = running.service
    with caplog.at_level("INFO"):
        for problems in ({"ns/a": "broken"}, {"ns/a": "broken"}, {"ns/a": "worse"}, {}, {}):
            service._log_problems(Report(problems=problems))
    assert [record.getMessage() for record in caplog.records] == ["ns/a: broken", "ns/a: worse", "ns/a: resolved"]
    assert caplog.records[0].about == "ns/a"


def test_each_round_looks_at_who_has_had_no_recommendation_for_long(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "UNSERVED_AFTER_S", 0.0)
    state = VpaState(read_vpa(a_vpa()))
    running.next.vpas = {state.vpa.key: state}
    running.start()
    wait_until(lambda: running.registry.get_sample_value("phasewise_vpas_unserved") == 1.0, "it to be counted")


def test_of_a_container_that_the_pods_no_longer_have_no_checkpoint_is_written_so_that_it_ages() -> None:
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
    assert len(checkpoint_statuses(ours.engine, state, cluster.now_s)) == 2, "nobody to tell by"
