"""What the pages say of jobs, by hand: who is at risk, in which order, and what each has."""

from __future__ import annotations

import math
from typing import Any

import orjson
import pytest

from extender.dashboard.fleet import PAGE_ROWS, classes, fleet, warnings
from extender.dashboard.nodes import nodes
from extender.dashboard.pages import lengths
from recommender.cluster.objects.metadata import ObjectKey
from tests.extender.dashboard import scenes
from tests.extender.dashboard.scenes import GIB, NOON, a_job, seen


def test_a_job_is_its_vpa_its_profile_and_the_pods_that_the_profile_names() -> None:
    (row,) = fleet(a_job())["jobs"]
    assert (row["namespace"], row["name"], row["mode"], row["pods"]) == ("ml", "train", "InPlaceOrRecreate", 1)
    assert (row["phase"], row["next"], row["when"]) == ("1", "2 (80%)", "2026-05-01T12:00:40Z")
    assert row["cpuCores"] == {"use": 0.5, "request": 1.0, "limit": pytest.approx(math.nan, nan_ok=True), "target": 1.2}
    assert row["memoryBytes"] == {"use": GIB, "request": 2 * GIB, "limit": 4 * GIB, "target": 3 * GIB}
    assert row["risks"] == []


def test_vpas_of_other_recommenders_are_not_shown() -> None:
    other = scenes.vpa("other") | {"spec": {**scenes.vpa()["spec"], "recommenders": []}}
    assert [job["name"] for job in fleet(seen([scenes.vpa(), other]))["jobs"]] == ["train"]


KILL = {"lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": NOON}}, "restartCount": 1}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room"}


def killed() -> Any:
    return scenes.pod(**KILL)


def waiting() -> Any:
    made = scenes.pod()
    made["status"]["conditions"] = [DEFERRED]
    return made


@pytest.mark.parametrize(
    ("pod", "use", "said"),
    [
        (killed(), scenes.use(), "train-0/main was killed for memory 1m ago"),
        (scenes.pod(), scenes.use(memory_gib=3.8), "train-0/main uses 95% of its memory limit"),
        (scenes.pod(), scenes.use(memory_gib=2.5), "train-0/main uses more memory than it requests"),
        (scenes.pod(), scenes.use(cpu_cores=1.1), "train-0/main uses more CPU than it requests"),
        (waiting(), scenes.use(), "the resize of train-0/main waits for room: Deferred: no room"),
    ],
)
def test_what_goes_wrong_is_said(pod: Any, use: Any, said: str) -> None:
    told = fleet(seen([scenes.vpa()], [scenes.profile()], [pod], usage=dict([use])))
    assert told["jobs"][0]["risks"][0] == said
    assert told["atRisk"] == 1


def test_the_worst_comes_first_whatever_its_name() -> None:
    pods = [scenes.pod("a-0"), scenes.pod("b-0", **KILL), scenes.pod("c-0")]
    profiles = [scenes.profile(name, pods=[f"{name}-0"]) for name in "abc"]
    usage = dict([scenes.use(name="c-0", cpu_cores=3.0)])
    told = fleet(seen([scenes.vpa(name) for name in "abc"], profiles, pods, usage=usage))
    assert [job["name"] for job in told["jobs"]] == ["b", "c", "a"]


def test_conditions_are_warnings_unless_they_are_good_news() -> None:
    told = [
        {"type": "RecommendationProvided", "status": "True"},
        {"type": "LowConfidence", "status": "True", "message": "main: few samples"},
        {"type": "DisruptiveUpdates", "status": "False"},
    ]
    refused = [{"type": "ModelRefused", "status": "True", "message": "bundled goes on"}]
    one = seen([scenes.vpa(conditions=told)], [scenes.profile(conditions=refused)])
    assert [each["words"] for each in warnings(one)["warnings"]] == [
        "ModelRefused: bundled goes on",
        "LowConfidence: main: few samples",
    ]


def test_ten_thousand_containers_come_in_pages_of_a_hundred_jobs() -> None:
    many = [scenes.vpa(f"job-{number}") for number in range(250)]
    told = fleet(seen(many), page=3)
    assert (told["pages"], told["count"], len(told["jobs"])) == (3, 250, 50)
    assert len(fleet(seen(many))["jobs"]) == PAGE_ROWS
    assert fleet(seen(many), page=99)["page"] == 3
    assert [job["name"] for job in fleet(seen(many), "ml 249")["jobs"]] == ["job-249"]


def test_what_is_saved_is_what_is_requested_less_than_was_declared() -> None:
    """4 cores and 8 GiB were declared, 1 and 2 are in force."""
    told = fleet(a_job())
    (row,) = told["jobs"]
    assert row["saved"] == told["saved"] == {"cpuCores": 3.0, "memoryBytes": 6 * GIB}
    unknown = fleet(seen([scenes.vpa()]))["saved"]
    assert all(math.isnan(amount) for amount in unknown.values())


