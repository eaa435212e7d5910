"""The data of the pages, by worked examples: jobs and their risks, savings, nodes, classes and warnings."""

from __future__ import annotations

import math
from typing import Any

import pytest

from extender.dashboard.fleet import PAGE_ROWS, classes, fleet, nodes, warnings
from extender.dashboard.pages import lengths
from tests.extender.dashboard import scenes
from tests.extender.dashboard.scenes import GIB, NOON, a_job, view_of


def test_a_job_combines_its_vpa_its_profile_and_the_pods_named_there() -> None:
    (row,) = fleet(a_job())["jobs"]
    assert (row["namespace"], row["name"], row["mode"], row["pods"]) == ("ml", "train", "InPlaceOrRecreate", 1)
    assert (row["phase"], row["next"], row["when"]) == ("1", "2 (80%)", "2026-05-01T12:00:40Z")
    assert row["cpuCores"] == {"use": 0.5, "request": 1.0, "limit": pytest.approx(math.nan, nan_ok=True), "target": 1.2}
    assert row["memoryBytes"] == {"use": GIB, "request": 2 * GIB, "limit": 4 * GIB, "target": 3 * GIB}
    assert row["risks"] == []


def test_a_time_of_a_profile_that_is_none_is_unknown_and_leaves_all_pages_readable() -> None:
    """The API server accepts a year 0."""
    year_zero = "0000-01-01T00:00:00Z"
    raw = scenes.profile()
    raw["status"]["pods"][0]["checkpointAt"] = raw["status"]["containers"][0]["next"][0]["at"] = year_zero
    seen = view_of([scenes.vpa()], [raw], [scenes.pod()], [scenes.node()])
    assert [math.isnan(one.saved_s) for job in seen.jobs.values() for one in job.containers] == [True]
    for path in ("/", "/jobs/ml/train", "/nodes"):
        assert scenes.client(seen).get(path, **scenes.HTML).status_code == 200


def test_vpas_of_other_recommenders_are_not_shown() -> None:
    other = scenes.vpa("other") | {"spec": {**scenes.vpa()["spec"], "recommenders": []}}
    (row,) = fleet(view_of([scenes.vpa(), other]))["jobs"]
    assert row["name"] == "train"
    assert all(math.isnan(cores) for cores in row["cpuCores"].values()), "nothing is known without pods"


KILL = {"lastState": {"terminated": {"reason": "OOMKilled", "finishedAt": NOON}}, "restartCount": 1}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "no room"}


def killed() -> Any:
    return scenes.pod(**KILL)


def waiting() -> Any:
    pod = scenes.pod()
    pod["status"]["conditions"] = [DEFERRED]
    return pod


@pytest.mark.parametrize(
    ("pod", "use", "risk"),
    [
        (killed(), scenes.use(), "train-0/main was killed for memory 1m ago"),
        (scenes.pod(), scenes.use(memory_gib=3.8), "train-0/main uses 95% of its memory limit"),
        (scenes.pod(), scenes.use(memory_gib=2.5), "train-0/main uses more memory than it requests"),
        (scenes.pod(), scenes.use(cpu_cores=1.1), "train-0/main uses more CPU than it requests"),
        (waiting(), scenes.use(), "the resize of train-0/main waits for room: Deferred: no room"),
    ],
)
def test_the_risk_of_a_job_is_stated(pod: Any, use: Any, risk: str) -> None:
    page = fleet(view_of([scenes.vpa()], [scenes.profile()], [pod], usage=dict([use])))
    assert page["jobs"][0]["risks"][0] == risk
    assert page["atRisk"] == 1


def test_restarts_alone_are_stated_but_need_no_attention() -> None:
    restarted = scenes.pod(restartCount=2)
    page = fleet(view_of([scenes.vpa()], [scenes.profile()], [restarted], usage=dict([scenes.use()])))
    assert (page["jobs"][0]["risks"], page["atRisk"]) == (["train-0/main has restarted 2 times"], 0)


def test_a_memory_limit_of_zero_is_none_and_leaves_the_page_of_all_jobs_readable() -> None:
    unlimited = scenes.pod()
    unlimited["spec"]["containers"][0]["resources"]["limits"]["memory"] = "0"
    page = fleet(view_of([scenes.vpa()], [scenes.profile()], [unlimited], usage=dict([scenes.use()])))
    assert page["jobs"][0]["risks"] == []


def test_the_job_with_the_worst_risk_comes_first() -> None:
    pods = [scenes.pod("a-0"), scenes.pod("b-0", **KILL), scenes.pod("c-0")]
    profiles = [scenes.profile(name, pods=[f"{name}-0"]) for name in "abc"]
    usage = dict([scenes.use(name="c-0", cpu_cores=3.0)])
    page = fleet(view_of([scenes.vpa(name) for name in "abc"], profiles, pods, usage=usage))
    assert [job["name"] for job in page["jobs"]] == ["b", "c", "a"]


