"""Whole rounds against a cluster of plain records.

The view here leaves out everything but the seam: no API, no watches, no clock of its own. The real cluster is in the
tests that need one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from recommender import model as models
from recommender.cluster.errors import Unreachable
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.pair import Pair
from recommender.cluster.objects.pods import Pod, read_pod
from recommender.cluster.objects.quantities import parse_quantity
from recommender.cluster.objects.vpa import Vpa, read_vpa
from recommender.cluster.usage.oom import OomObservation
from recommender.cluster.vpas.status import Condition, status_of
from recommender.live.advice.recommend import Options
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.member import Sample
from recommender.live.round import Recommender
from recommender.live.tally import Report
from recommender.live.view.view import Place, Selection
from recommender.policies.constraints import SharedLimits
from recommender.policies.histogram import HistogramSession
from recommender.records import UNKNOWN_PHASE, ContainerRecommendation

MODEL = models.load(models.BUNDLED)
GIB = 2.0**30


def a_vpa(name: str = "job", **spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "batch/v1", "kind": "Job", "name": name}
    return {
        "metadata": {"namespace": "ns", "name": name, "uid": f"vpa-{name}", "generation": 3, "resourceVersion": "1"},
        "spec": {"targetRef": target, "recommenders": [{"name": "phasewise"}], **spec},
    }


def a_pod(name: str, cpu: str = "2", memory: str = "4Gi", containers: Sequence[str] = ("main",)) -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    return read_pod(
        {
            "metadata": {"namespace": "ns", "name": name, "uid": f"uid-{name}"},
            "spec": {"containers": [{"name": c, "image": "i", "resources": resources} for c in containers]},
            "status": {"phase": "Running"},
        }
    )


class Records:
    """A cluster made of records that a test changes as it likes."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.raw: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, list[Pod]] = {}
        self.problems: dict[str, str] = {}
        self.used: list[tuple[Place, Sample]] = []
        self.killed: list[OomObservation] = []
        self.largest: list[Pair] = []
        self.past: dict[str, HistogramSession] = {}
        self.broken: set[str] = set()
        self.writes: list[str] = []
        self.profiles: dict[str, list[Mapping[str, Any]]] = {}
        self.class_profiles: dict[ObjectKey, Mapping[str, Any]] = {}

    def vpas(self) -> Sequence[Vpa]:
        return [read_vpa(raw) for raw in self.raw.values()]

    def select(self, vpa: Vpa) -> Selection:
        if vpa.key.name in self.broken:
            raise Unreachable("the API server does not answer")
        return Selection(self.pods.get(vpa.key.name, []), {}, self.problems.get(vpa.key.name))

    def samples(self) -> Iterable[tuple[Place, Sample]]:
        taken, self.used = self.used, []
        return taken

    def kills(self) -> Sequence[OomObservation]:
        taken, self.killed = self.killed, []
        return taken

    def room(self, pods: Sequence[Pod]) -> Sequence[Pair]:
        return self.largest

    def publish(
        self,
        vpa: Vpa,
        recommendations: Sequence[ContainerRecommendation],
        conditions: Mapping[str, Condition | None],
    ) -> None:
        self.raw[vpa.key.name]["status"] = status_of(vpa, recommendations, conditions, self.now_s)
        self.writes.append(vpa.key.name)

    def stands(self, vpa: Vpa) -> bool:
        return False

    def show(self, vpa: Vpa, profile: Mapping[str, Any]) -> None:
        self.profiles.setdefault(vpa.key.name, []).append(profile)

    def remembered(self, vpa: ObjectKey) -> Collection[str]:
        return self.past

    def history(self, vpa: ObjectKey, container: str) -> HistogramSession | None:
        return self.past.get(container)

    def kept(self, vpa: Vpa) -> str | None:
        profiles = self.profiles.get(vpa.key.name, [])
        return profiles[-1]["state"] if profiles else None

    def classes(self) -> Mapping[ObjectKey, tuple[str, float]]:
        return {key: (status["state"], self.now_s) for key, status in self.class_profiles.items()}

    def show_class(self, key: ObjectKey, profile: Mapping[str, Any]) -> None:
        self.class_profiles[key] = profile

    def drop_class(self, key: ObjectKey) -> None:
        self.class_profiles.pop(key, None)