@pytest.mark.parametrize(
    ("kind", "saved_at", "cpu_cores", "memory_gib"),
    [
        ("Job", None, 3.0 - 0.5, 6.0 - 1.0),
        ("Job", "2026-05-01T11:54:00Z", 3.0 - 0.1, 6.0 - 0.2),
        ("Job", "2026-05-01T12:00:30Z", 3.0 - 0.5, 6.0 - 1.0),
        ("Deployment", None, 3.0, 6.0),
    ],
    ids=["since its start", "since its checkpoint", "a checkpoint of later does not help", "what serves loses nothing"],
)
def test_what_kills_lost_is_taken_off(kind: str, saved_at: str | None, cpu_cores: float, memory_gib: float) -> None:
    """1 core and 2 GiB for half an hour, or the six minutes since its checkpoint, are done again."""
    vpa, profile, pod = scenes.vpa(), scenes.profile(), killed()
    vpa["spec"]["targetRef"]["kind"] = kind
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["startedAt"] = "2026-05-01T11:30:00Z"
    if saved_at is not None:
        profile["status"]["pods"][0]["checkpointAt"] = saved_at
    saved = fleet(seen([vpa], [profile], [pod]))["saved"]
    assert saved == {"cpuCores": pytest.approx(cpu_cores), "memoryBytes": pytest.approx(memory_gib * GIB)}
    later = fleet(seen([vpa], [profile], [pod], now_s=scenes.NOON_S + 3600.0))["saved"]
    assert later == {"cpuCores": 3.0, "memoryBytes": 6 * GIB}, "an hour later it is no news"


def test_a_node_is_forecast_by_profiles_and_by_requests_where_there_is_none() -> None:
    stranger = scenes.pod("stranger")
    (row,) = nodes(seen([scenes.vpa()], [scenes.profile()], [scenes.pod(), stranger], [scenes.node()]))["nodes"]
    assert row["share"]["requests"] == [2.0 / 4.0, 4.0 / 16.0]
    assert row["share"]["forecast"] == [(1.5 + 1.0) / 4.0, (3.0 + 2.0) / 16.0]
    assert (row["pods"], row["ours"]) == (2, 1)


def test_what_a_pod_requests_beside_its_containers_counts_on_its_node() -> None:
    pod = scenes.pod()
    pod["spec"]["overhead"] = {"cpu": "500m", "memory": "1Gi"}
    (row,) = nodes(seen([scenes.vpa()], [scenes.profile()], [pod], [scenes.node()]))["nodes"]
    assert row["share"]["requests"] == [1.5 / 4.0, 3.0 / 16.0]
    assert row["share"]["forecast"] == [(1.5 + 0.5) / 4.0, (3.0 + 1.0) / 16.0]


def test_a_peak_is_told_by_the_age_of_the_container() -> None:
    """Started a minute ago, in the second of its class's three minutes: two cores now."""
    (row,) = nodes(a_job())["nodes"]
    assert row["peaks"] == [{"pod": "train-0", "namespace": "ml", "inSeconds": 0.0, "cpuCores": 2.0}]
    (young,) = nodes(a_job(now_s=scenes.NOON_S))["nodes"]
    assert young["peaks"][0]["inSeconds"] == 60.0


def test_pods_that_no_node_takes_are_told_with_the_schedulers_words_the_longest_waiting_first() -> None:
    def waiting(name: str, at: str, node: str = "") -> Any:
        refusal = {
            "type": "PodScheduled",
            "status": "False",
            "message": f"no node for {name}",
            "lastTransitionTime": at,
        }
        return scenes.pod(name, node=node, phase="Pending") | {"status": {"phase": "Pending", "conditions": [refusal]}}

    pods = [waiting("b", "2026-05-01T12:00:30Z"), waiting("a", scenes.NOON), waiting("c", scenes.NOON, node="n0")]
    told = nodes(seen(pods=pods))["refused"]
    assert [(one["pod"], one["since"] - scenes.NOON_S, one["words"]) for one in told] == [
        ("a", 0.0, "no node for a"),
        ("b", 30.0, "no node for b"),
    ]


def test_gangs_that_wait_are_counted_by_name() -> None:
    members = [scenes.pod(f"g-{number}", node="") for number in range(3)]
    for member in members:
        member["metadata"]["labels"] = {"phasewise.dev/gang": "g"}
    assert [(gang["gang"], gang["waiting"]) for gang in nodes(seen(pods=members))["gangs"]] == [("g", 3)]


def test_a_class_tells_its_peaks_and_the_chance_that_the_next_run_is_above() -> None:
    (one,) = classes(seen(profiles=[scenes.class_profile()]))["classes"]
    (main,) = one["containers"]
    assert (one["name"], main["runs"], main["peakCpuCores"], main["peakMemoryBytes"]) == ("ml.train", 3, 2.0, 2.5 * GIB)
    assert main["peaksMemoryBytes"] == [GIB, 2 * GIB, 2.5 * GIB]
    assert main["chanceAbovePeak"] == 0.25


def test_a_bar_is_as_long_as_the_largest_and_has_no_part_of_what_is_not_known() -> None:
    drawn = lengths({"use": 0.5, "request": 1.0, "limit": 2.0, "target": math.nan})
    assert drawn == {"use": 30.0, "request": 60.0, "limit": 120.0}
    assert lengths(dict.fromkeys(("use", "request", "limit", "target"), 0.0))["limit"] == 0.0


def test_all_of_it_is_json_whatever_is_not_known() -> None:
    for told in (fleet(a_job()), nodes(a_job()), classes(a_job()), warnings(seen([scenes.vpa()]))):
        assert orjson.loads(orjson.dumps(told))
    assert ObjectKey("ml", "train") in a_job().jobs