def test_only_conditions_that_report_a_problem_are_warnings() -> None:
    conditions = [
        {"type": "RecommendationProvided", "status": "True"},
        {"type": "LowConfidence", "status": "True", "message": "main: few samples"},
        {"type": "DisruptiveUpdates", "status": "False"},
    ]
    of_profile = [{"type": "ModelRefused", "status": "True", "message": "bundled goes on"}]
    one = view_of([scenes.vpa(conditions=conditions)], [scenes.profile(conditions=of_profile)])
    assert [each["words"] for each in warnings(one)["warnings"]] == [
        "ModelRefused: bundled goes on",
        "LowConfidence: main: few samples",
    ]


def test_jobs_are_listed_in_pages_of_a_hundred() -> None:
    vpas = [scenes.vpa(f"job-{number}") for number in range(250)]
    page = fleet(view_of(vpas), page=3)
    assert (page["pages"], page["count"], len(page["jobs"])) == (3, 250, 50)
    assert len(fleet(view_of(vpas))["jobs"]) == PAGE_ROWS
    assert fleet(view_of(vpas), page=99)["page"] == 3
    assert [job["name"] for job in fleet(view_of(vpas), "ml 249")["jobs"]] == ["job-249"]


def test_savings_are_declared_requests_minus_current_ones() -> None:
    """4 cores and 8 GiB were declared, 1 core and 2 GiB are requested."""
    page = fleet(a_job())
    (row,) = page["jobs"]
    assert row["saved"] == page["saved"] == {"cpuCores": 3.0, "memoryBytes": 6 * GIB}
    unknown = fleet(view_of([scenes.vpa()]))["saved"]
    assert all(math.isnan(amount) for amount in unknown.values())


@pytest.mark.parametrize(
    ("kind", "saved_at", "cpu_cores", "memory_gib"),
    [
        ("Job", None, 3.0 - 0.5, 6.0 - 1.0),
        ("Job", "2026-05-01T11:54:00Z", 3.0 - 0.1, 6.0 - 0.2),
        ("Job", "2026-05-01T12:00:30Z", 3.0 - 0.5, 6.0 - 1.0),
        ("Deployment", None, 3.0, 6.0),
    ],
    ids=["since its start", "since its checkpoint", "a later checkpoint does not count", "a Deployment loses nothing"],
)
def test_oom_kills_reduce_the_savings(kind: str, saved_at: str | None, cpu_cores: float, memory_gib: float) -> None:
    """1 core and 2 GiB are used again for half an hour, or for the six minutes since the checkpoint."""
    vpa, profile, pod = scenes.vpa(), scenes.profile(), killed()
    vpa["spec"]["targetRef"]["kind"] = kind
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["startedAt"] = "2026-05-01T11:30:00Z"
    if saved_at is not None:
        profile["status"]["pods"][0]["checkpointAt"] = saved_at
    saved = fleet(view_of([vpa], [profile], [pod]))["saved"]
    assert saved == {"cpuCores": pytest.approx(cpu_cores), "memoryBytes": pytest.approx(memory_gib * GIB)}
    later = fleet(view_of([vpa], [profile], [pod], now_s=scenes.NOON_S + 3600.0))["saved"]
    assert later == {"cpuCores": 3.0, "memoryBytes": 6 * GIB}, "an hour later the kill does not count"


def test_a_node_is_forecast_from_profiles_requests_of_pods_without_one_and_overhead() -> None:
    other = scenes.pod("stranger")
    other["spec"]["overhead"] = {"cpu": "500m", "memory": "1Gi"}
    (row,) = nodes(view_of([scenes.vpa()], [scenes.profile()], [scenes.pod(), other], [scenes.node()]))["nodes"]
    assert row["share"]["requests"] == [2.5 / 4.0, 5.0 / 16.0]
    assert row["share"]["forecast"] == [(1.5 + 1.5) / 4.0, (3.0 + 3.0) / 16.0]
    assert (row["pods"], row["ours"]) == (2, 1)


def test_the_time_until_a_peak_follows_from_the_age_of_the_container() -> None:
    """Started a minute ago, it is in the second of three minutes of its class: two cores now."""
    (row,) = nodes(a_job())["nodes"]
    assert row["peaks"] == [{"pod": "train-0", "namespace": "ml", "inSeconds": 0.0, "cpuCores": 2.0}]
    (started_now,) = nodes(a_job(now_s=scenes.NOON_S))["nodes"]
    assert started_now["peaks"][0]["inSeconds"] == 60.0


