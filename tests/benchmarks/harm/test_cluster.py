"""Simulated containers: they start, use resources, are killed, crash, restart and end."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import CPU, MEMORY, Amounts, ContainerPolicy
from tests.benchmarks.harm.worked import (
    DECLARED,
    GIB,
    HAS,
    MIDNIGHT_S,
    cluster_of,
    recommend,
    requests_of,
    tally_of,
    wait,
    workload,
)
from tests.worlds.simulated.cluster import Metrics, clock_ahead, down_every, dropped, meter_noise, negated, outage
from tests.worlds.simulated.controllers import resources_for
from tests.worlds.simulated.pods import NONE, Autoscaler, ContainerSpec, HorizontalAutoscaler, Node, Resources, Window
from tests.worlds.workloads import noisy, phases, steady, step, wave

LIMITED = Resources(HAS, HAS)
GROWING = phases([(300.0, (0.5, 0.5 * GIB)), (math.inf, (0.5, 2 * GIB))])


# -- admission -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        (Resources((1.0, GIB), (2.0, 3 * GIB)), "RequestsAndLimits", Resources((0.5, 2 * GIB), (1.0, 6 * GIB))),
        (Resources((1.0, GIB), (1.0, GIB)), "RequestsAndLimits", Resources((0.5, 2 * GIB), (0.5, 2 * GIB))),
        (Resources(NONE, (1.0, GIB)), "RequestsAndLimits", Resources((0.5, 2 * GIB), (0.5, 2 * GIB))),
        (Resources((1.0, GIB), (2.0, 1.5 * GIB)), "RequestsOnly", Resources((0.5, 1.5 * GIB), (2.0, 1.5 * GIB))),
        (Resources(), "RequestsAndLimits", Resources((0.5, 2 * GIB), NONE)),
    ],
)
def test_limits_keep_their_ratio_or_cap_the_target(declared: Resources, values: str, expected: Resources) -> None:
    web = workload(policy=ContainerPolicy("*", controlled_values=values))
    recommend(web, (0.5, 2 * GIB))
    assert repr(resources_for(web.vpa, "main", declared)) == repr(expected)  # nan is not nan


def test_a_policy_limits_the_target() -> None:
    web = workload(policy=ContainerPolicy("*", min_allowed=(0.7, None), max_allowed=(None, GIB)))
    recommend(web, (0.5, 2 * GIB))
    assert resources_for(web.vpa, "main", Resources()).requests == (0.7, GIB)


def test_without_a_recommendation_a_pod_gets_its_declared_resources() -> None:
    assert resources_for(Autoscaler(), "main", LIMITED) == LIMITED


# -- containers ------------------------------------------------------------------------------------------------------


def test_memory_above_the_limit_kills_and_usage_starts_again_from_the_beginning() -> None:
    web = workload("Off", LIMITED, GROWING, replicas=1)
    cluster = cluster_of(web, minutes=7.0)
    (container,) = web.pods[0].containers
    assert (tally_of(web).kills, container.restarts) == (1, 1)
    assert container.last_kill_s == pytest.approx(300.0)
    assert container.used[MEMORY] == 0.5 * GIB
    (kill,) = cluster.take_kills()
    assert kill.memory_bytes == GIB
    assert cluster.take_kills() == []


def test_memory_above_the_request_kills_only_if_the_node_is_short_of_memory() -> None:
    for evicts, kills in ((False, 0), (True, 1)):
        web = workload("Off", Resources(HAS), GROWING, replicas=1, node=Node(evicts=evicts))
        cluster_of(web, minutes=7.0)
        assert tally_of(web).kills == kills


def test_the_backoff_between_crashes_doubles_up_to_five_minutes() -> None:
    dies = (Window(MIDNIGHT_S, math.inf), 15.0)
    web = workload("Off", replicas=1, crashes=(dies,))
    cluster = cluster_of(web, minutes=60.0)
    assert web.pods[0].containers[0].backoff_s == 300.0
    before = web.pods[0].containers[0].restarts
    wait(cluster, 60.0)
    assert web.pods[0].containers[0].restarts - before in (11, 12)


def test_cpu_use_ends_at_the_limit_and_demand_beyond_is_counted() -> None:
    web = workload("Off", LIMITED, steady(1.5, 0.5 * GIB), replicas=1)
    cluster_of(web, minutes=10.0)
    tally = tally_of(web)
    assert web.pods[0].containers[0].used[CPU] == 1.0
    assert tally.below_cpu_s == tally.ran_s > 0
    assert tally.below_memory_s == 0


def test_slack_is_what_is_reserved_but_unused() -> None:
    web = workload("Off", use=steady(0.25, 0.5 * GIB))
    cluster_of(web, minutes=10.0)
    tally = tally_of(web)
    assert tally.slack[CPU] / tally.used[CPU] == pytest.approx(3.0)
    assert tally.slack[MEMORY] / tally.used[MEMORY] == pytest.approx(1.0)


def test_slack_without_resizes_is_that_of_the_requests_at_creation() -> None:
    """Requests of 1 core halved after ten minutes: slack of 0.75 cores, then of 0.25, without the resize of 0.75."""
    web = workload("Off", use=steady(0.25, 0.5 * GIB), replicas=1)
    cluster = cluster_of(web, minutes=10.0)
    before = tally_of(web)
    assert before.created_slack == before.slack
    assert before.resized_used == [0.0, 0.0]
    container = web.pods[0].containers[0]
    container.actual = container.desired = Resources((0.5, GIB))
    wait(cluster, 10.0)
    after = tally_of(web)
    assert after.created_slack[CPU] / after.used[CPU] == pytest.approx(3.0)
    assert after.slack[CPU] / after.used[CPU] == pytest.approx(2.0, rel=0.05)
    assert after.resized_used[CPU] / after.used[CPU] == pytest.approx(0.5, rel=0.05)
    assert after.resized_used[MEMORY] == 0.0, "as at creation"


def test_time_below_use_is_counted_with_the_requests_at_creation_too() -> None:
    web = workload("Off", use=steady(1.5, 0.5 * GIB), replicas=1)
    cluster = cluster_of(web, minutes=10.0)
    container = web.pods[0].containers[0]
    container.actual = container.desired = Resources((2.0, GIB))
    wait(cluster, 10.0)
    tally = tally_of(web)
    assert tally.created_below_s == tally.ran_s
    assert tally.below_cpu_s == pytest.approx(0.5 * tally.ran_s, rel=0.05)


def test_a_resize_restarts_a_container_only_for_resources_that_require_it() -> None:
    web = workload("InPlaceOrRecreate", restart_for=frozenset({"memory"}))
    cluster = cluster_of(web)
    recommend(web, (2.0, GIB))
    wait(cluster, 4.0)
    assert tally_of(web).restarts == 0
    recommend(web, (2.0, 2 * GIB))
    wait(cluster, 4.0)
    assert tally_of(web).restarts == 2
    assert {container.restarts for pod in web.pods for container in pod.containers} == {1}


# -- work ------------------------------------------------------------------------------------------------------------


def test_a_job_is_as_slow_as_the_cpu_that_it_lacks_and_ends_when_its_work_is_done() -> None:
    """Ten minutes of work at 0.5 cores: with 0.25 it takes twenty."""
    for cores, slowdown in ((1.0, 1.0), (0.25, 2.0)):
        job = workload("Initial", LIMITED, kind="Job", replicas=1, runs_for_s=600.0)
        recommend(job, (cores, GIB))
        cluster_of(job, minutes=30.0)
        assert tally_of(job).slowdowns == (pytest.approx(slowdown),)
        assert tally_of(job).used[CPU] == pytest.approx(300.0)


def test_a_killed_job_begins_its_work_again_and_all_of_the_time_counts() -> None:
    """Six minutes are lost, and a tick until its next pod is made and another until it starts."""
    grows = phases([(345.0, (0.5, 0.5 * GIB)), (math.inf, (0.5, 2 * GIB))])
    job = workload("Initial", LIMITED, grows, kind="Job", replicas=1, runs_for_s=600.0, backoff_limit=1)
    cluster = cluster_of(job, minutes=5.0)
    recommend(job, (1.0, 3 * GIB))
    wait(cluster, 20.0)
    assert tally_of(job).kills == 1
    assert tally_of(job).slowdowns == (pytest.approx((600.0 + 360.0 + 15.0) / 600.0),)


def test_busy_pods_of_a_node_leave_a_container_its_share_by_requests() -> None:
    """Of eight cores with 7.5 busy, a request of 0.5 gets a half, and one of 0.25 a bit more than a quarter."""
    node = Node((8.0, 8 * GIB), busy_cores=7.5)
    for request, used in ((0.5, 0.5), (0.25, 8.0 * 0.25 / 7.75), (math.nan, 8.0 * 0.002 / 7.502)):
        web = workload("Off", Resources((request, GIB)), steady(2.0, 0.5 * GIB), replicas=1, node=node)
        cluster_of(web)
        assert web.pods[0].containers[0].used[CPU] == pytest.approx(used)


def test_beside_busy_pods_a_resize_waits_for_room() -> None:
    web = workload("InPlace", replicas=1, min_replicas=1, node=Node((8.0, 8 * GIB), busy_cores=7.0))
    cluster = cluster_of(web)
    recommend(web, (0.5, GIB))
    wait(cluster, 2.0)
    recommend(web, (1.0, GIB))
    wait(cluster, 2.0)
    assert tally_of(web).updates == 2
    recommend(web, (1.1, GIB))
    wait(cluster, 2.0)
    assert web.pods[0].resize is not None
    assert web.pods[0].resize.reason == "Deferred"


# -- controllers -----------------------------------------------------------------------------------------------------


def test_a_job_runs_repeatedly() -> None:
    job = workload("Off", kind="Job", replicas=1, runs_for_s=600.0, next_run_after_s=300.0)
    cluster_of(job, minutes=60.0)
    assert job.run in (3, 4)
    assert tally_of(job).failed_jobs == 0


def test_an_evicted_pod_fails_a_job_with_a_backoff_limit_of_zero() -> None:
    for backoff_limit, failed in ((0, 1), (1, 0)):
        job = workload(kind="Job", replicas=1, min_replicas=1, runs_for_s=3600.0, backoff_limit=backoff_limit)
        cluster = cluster_of(job)
        recommend(job, (2.0, GIB))
        wait(cluster, 3.0)
        assert (tally_of(job).evictions, tally_of(job).failed_jobs) == (1, failed)
        assert len(job.live) == 1 - failed


def test_every_fourth_run_of_a_job_is_another_program() -> None:
    other = ContainerSpec("main", DECLARED, steady(0.25, GIB / 4), image="other")
    job = workload("Off", kind="Job", replicas=1, runs_for_s=300.0, next_run_after_s=60.0, other=(4, [other]))
    cluster, images = cluster_of(job), {}
    while job.run < 5:
        cluster.step()
        images |= {pod.revision: pod.containers[0].spec.image for pod in job.pods}
    assert [images[run] for run in range(5)] == [*["image"] * 3, "other", "image"]


def test_a_vpa_for_each_run_starts_without_a_recommendation() -> None:
    job = workload(kind="Job", replicas=1, runs_for_s=300.0, next_run_after_s=60.0, per_run="VPA")
    cluster = cluster_of(job)
    recommend(job, (2.0, 2 * GIB))
    assert job.vpa_name == "web-0"
    while job.run < 1:
        cluster.step()
    assert (job.vpa_name, job.vpa.recommendation) == ("web-1", {})
    assert requests_of(job)[-1] == HAS


def test_a_job_with_a_sidecar_ends_when_its_first_container_has_done_its_work() -> None:
    job = workload("Off", kind="Job", replicas=1, runs_for_s=300.0)
    job.containers = [*job.containers, ContainerSpec("sidecar", DECLARED, steady(0.02, GIB / 16))]
    cluster_of(job, minutes=10.0)
    assert tally_of(job).slowdowns == (1.0,)
    assert tally_of(job).used[CPU] == pytest.approx(300.0 * 0.5 + 285.0 * 0.02)  # the sidecar's last tick is cut off


def test_a_limit_range_gives_resources_to_containers_that_declare_nothing() -> None:
    default = Resources((0.5, GIB), (2.0, 4 * GIB))
    for declared, has in ((Resources(), default), (LIMITED, LIMITED)):
        web = workload("Off", declared, limit_range=default)
        cluster_of(web)
        assert {container.actual for pod in web.pods for container in pod.containers} == {has}


def test_a_horizontal_autoscaler_keeps_use_at_its_share_of_requests_and_shrinks_after_five_minutes() -> None:
    """Two cores at 60 % of a core each need four replicas; one core needs two."""
    web = workload("Off", use=step((2.0, GIB / 2), (1.0, GIB / 2), MIDNIGHT_S + 1800.0))
    web.horizontal = HorizontalAutoscaler(0.6, 10)
    cluster = cluster_of(web, minutes=30.0)
    assert len(web.live) == 4
    wait(cluster, 4.0)
    assert len(web.live) == 4
    wait(cluster, 4.0)
    assert len(web.live) == 2


def test_a_rollout_replaces_all_pods_one_by_one() -> None:
    web = workload("Off", replicas=3, rollouts=(MIDNIGHT_S + 120.0,))
    cluster, least = cluster_of(web), 3
    for _ in range(40):
        cluster.step()
        least = min(least, sum(pod.phase == "Running" for pod in web.pods))
    assert {pod.revision for pod in web.pods} == {1}
    assert least == 2
    assert tally_of(web).evictions == 0


def test_a_scale_event_changes_the_number_of_replicas() -> None:
    web = workload("Off", scales=((MIDNIGHT_S + 120.0, 5), (MIDNIGHT_S + 240.0, 0)))
    cluster = cluster_of(web)
    assert [len(wait(cluster, 2.0).workloads[0].pods) for _ in range(2)] == [5, 0]


def test_a_pod_that_no_node_has_room_for_is_pending() -> None:
    web = workload("Off", Resources((64.0, GIB)))
    cluster_of(web, minutes=10.0)
    assert {pod.phase for pod in web.pods} == {"Pending"}


# -- metrics ---------------------------------------------------------------------------------------------------------


def test_the_cpu_of_a_sample_is_the_mean_since_the_scrape_before() -> None:
    web = workload("Off", use=phases([(30.0, (0.2, GIB / 2)), (math.inf, (0.8, GIB / 4))]), replicas=1)
    cluster = cluster_of(web)
    metrics = Metrics(cluster, window_s=60.0)
    metrics.scrape()
    assert metrics.read() == []  # the first scrape only starts counting
    wait(cluster, 1.0)
    metrics.scrape()
    (sample,) = metrics.read()
    assert (sample.timestamp_s, sample.memory_bytes) == (cluster.now_s, GIB / 4)
    assert sample.cpu_cores == pytest.approx(0.8)
    cluster.step()
    metrics.scrape()
    assert metrics.read() == [sample]  # until the window is over


def test_faults_of_metrics_apply_only_within_their_window() -> None:
    window = Window(MIDNIGHT_S + 90.0, MIDNIGHT_S + 120.0)
    for distort, matches in (
        (outage(window), lambda usage, now_s: usage == []),
        (clock_ahead(window, 3600.0), lambda usage, now_s: {one.timestamp_s for one in usage} == {now_s + 3600.0}),
        (negated(window), lambda usage, now_s: all(one.cpu_cores < 0 for one in usage)),
    ):
        cluster = cluster_of(workload("Off"))
        metrics = Metrics(cluster, distort=distort)
        for _ in range(8):
            cluster.step()
            metrics.scrape()
            usage = metrics.read()
            if window.contains(cluster.now_s):
                assert matches(usage, cluster.now_s)
        assert {one.timestamp_s for one in usage} == {cluster.now_s}


def test_noise_of_the_meter_changes_what_is_measured_and_not_what_is_used() -> None:
    cluster = cluster_of(web := workload("Off", replicas=1))
    metrics, measured = Metrics(cluster, distort=meter_noise(0.02, 0)), []
    for _ in range(200):
        cluster.step()
        metrics.scrape()
        measured += [usage.cpu_cores for usage in metrics.read()]
    assert web.pods[0].containers[0].used[CPU] == 0.5
    assert np.mean(measured) == pytest.approx(0.5, rel=0.005)
    assert np.std(measured) == pytest.approx(0.01, rel=0.2)


def test_a_share_of_the_samples_is_dropped_and_none_comes_while_the_metrics_server_restarts() -> None:
    cluster = cluster_of(workload("Off", replicas=1))
    metrics, times_s = Metrics(cluster, distort=down_every(600.0, 120.0, dropped(0.25))), set()
    for _ in range(2000):
        cluster.step()
        metrics.scrape()
        times_s |= {usage.timestamp_s for usage in metrics.read()}
    assert min(at_s % 600.0 for at_s in times_s) == 120.0
    assert len(times_s) / 2000 == pytest.approx(0.8 * 0.75, rel=0.05)


# -- properties ------------------------------------------------------------------------------------------------------


@given(st.tuples(st.floats(0.05, 4.0), st.floats(0.1, 8.0)), st.integers(0, 2**32 - 1))
def test_the_same_seed_plays_the_same_simulation(load: Amounts, seed: int) -> None:
    outcomes = []
    for _ in range(2):
        use = noisy(wave((0.01, GIB / 8), (load[0], load[1] * GIB), 1800.0), 0.1, seed)
        web = workload(resources=LIMITED, use=use)
        cluster = cluster_of(web, minutes=30.0)
        outcomes.append((tally_of(web), cluster.take_kills(), requests_of(web)))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0].used[MEMORY] > 0
