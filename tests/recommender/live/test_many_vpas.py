"""Many VPAs: what is written in a round, and which safe values are published when time is short."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recommender.base.records import MEMORY, ContainerKey, FloatArray, Sample
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.vpa import Vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.engine.keys import Group
from recommender.live.outside.model_source import Refusal
from recommender.live.round import Recommender
from recommender.live.writing.profile import SAVE_STATE_UP_TO
from recommender.live.writing.publisher import WriterPool, by_urgency
from recommender.policies.histogram import Estimate
from tests.fakes.records import GIB, FakeView, a_pod, a_vpa, recommender

VPAS = 30


class Many(FakeView):
    """Thirty VPAs with a pod each, and all writes in order."""

    def __init__(self) -> None:
        super().__init__()
        for name in self.names():
            self.raw[name] = a_vpa(name)
            self.pods[name] = [a_pod(f"{name}-1", cpu="1", memory="512Mi")]
        self.sent: list[tuple[str, str]] = []
        self.unreachable_after: int | None = None
        self.no_profiles = False
        self.writing, self.most_at_a_time, self.lock = 0, 0, threading.Lock()
        self.barrier = threading.Barrier(1)

    @staticmethod
    def names() -> list[str]:
        return [f"job{number:02d}" for number in range(VPAS)]

    def publish(self, vpa: Vpa, *args: Any) -> None:
        self.barrier.wait(5.0)
        with self.lock:
            if self.unreachable_after is not None and len(self.sent) >= self.unreachable_after:
                raise Unreachable("not sent, the process is shutting down")
            self.sent.append(("status", vpa.key.name))
        super().publish(vpa, *args)

    def write_profile(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        if self.no_profiles:
            raise Unreachable("not sent, the process is shutting down")
        self.sent.append(("profile", vpa.key.name))
        super().write_profile(vpa, profile)

    def written(self, kind: str) -> list[str]:
        return [name for what, name in self.sent if what == kind]


@pytest.fixture
def many() -> Many:
    return Many()


@pytest.fixture
def ours(many: Many) -> Recommender:
    """After forty rounds; the writes until then are forgotten."""
    made = recommender(many)
    run_rounds(made, many, 40)
    many.sent.clear()
    return made


def run_rounds(ours: Recommender, many: Many, rounds: int, cpu_cores: float = 0.5, memory_gib: float = 0.25) -> None:
    for _ in range(rounds):
        many.now_s += 1.0
        for name in many.names():
            many.used.append((ContainerKey("ns", f"{name}-1", "main"), Sample(many.now_s, cpu_cores, memory_gib * GIB)))
        ours.run()


def published(ours: Recommender, name: str) -> FloatArray:
    """The published target of a VPA: the engine's own array, which may be changed."""
    engine = ours.engine
    return engine.groups.arrays.published[engine.groups.slots[Group("ns", name, "main")]]


def publish_almost_nothing(ours: Recommender, name: str) -> None:
    published(ours, name)[:] = 0.01, 1.0


def safe_value(ours: Recommender, name: str) -> Estimate:
    found = ours.engine.safe_value(Group("ns", name, "main"), ours.clock())
    assert found is not None
    return found


def test_a_few_profiles_are_written_in_each_round_and_all_in_turn(many: Many) -> None:
    ours = recommender(many, profiles_per_round=7)
    seen: set[str] = set()
    for _ in range(5):
        many.sent.clear()
        run_rounds(ours, many, 1)
        profiles = many.written("profile")
        assert len(profiles) <= 7
        assert not seen & set(profiles[: VPAS - len(seen)]), "none is written twice before all were written once"
        seen |= set(profiles)
    assert seen == set(many.names())


def test_with_many_vpas_a_profile_has_its_saved_state_only_once_a_cycle(many: Many) -> None:
    ours = recommender(many)
    run_rounds(ours, many, 40)  # a cycle has 30 samples
    assert VPAS > SAVE_STATE_UP_TO
    saved_states = {name: sum("state" in profile for profile in written) for name, written in many.profiles.items()}
    assert set(saved_states.values()) <= {2, 3, 4}  # at first, at the first decision, and once a cycle
    many.profiles.clear()
    ours.profiles.refusal = Refusal("it is damaged", many.now_s)
    run_rounds(ours, many, 1)
    assert len(many.profiles) == VPAS
    without = [name for name, written in many.profiles.items() if "state" not in written[-1]]
    assert len(without) > VPAS / 2