def test_unschedulable_pods_are_listed_with_the_message_of_the_scheduler_the_oldest_first() -> None:
    def waiting(name: str, at: str, node: str = "") -> Any:
        refusal = {
            "type": "PodScheduled",
            "status": "False",
            "message": f"no node for {name}",
            "lastTransitionTime": at,
        }
        return scenes.pod(name, node=node, phase="Pending") | {"status": {"phase": "Pending", "conditions": [refusal]}}

    pods = [waiting("b", "2026-05-01T12:00:30Z"), waiting("a", scenes.NOON), waiting("c", scenes.NOON, node="n0")]
    refused = nodes(view_of(pods=pods))["refused"]
    assert [(one["pod"], one["since"] - scenes.NOON_S, one["words"]) for one in refused] == [
        ("a", 0.0, "no node for a"),
        ("b", 30.0, "no node for b"),
    ]


def test_a_pod_with_a_scheduling_gate_is_not_listed_as_unschedulable() -> None:
    """The scheduler has not considered it; pods of gangs that wait would hide those that fit on no node."""
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"}
    pods = [scenes.pod("g", node="") | {"status": {"phase": "Pending", "conditions": [gated]}}]
    assert nodes(view_of(pods=pods))["refused"] == []


def test_waiting_gangs_are_listed_with_their_number_of_pods() -> None:
    members = [scenes.pod(f"g-{number}", node="") for number in range(3)]
    for member in members:
        member["metadata"]["labels"] = {"phasewise.dev/gang": "g"}
    assert [(gang["gang"], gang["waiting"]) for gang in nodes(view_of(pods=members))["gangs"]] == [("g", 3)]


def test_of_many_waiting_gangs_the_fifty_that_wait_longest_are_listed() -> None:
    """Gated pods cost nothing, so one namespace may have thousands."""
    members = [scenes.pod(f"g-{number}", node="") for number in range(60)]
    for number, member in enumerate(members):
        member["metadata"]["labels"] = {"phasewise.dev/gang": f"g{number}"}
        member["metadata"]["creationTimestamp"] = f"2026-05-01T12:00:{59 - number:02}Z"
    page = nodes(view_of(pods=members))
    assert [gang["gang"] for gang in page["gangs"]] == [f"g{number}" for number in range(59, 9, -1)]
    assert page["gangsWaiting"] == 60


def test_of_many_moves_two_hundred_are_listed() -> None:
    """With thousands of jobs the page would take megabytes."""
    names = [f"train-{number}" for number in range(250)]
    profiles = [scenes.profile(name, pods=()) for name in names]
    for profile in profiles:
        profile["metadata"]["annotations"] = {"phasewise.dev/move": "would be moved"}
    page = nodes(view_of([scenes.vpa(name) for name in names], profiles))
    assert (len(page["moves"]), page["movesCount"]) == (200, 250)


def test_a_class_has_its_peaks_and_the_chance_that_the_next_run_exceeds_them() -> None:
    (one,) = classes(view_of(profiles=[scenes.class_profile()]))["classes"]
    (main,) = one["containers"]
    assert (one["name"], main["runs"], main["peakCpuCores"], main["peakMemoryBytes"]) == ("ml.train", 3, 2.0, 2.5 * GIB)
    assert main["peaksMemoryBytes"] == [GIB, 2 * GIB, 2.5 * GIB]
    assert main["chanceAbovePeak"] == 0.25


def test_classes_are_listed_in_pages_of_a_hundred() -> None:
    seen = view_of(profiles=[scenes.class_profile(f"ml.train-{number:03d}") for number in range(250)])
    page = classes(seen, page=3)
    assert (page["pages"], page["count"], len(page["classes"])) == (3, 250, 50)
    assert [one["name"] for one in page["classes"]][-1] == "ml.train-249"
    assert [one["name"] for one in classes(seen, "ML/ 249")["classes"]] == ["ml.train-249"]


def test_bars_are_relative_to_the_largest_amount_and_omit_unknown_amounts() -> None:
    bars = lengths({"use": 0.5, "request": 1.0, "limit": 2.0, "target": math.nan})
    assert bars == {"use": 30.0, "request": 60.0, "limit": 120.0}
    assert lengths(dict.fromkeys(("use", "request", "limit", "target"), 0.0))["limit"] == 0.0


def test_of_thousands_of_unreadable_objects_a_page_lists_the_first_and_counts_the_others() -> None:
    seen = a_job()._replace(troubles=tuple(f"metrics of ml/pod-{number}: no CPU" for number in range(5000)))
    assert fleet(seen)["troubles"][4:] == ["metrics of ml/pod-4: no CPU", "and 4995 more"]
    assert warnings(seen)["troubles"][PAGE_ROWS - 1 :] == [
        f"metrics of ml/pod-{PAGE_ROWS - 1}: no CPU",
        "and 4900 more",
    ]