@pytest.fixture
def cluster() -> Records:
    records = Records()
    records.raw["job"] = a_vpa()
    records.pods["job"] = [a_pod("job-1")]
    return records


def recommender(cluster: Records, **more: Any) -> Recommender:
    return Recommender(
        cluster,
        lambda *asks: Fleet(MODEL, 1.0, 30, *asks),
        Options(),
        SharedLimits(),
        clock=lambda: cluster.now_s,
        stopwatch=lambda: cluster.now_s,
        **more,
    )


def use(cluster: Records, pod: str, cpu_cores: float, memory_gib: float, container: str = "main") -> None:
    cluster.used.append((Place("ns", pod, container), Sample(cluster.now_s, cpu_cores, memory_gib * GIB)))


def rounds(ours: Recommender, cluster: Records, n: int, cpu_cores: float = 0.5, memory_gib: float = 1.0) -> Report:
    """`n` rounds a second apart, in which every pod of `job` uses the same."""
    report = Report()
    for _ in range(n):
        cluster.now_s += 1.0
        for pod in cluster.pods["job"]:
            use(cluster, pod.key.name, cpu_cores, memory_gib)
        report = ours.run()
    return report


def target_of(cluster: Records, name: str = "job", container: str = "main") -> tuple[float, float]:
    """Cores and GiB."""
    status = read_vpa(cluster.raw[name]).status
    entries = {e["containerName"]: e for e in status["recommendation"]["containerRecommendations"]}
    target = entries[container]["target"]
    return parse_quantity(target["cpu"]), parse_quantity(target["memory"]) / GIB


def conditions_of(cluster: Records, name: str = "job") -> dict[str, str]:
    return {c["type"]: c["status"] for c in cluster.raw[name]["status"]["conditions"]}


def test_a_container_that_uses_the_same_all_the_time_gets_about_that(cluster: Records) -> None:
    report = rounds(recommender(cluster), cluster, 40)
    cpu_cores, memory_gib = target_of(cluster)
    assert 0.5 <= cpu_cores * 1.05 < 1.0
    assert memory_gib == 4.0  # what the pod has: it falls late
    assert not report.problems
    assert conditions_of(cluster) == {"RecommendationProvided": "True"}