def test_an_unchanged_status_is_not_written_again(many: Many) -> None:
    ours = recommender(many)
    run_rounds(ours, many, 60)
    many.sent.clear()
    run_rounds(ours, many, 1)
    assert many.written("status") == []
    many.raw["job03"]["metadata"]["resourceVersion"] = "7"  # another write, but not to its status
    run_rounds(ours, many, 1)
    assert many.written("status") == []
    many.raw["job03"] |= {"status": {}}
    many.raw["job03"]["metadata"]["resourceVersion"] = "8"
    run_rounds(ours, many, 1)
    assert many.written("status") == ["job03"]


def test_a_recommendation_changes_only_with_the_target(many: Many) -> None:
    """Not even by rounding in the round after: the band of a target is that of its published value."""
    for name in many.names():
        many.pods[name] = [a_pod(f"{name}-1", cpu="4", memory="2Gi")]
    ours = recommender(many)
    run_rounds(ours, many, 40, cpu_cores=0.3003, memory_gib=0.0901)
    changed = 0
    for cpu_cores in [0.3003] * 35 + [1.7003] * 35 + [3.5007] * 35:
        before = {name: raw["status"]["recommendation"] for name, raw in many.raw.items()}
        many.now_s += 1.0
        sample = Sample(many.now_s, cpu_cores, 0.3001 * cpu_cores * GIB)
        many.used += [(ContainerKey("ns", f"{name}-1", "main"), sample) for name in many.names()]
        published = ours.run().published
        changes = sum(raw["status"]["recommendation"] != before[name] for name, raw in many.raw.items())
        assert changes == published
        changed += changes
    assert changed > VPAS


def test_several_statuses_are_written_concurrently(many: Many) -> None:
    ours = recommender(many, writers=5)
    many.barrier = threading.Barrier(5)  # no write returns before five have begun
    run_rounds(ours, many, 1)
    assert len(many.written("status")) == VPAS


def test_a_status_that_cannot_be_written_is_retried_in_the_next_round(many: Many) -> None:
    ours = recommender(many, writers=4)
    many.unreachable_after = 10
    run_rounds(ours, many, 1)
    assert len(many.written("status")) == 10
    many.unreachable_after = None
    run_rounds(ours, many, 1)
    assert set(many.written("status")) == set(many.names())


def test_with_little_time_the_most_urgent_safe_values_are_published_and_the_rest_counted(
    many: Many, ours: Recommender
) -> None:
    for number, name in enumerate(reversed(many.names())):  # the last are farthest below what was used
        published(ours, name)[MEMORY] = 0.25 * GIB * (1.0 - number / (2 * VPAS))
    unapplied = next(state for key, state in ours.vpas.items() if key.name == "job00")
    unapplied.vpa = replace(unapplied.vpa, update_mode="Off")  # not applied, so not urgent
    many.sent.clear()
    many.unreachable_after = 12
    report = ours.publish_safe_values(profiles_until_s=many.now_s - 1.0)
    assert many.written("status") == many.names()[1:13]
    assert report.unwritten_statuses == VPAS - 12
    assert report.unwritten_profiles > 0 and many.written("profile") == []


def test_targets_that_are_safe_or_nearly_so_are_not_written(many: Many, ours: Recommender) -> None:
    for number, name in enumerate(many.names()):
        publish_almost_nothing(ours, name)  # a safe value is never less than the published one
        shares = ((1.0, 1.0), (0.96, 0.99), (0.9, 1.0), (1.0, 0.9))[number % 4]
        published(ours, name)[:] = safe_value(ours, name).target * shares
    many.sent.clear()
    report = ours.publish_safe_values(profiles_until_s=many.now_s - 1.0)
    assert sorted(many.written("status")) == sorted(many.names()[2::4] + many.names()[3::4])
    assert report.unwritten_statuses == 0


def test_the_largest_shortage_comes_first_and_memory_counts_more_than_cpu(many: Many) -> None:
    ours = recommender(many)
    run_rounds(ours, many, 40, cpu_cores=1.0, memory_gib=1.0)
    targets = {"job04": (1.0, 0.5), "job05": (1.0, 0.8), "job06": (0.1, 1.0), "job07": (1.1, 0.99), "job08": (0.1, 0.4)}
    for key, state in ours.vpas.items():
        cpu_cores, memory_gib = targets.get(key.name, (2.0, 2.0))
        published(ours, key.name)[:] = cpu_cores, memory_gib * GIB
        if key.name == "job08":
            state.vpa = replace(state.vpa, update_mode="Off")  # not applied, so not urgent
    ordered = by_urgency(ours.vpas.values(), ours.engine)
    assert [one.vpa.key.name for one in ordered][:4] == ["job04", "job05", "job06", "job07"]
    assert ordered[-1].vpa.key.name == "job08"


def test_a_safe_value_has_no_amount_of_a_resource_that_a_vpa_does_not_control(many: Many) -> None:
    for raw in many.raw.values():
        raw["spec"]["resourcePolicy"] = {"containerPolicies": [{"containerName": "*", "controlledResources": ["cpu"]}]}
    ours = recommender(many)
    run_rounds(ours, many, 40)
    publish_almost_nothing(ours, "job07")
    ours.publish_safe_values()
    (entry,) = many.raw["job07"]["status"]["recommendation"]["containerRecommendations"]
    assert {name: set(amounts) for name, amounts in entry.items() if name != "containerName"} == {
        bound: {"cpu"} for bound in ("lowerBound", "target", "upperBound", "uncappedTarget")
    }


def test_a_kill_that_no_profile_has_yet_is_written_before_everything_else(many: Many, ours: Recommender) -> None:
    for name in many.names():
        publish_almost_nothing(ours, name)
    many.killed.append(OomObservation(many.pods["job07"][0].key, "main", many.now_s, GIB))
    many.no_profiles = True
    run_rounds(ours, many, 1)
    many.no_profiles = False
    many.sent.clear()
    ours.publish_safe_values()
    assert many.sent[0] == ("profile", "job07")
    assert [what for what, _ in many.sent[1 : VPAS + 1]] == ["status"] * VPAS


def test_on_shutdown_no_further_step_begins_and_safe_values_are_still_published(many: Many, ours: Recommender) -> None:
    for name in many.names():
        publish_almost_nothing(ours, name)
    many.sent.clear()
    ours.stopping = True
    assert ours.run().step_s == {}
    assert many.sent == []
    ours.publish_safe_values()
    assert len(many.written("status")) == VPAS


def test_with_no_time_left_nothing_is_written_and_everything_is_counted(many: Many, ours: Recommender) -> None:
    report = ours.publish_safe_values(values_until_s=many.now_s, profiles_until_s=many.now_s)
    assert many.sent == []
    assert (report.unwritten_statuses, report.unwritten_profiles) == (VPAS, VPAS)


def test_profiles_that_are_written_slowly_are_written_until_the_time_is_over_and_the_rest_counted(
    many: Many, ours: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_slowly(*_: object) -> None:
        many.sent.append(("profile", ""))
        many.now_s += 1.0

    monkeypatch.setattr(many, "write_profile", write_slowly)
    report = ours.publish_safe_values(profiles_until_s=many.now_s + 2.5)
    assert (len(many.written("profile")), report.unwritten_profiles) == (3, VPAS - 3)


def test_a_refused_model_is_in_every_profile_until_a_good_one_is_adopted(many: Many, ours: Recommender) -> None:
    ours.profiles.refusal = Refusal("the folder is damaged", many.now_s)
    run_rounds(ours, many, 1)
    (conditions,) = {str(profiles[-1]["conditions"]) for profiles in many.profiles.values()}
    assert "ModelRefused" in conditions and "bundled stays in use: the folder is damaged" in conditions
    many.profiles.clear()
    run_rounds(ours, many, 1)
    assert len(many.profiles) < VPAS / 2, "each is written once"
    ours.profiles.refusal = None
    run_rounds(ours, many, 1)
    assert all("conditions" not in profiles[-1] for profiles in many.profiles.values())
    assert len(many.profiles) == VPAS


def test_the_engine_forgets_the_groups_of_a_vpa_that_is_gone(many: Many, ours: Recommender) -> None:
    del many.raw["job07"]
    run_rounds(ours, many, 1)
    assert {group.vpa for group in ours.engine.groups.slots} == set(many.names()) - {"job07"}


def test_nothing_is_kept_of_pods_without_a_vpa(many: Many) -> None:
    """As in the default recommender with --memory-saver."""
    ours = recommender(many)
    for _ in range(3):
        many.used += [(ContainerKey("ns", f"bystander-{n}", "main"), Sample(many.now_s, 0.5, GIB)) for n in range(50)]
        run_rounds(ours, many, 1)
    assert {instance.pod_uid for instance in ours.engine.fleet.members} == {f"uid-{name}-1" for name in many.names()}
    assert len(ours.engine.fleet.rows) < 50


def test_the_writer_pool_returns_the_outcome_of_each_write_in_order() -> None:
    def write(number: int) -> int:
        if number == 2:
            raise Unreachable("no")
        return 10 * number

    for threads in (1, 3):
        written = WriterPool(threads).run([1, 2, 3], write)
        assert [number for number, _ in written] == [1, 2, 3]
        first, second, third = (outcome for _, outcome in written)
        assert (first(), third()) == (10, 30)
        with pytest.raises(Unreachable):
            second()