def test_memory_falls_in_steps_once_less_was_wanted_for_long_and_never_below_what_is_in_use(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    seen = []
    for _ in range(12):
        cluster.now_s += 590.0
        rounds(ours, cluster, 15)
        seen.append(target_of(cluster)[1])
    assert seen[0] == pytest.approx(3.2, rel=1e-3)
    assert seen == sorted(seen, reverse=True)
    assert 1.1 <= seen[-1] < 2.0


def test_holding_still_the_target_does_not_move(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    before = target_of(cluster)
    report = rounds(ours, cluster, 10)
    assert target_of(cluster) == before
    assert report.published == 0


def test_before_the_first_samples_nothing_that_stands_is_wiped(cluster: Records) -> None:
    standing = ContainerRecommendation("main", (3.0, 5 * GIB), (3.0, 5 * GIB), (3.0, 5 * GIB), (3.0, 5 * GIB))
    cluster.raw["job"]["status"] = status_of(read_vpa(cluster.raw["job"]), [standing], {}, 0.0)
    recommender(cluster).run()
    assert target_of(cluster) == (3.0, 5.0)


def test_without_any_sample_nothing_is_recommended(cluster: Records) -> None:
    recommender(cluster).run()
    assert cluster.raw["job"]["status"]["recommendation"] == {}
    assert conditions_of(cluster) == {"RecommendationProvided": "False"}


def test_pods_that_do_not_exist_are_said_not_to(cluster: Records) -> None:
    cluster.pods["job"] = []
    recommender(cluster).run()
    assert conditions_of(cluster) == {"NoPodsMatched": "True", "RecommendationProvided": "False"}


def test_a_target_that_cannot_be_read_is_reported_and_what_stands_is_kept(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    before = target_of(cluster)
    cluster.problems["job"], cluster.pods["job"] = "Cannot read targetRef", []
    ours.run()
    assert target_of(cluster) == before
    assert conditions_of(cluster)["ConfigUnsupported"] == "True"


def test_one_broken_vpa_does_not_stop_the_others(cluster: Records) -> None:
    cluster.raw["broken"], cluster.broken = a_vpa("broken"), {"broken"}
    report = rounds(recommender(cluster), cluster, 40)
    assert target_of(cluster)[0] > 0
    assert report.problems == {"ns/broken": "the API server does not answer"}


def test_while_the_pods_of_a_vpa_cannot_be_told_its_containers_go_on(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    before, member = target_of(cluster), next(iter(ours.fleet))
    cluster.broken = {"job"}
    report = rounds(ours, cluster, 5)
    assert report.problems == {"ns/job": "the API server does not answer"}
    assert next(iter(ours.fleet)) is member
    assert ours.fleet.counts.samples[member.slot] == 45
    assert target_of(cluster) == before


def test_pods_in_different_phases_get_what_the_most_demanding_one_needs(cluster: Records) -> None:
    cluster.pods["job"] = [a_pod("job-1"), a_pod("job-2")]
    ours = recommender(cluster)
    for _ in range(40):
        cluster.now_s += 1.0
        use(cluster, "job-1", 0.2, 1.0)
        use(cluster, "job-2", 1.5, 3.0)
        ours.run()
    cpu_cores, memory_gib = target_of(cluster)
    assert cpu_cores * 1.05 >= 1.5
    assert memory_gib >= 3.3


def test_a_kill_for_memory_raises_the_target_at_once(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(ours, cluster, 1)
    assert target_of(cluster)[1] == pytest.approx(4.8, rel=1e-6)


def test_the_users_limits_are_kept_and_the_uncapped_target_still_tells(cluster: Records) -> None:
    policy = {"containerName": "*", "maxAllowed": {"cpu": "300m", "memory": "1Gi"}}
    cluster.raw["job"] = a_vpa(resourcePolicy={"containerPolicies": [policy]})
    rounds(recommender(cluster), cluster, 40)
    assert target_of(cluster) == (0.3, 1.0)
    entry = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"][0]
    assert entry["uncappedTarget"]["memory"] != "1Gi"


def test_a_container_with_mode_off_gets_nothing_and_what_stood_goes(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    spec = {"containerPolicies": [{"containerName": "main", "mode": "Off"}]}
    cluster.raw["job"]["spec"]["resourcePolicy"] = spec
    rounds(ours, cluster, 1)
    assert cluster.raw["job"]["status"]["recommendation"] == {}


def test_no_target_is_larger_than_the_largest_node(cluster: Records) -> None:
    cluster.largest = [(0.4, 0.5 * GIB), (0.2, 4 * GIB)]
    rounds(recommender(cluster), cluster, 40)
    cpu_cores, memory_gib = target_of(cluster)
    assert (cpu_cores <= 0.4 and memory_gib <= 0.5) or (cpu_cores <= 0.2 and memory_gib <= 4)


def test_in_an_unknown_phase_a_container_gets_what_the_default_recommender_says_once_there_is_history(
    cluster: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = recommender(cluster)
    monkeypatch.setattr(ours.fleet.tracker, "observe", lambda slots, _: np.full(len(slots), UNKNOWN_PHASE))
    rounds(ours, cluster, 60, cpu_cores=0.5, memory_gib=0.5)
    assert conditions_of(cluster)["LowConfidence"] == "True"
    assert target_of(cluster) == (2.0, 4.0)  # a minute of history takes nothing away
    book = ours.workloads[ObjectKey("ns", "job")].books["main"]
    monkeypatch.setattr(book.history, "confidence", lambda: 1.0)
    rounds(ours, cluster, 7, cpu_cores=0.5, memory_gib=0.5)  # what it said holds for a tenth of that minute
    cpu_cores, _ = target_of(cluster)
    assert cpu_cores == 0.587


def test_with_few_samples_the_bounds_are_so_wide_that_nobody_is_disturbed_for_a_guess(cluster: Records) -> None:
    rounds(recommender(cluster), cluster, 2, cpu_cores=0.01, memory_gib=0.1)
    entry = cluster.raw["job"]["status"]["recommendation"]["containerRecommendations"][0]
    lower, upper = (parse_quantity(entry[bound]["memory"]) for bound in ("lowerBound", "upperBound"))
    assert lower < 4 * GIB < upper  # what the pod has
    assert conditions_of(cluster)["LowConfidence"] == "True"


def test_the_profile_tells_what_is_seen_what_comes_and_why(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    profile = cluster.profiles["job"][-1]
    container = profile["containers"][0]
    member = next(iter(ours.fleet))
    assert (container["name"], container["phase"]) == ("main", member.phase)
    assert profile["phase"] == str(member.phase)
    assert sum(following["probability"] for following in container["next"]) <= 1.0 + 1e-9
    assert {following["phase"] for following in container["next"]} <= set(range(10)) - {member.phase}
    assert container["why"]["policy"] == "phase.proactive"
    assert container["why"]["forecastCpuCores"] > 0
    assert profile["pods"] == [{"name": "job-1", "uid": "uid-job-1", "container": "main", "phase": member.phase}]
    assert profile["cpu"].endswith("m")
    assert profile["memory"].endswith("Gi")


def test_the_profile_is_made_again_only_when_something_changed(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 60)
    before = len(cluster.profiles["job"])
    rounds(ours, cluster, 10)
    assert len(cluster.profiles["job"]) - before <= 1  # one decision may have been due
    assert before < 20


def test_the_profile_of_two_hundred_pods_is_bounded(cluster: Records) -> None:
    cluster.pods["job"] = [a_pod(f"job-{number}") for number in range(200)]
    rounds(recommender(cluster), cluster, 5)
    profile = cluster.profiles["job"][-1]
    assert len(profile["pods"]) == 64
    assert len(str(profile)) < 20_000


def test_a_pod_that_is_gone_is_forgotten_but_not_its_history(cluster: Records) -> None:
    ours = recommender(cluster)
    rounds(ours, cluster, 40)
    before = target_of(cluster)
    cluster.pods["job"] = []
    ours.run()
    assert not ours.fleet.members
    assert ours.workloads[ObjectKey("ns", "job")].books["main"].history.samples == 40
    assert math.isfinite(target_of(cluster)[0])
    assert target_of(cluster)[1] >= before[1] * 0.5


def test_history_of_a_checkpoint_is_what_a_newcomer_adds_to(cluster: Records) -> None:
    past = HistogramSession()
    past.observe_oom(cluster.now_s - 3600, 2 * GIB)
    cluster.past["main"] = past
    ours = recommender(cluster)
    rounds(ours, cluster, 5)
    assert ours.workloads[ObjectKey("ns", "job")].books["main"].history.past is past
    assert np.isfinite(target_of(cluster)).all()


def test_a_container_that_a_full_node_holds_at_its_request_is_given_more_until_it_uses_less_than_it_has(
    cluster: Records,
) -> None:
    ours, wanted, had = recommender(cluster), 1.0, 0.2
    for _ in range(60):
        cluster.pods["job"] = [a_pod("job-1", cpu=str(had))]
        rounds(ours, cluster, 1, cpu_cores=min(wanted, had))  # nothing is left over for it
        had = target_of(cluster)[0]
    assert had * 1.05 >= wanted
