"""Nodes whose containers share CPU: worked by hand, in the guard rail, and in an engine on a simulated node."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recommender.base.records import CPU, Sample
from recommender.contention.flowcon import FlowConOptions, LearningState
from recommender.contention.sharing import fair_shares
from recommender.engine import shares
from recommender.engine.engine import Engine
from recommender.engine.keys import Group, Instance, Rules, Running, WorkloadKey
from recommender.engine.options import RailOptions
from recommender.engine.rails import apply_rails
from recommender.engine.seen import Evaluation, Samples, Seen
from recommender.engine.shares import SharedNode, Shares, Work
from recommender.engine.tally import Report
from recommender.policies.class_runs import ClassRuns
from tests.fakes.curves import curve_of
from tests.recommender.engine.situations import situation
from tests.recommender.engine.worked import GIB, NOW_S, an_engine, running

FAST, SLOW, WEB = (Instance("ns", f"uid-{name}", "main") for name in ("fast", "slow", "web"))
GROUPS = {instance: Group("ns", instance.pod_uid, "main") for instance in (FAST, SLOW, WEB)}
SLOTS = {group: slot for slot, group in enumerate(GROUPS.values())}
OPTIONS = FlowConOptions(alpha=0.2, interval_s=20.0)


def node_of(
    *groups: int, cpu_cores: float = 4.0, weights: list[float] | None = None, held_back: tuple[int, ...] = ()
) -> SharedNode:
    known = (np.array(groups, np.int64), weights or [1.0] * len(groups), np.isin(groups, held_back))
    return SharedNode(cpu_cores, cpu_cores, *known)


def divide_cores(nodes: Sequence[SharedNode], wanted: np.ndarray) -> np.ndarray:
    """Cores of each group; none waits for its first container, so none is capped."""
    return shares.divide_cores(nodes, wanted, np.full(len(wanted), np.inf))


def test_with_enough_cpu_each_group_gets_what_it_wants() -> None:
    wanted = np.array([1.0, 2.5, 9.0])
    assert divide_cores([node_of(0, 1, weights=[1.0, 0.25])], wanted).tolist() == [1.0, 2.5, 9.0]


def test_cpu_that_one_group_does_not_want_goes_to_the_others() -> None:
    """By weights of 3 to 1 they would have three cores and one, but the first wants half a core."""
    assert divide_cores([node_of(0, 1, weights=[0.75, 0.25])], np.array([0.5, 6.0])).tolist() == [0.5, 3.5]


def test_a_container_that_is_held_back_gets_its_share_whatever_its_forecast() -> None:
    """So far it got one core, so one is forecast."""
    node = node_of(0, 1, weights=[0.75, 0.25], held_back=(0,))
    assert divide_cores([node], np.array([1.0, 3.0])).tolist() == [3.0, 1.0]


def test_a_container_that_uses_its_entitlement_on_a_busy_node_is_held_back() -> None:
    """Equal requests entitle each to two of four cores; what one does not use goes to the other."""
    driver = SharesDriver(FAST, SLOW)
    (node,) = driver.step({FAST: 3.5, SLOW: 0.5}, {})
    assert node.held_back.tolist() == [True, True], "the first sample may cover the time before"
    (node,) = driver.step({FAST: 3.5, SLOW: 0.5}, {})
    assert node.held_back.tolist() == [True, False]
    (node,) = driver.step({FAST: 2.0, SLOW: 2.0}, {})
    assert node.held_back.tolist() == [True, True]
    (node,) = driver.step({FAST: 2.5, SLOW: 0.5}, {})
    assert node.held_back.tolist() == [False, False], "a core is idle"
    (node,) = SharesDriver(FAST, SLOW).step({FAST: 2.0}, {})
    assert node.held_back.tolist() == [True, True], "nothing is known of a new container"


def test_after_a_raise_a_container_counts_as_held_back_until_its_samples_show_less() -> None:
    driver = SharesDriver(FAST, SLOW)
    for _ in range(2):
        driver.step({FAST: 2.0, SLOW: 2.0}, {})
    driver.shares.place(FAST, sharing(FAST, request_cores=14.0), math.nan, driver.now_s)
    (node,) = driver.step({FAST: 2.0, SLOW: 2.0}, {})
    assert node.held_back.tolist() == [True, True], "the sample averages over the time before as well"
    for _ in range(3):
        (node,) = driver.step_with_same_samples()
        assert node.held_back.tolist() == [True, True], "a repeated sample shows nothing new"
    (node,) = driver.step({FAST: 2.0, SLOW: 2.0}, {})
    assert node.held_back.tolist() == [False, True], "it was entitled to three and a half cores"


def test_after_a_container_leaves_the_others_count_as_held_back_until_new_samples() -> None:
    driver = SharesDriver(FAST, SLOW, WEB)
    driver.shares.place(WEB, sharing(WEB, request_cores=12.0), math.nan, driver.now_s)
    for _ in range(3):
        (node,) = driver.step({FAST: 0.5, SLOW: 0.5, WEB: 3.0}, {})
    assert node.held_back.tolist() == [True, True, True]
    driver.shares.forget(WEB, driver.now_s)
    (node,) = driver.step_with_same_samples()
    assert node.held_back.tolist() == [True, True], "of four cores both were entitled to half a core"


def test_containers_of_a_node_together_request_no_more_than_their_owners_declared() -> None:
    """Four cores go three to one; their owners request 200m in all, which leaves the node open to more pods."""
    node = node_of(0, 1, weights=[0.75, 0.25], held_back=(0, 1))._replace(declared_cores=0.2)
    np.testing.assert_allclose(divide_cores([node], np.array([1.0, 3.0])), [0.15, 0.05])
    driver = SharesDriver(FAST, SLOW)
    driver.shares.place(WEB, sharing(WEB), 0.1, driver.now_s)
    assert driver.step({FAST: 1.0}, {})[0].declared_cores == 2.0 + 2.0 + 0.1
    undeclared = SharesDriver(FAST)
    undeclared.shares.place(SLOW, sharing(SLOW, request_cores=math.nan), math.nan, undeclared.now_s)
    (node,) = undeclared.step({FAST: 4.0}, {})
    assert divide_cores([node], np.array([3.0, 3.0])).tolist() == [2.0, 2.0], "no request, no cap"


def test_a_group_on_several_nodes_gets_its_largest_share_and_an_unknown_one_none() -> None:
    nodes = [node_of(0, 1, cpu_cores=2.0), node_of(0, 2, cpu_cores=8.0)]
    given = divide_cores(nodes, np.array([6.0, 6.0, np.nan]))
    np.testing.assert_array_equal(given, [6.0, 1.0, np.nan])


def test_the_rail_divides_cpu_alone_and_not_where_a_change_evicts() -> None:
    row = {"wanted": (3.0, 2 * GIB), "recent_cpu_cores": 3.0}
    rows = [row, row, {**row, "evicts": True}]
    target = apply_rails(situation(rows, [node_of(0, 1, 2, cpu_cores=3.0)]), RailOptions())[-1]
    assert target[:2].tolist() == [[1.2, 2 * GIB]] * 2, "the third wants 0.6"
    assert target[2, CPU] == 0.6


def sharing(instance: Instance, node: str = "n0", request_cores: float = 2.0, by: str = "flowcon") -> Running:
    return running(group=GROUPS[instance], requests=(request_cores, GIB), shares_node=node, shares_by=by)


def test_a_container_that_has_not_started_requests_no_more_than_its_owner_declared() -> None:
    """It will share a node; with all that its class needs it might fit on none."""
    (row,) = apply_rails(
        situation([{"wanted": (3.0, 2 * GIB), "recent_cpu_cores": 3.0, "shares": True, "declared_cores": 0.1}]),
        RailOptions(),
    )[-1]
    assert row.tolist() == [0.1, 2 * GIB]


class SharesDriver:
    """Steps shares with the usage and losses that a test sets."""

    def __init__(self, *instances: Instance, cpu_cores: float = 4.0) -> None:
        self.shares, self.now_s = Shares(lambda _: Work(0.0, None), OPTIONS), NOW_S
        self.samples: list[tuple[Instance, Sample]] = []
        self.losses: dict[Instance, Evaluation] = {}
        self.shares.take_nodes({"n0": cpu_cores})
        for instance in instances:
            self.shares.place(instance, sharing(instance), math.nan, NOW_S)

    def step(
        self, uses: Mapping[Instance, float], losses: Mapping[Instance, float], curve: str = "loss"
    ) -> list[SharedNode]:
        """Ten seconds of usage, and losses at their end; earlier losses are passed again."""
        self.now_s += 10.0
        self.samples = [(instance, Sample(self.now_s, cores, GIB)) for instance, cores in uses.items()]
        self.losses |= {instance: Evaluation(loss, 0.0, self.now_s, curve) for instance, loss in losses.items()}
        self.shares.observe(Samples.of(self.samples), np.arange(len(self.samples)), self.losses)
        return self.shares.shared(self.now_s, SLOTS, Report())

    def step_with_same_samples(self) -> list[SharedNode]:
        """Five seconds later, with the same samples again."""
        self.shares.observe(Samples.of(self.samples), np.arange(len(self.samples)), {})
        return self.shares.shared(self.now_s + 5.0, SLOTS, Report())


def test_a_job_that_learns_less_for_its_cpu_has_less_weight_down_to_a_floor() -> None:
    """One job learns as fast as before, the other next to nothing after a few steps."""
    driver, loss = SharesDriver(FAST, SLOW), 10.0
    weights: list[tuple[float, ...]] = []
    for step in range(12):
        flat = max(5.0, 9.0 - step)
        (node,) = driver.step({FAST: 2.0, SLOW: 2.0}, {FAST: loss - 0.3 * step, SLOW: flat})
        weights.append(tuple(node.weights))
    assert weights[0] == (1.0, 1.0), "nothing is known yet"
    assert weights[-1][0] > 0.9
    assert weights[-1][1] == 0.25, "the floor: one of two jobs times beta"


def test_jobs_that_learn_alike_have_equal_weights_although_one_reports_rarely() -> None:
    """One reports every ten seconds, the other every two minutes; FlowCon runs every 20 s."""
    driver, weights = SharesDriver(FAST, SLOW), []
    for step in range(1, 61):
        loss = 10.0 - 0.1 * step
        seldom = {SLOW: loss} if step % 12 == 1 else {}
        (node,) = driver.step({FAST: 2.0, SLOW: 2.0}, {FAST: loss, **seldom})
        weights.append(node.weights)
    assert all(driver.shares._nodes["n0"].flowcon.members[name].state is LearningState.NEW for name in names_of(driver))
    for pair in weights[16:]:
        assert pair == pytest.approx([0.5, 0.5], rel=0.05)


def names_of(driver: SharesDriver) -> list[str]:
    return list(driver.shares._nodes["n0"].flowcon.members)


def test_losses_from_before_a_container_came_and_of_another_curve_are_no_progress() -> None:
    driver = SharesDriver(FAST, SLOW)
    driver.losses[FAST] = Evaluation(1e6, 0.0, NOW_S - 100.0, "loss")
    for step in range(4):
        driver.step({FAST: 2.0, SLOW: 2.0}, {FAST: 0.3 + 0.01 * step, SLOW: 10.0 - step}, "accuracy")
    (member,) = (one for name, one in driver.shares._nodes["n0"].flowcon.members.items() if FAST.pod_uid in name)
    assert member.largest < 0.01
    (node,) = driver.step({FAST: 2.0, SLOW: 2.0}, {FAST: 900.0})
    assert node.weights[0] == 1.0, "nothing is known of its loss yet"
    assert sorted(name.split()[-1] for name in names_of(driver)) == ["accuracy", "loss"]


def test_a_container_that_reports_no_training_is_not_limited() -> None:
    driver = SharesDriver(FAST, WEB)
    for step in range(8):
        (node,) = driver.step({FAST: 2.0, WEB: 2.0}, {FAST: 10.0 - step})
    assert dict(zip(node.groups.tolist(), node.weights, strict=True))[SLOTS[GROUPS[WEB]]] == 1.0


def test_samples_that_are_not_usable_and_infinite_losses_do_not_count() -> None:
    driver = SharesDriver(FAST, SLOW)
    driver.step({FAST: 2.0, SLOW: 2.0}, {FAST: 10.0, SLOW: math.nan})
    wrong = Samples.of([(one, Sample(driver.now_s + 1.0, 2.0, GIB)) for one in (FAST, SLOW)])
    losses = {SLOW: Evaluation(math.inf, 0.0, driver.now_s, "loss")}
    driver.shares.observe(wrong, np.empty(0, np.int64), losses)
    known = driver.shares._containers
    assert (known[FAST].used_core_s, known[SLOW].used_core_s) == (0.0, 0.0)
    assert known[SLOW].measured is None


def test_after_a_clock_was_set_back_by_an_hour_samples_and_losses_count_again() -> None:
    driver = SharesDriver(FAST, SLOW)
    for step in range(4):
        driver.step({FAST: 3.5, SLOW: 0.5}, {FAST: 10.0 - step, SLOW: 10.0 - step})
    driver.now_s -= 3600.0
    driver.shares.follow_clock(driver.now_s)
    for step in range(4, 16):
        (node,) = driver.step({FAST: 3.5, SLOW: 0.5}, {FAST: 10.0 - step, SLOW: 6.0})
    assert node.held_back.tolist() == [True, False], "the samples show who uses its entitlement"
    assert node.weights[1] == 0.25, "the floor: it has stopped learning"


def test_a_node_that_is_no_longer_shared_and_a_container_that_left_are_forgotten() -> None:
    driver = SharesDriver(FAST, SLOW)
    driver.shares.place(SLOW, sharing(SLOW, ""), math.nan, driver.now_s)
    (node,) = driver.step({FAST: 1.0}, {})
    assert node.groups.tolist() == [SLOTS[GROUPS[FAST]]]
    driver.shares.take_nodes({"n0": None})
    assert driver.step({FAST: 1.0}, {}) == []
    driver.shares.take_nodes({"n0": 4.0})
    assert len(driver.step({FAST: 1.0}, {})) == 1, "it is back"


def test_a_container_that_moves_to_another_vpa_shares_its_node_as_before() -> None:
    driver = SharesDriver(FAST, SLOW)
    driver.shares.place(SLOW, sharing(SLOW)._replace(group=GROUPS[WEB]), math.nan, driver.now_s)
    (node,) = driver.step({FAST: 1.0, SLOW: 1.0}, {})
    assert node.groups.tolist() == [SLOTS[GROUPS[FAST]], SLOTS[GROUPS[WEB]]]


def test_the_cached_stages_of_a_class_are_dropped_with_it() -> None:
    runs = ClassRuns([curve_of(5.0, np.ones((4, 2), np.float32))])
    shares = Shares(lambda _: Work(0.0, None))
    assert shares._stages(runs) is shares._stages(runs)
    del runs
    gc.collect()
    assert not shares._stages_cache


def test_a_failure_on_one_node_leaves_other_nodes_their_shares() -> None:
    def work_of(instance: Instance) -> Work:
        if instance == SLOW:
            raise RuntimeError("unreadable curve")
        return Work(0.0, None)

    shares, report = Shares(work_of), Report()
    shares.take_nodes({"n0": 4.0, "n1": 4.0})
    for instance, node in ((SLOW, "n0"), (FAST, "n1")):
        shares.place(instance, sharing(instance, node, by="phasewise"), math.nan, NOW_S)
    (shared,) = shares.shared(NOW_S, SLOTS, report)
    assert shared.groups.tolist() == [SLOTS[GROUPS[FAST]]]
    assert report.problems == {"shares of node n0": "RuntimeError: unreadable curve"}


@example([(1.0, 1.0)], 1e-5)
@given(st.lists(st.tuples(st.floats(0.0, 8.0), st.floats(0.01, 1.0)), min_size=1, max_size=8), st.floats(0.0, 16.0))
def test_shares_exceed_neither_demand_nor_capacity_and_leave_nothing_idle(
    jobs: list[tuple[float, float]], cpu_cores: float
) -> None:
    wanted = np.array([want for want, _ in jobs])
    given_cores = divide_cores([node_of(*range(len(jobs)), cpu_cores=cpu_cores, weights=[w for _, w in jobs])], wanted)
    assert (given_cores <= wanted).all()
    assert given_cores.sum() == pytest.approx(min(cpu_cores, wanted.sum()), abs=1e-6)


def test_on_a_node_that_divides_cpu_by_requests_the_job_that_learns_gets_more() -> None:
    """Four cores, two jobs that would each use all: requests are weights. In the end the job whose loss stands still
    keeps a quarter, and together they request the whole node."""
    engine, now_s = an_engine(step_s=15.0), NOW_S
    requests = {FAST: 2.0, SLOW: 2.0}
    changed = {one: sharing(one) for one in requests}
    seen = Seen({GROUPS[one]: Rules() for one in requests}, changed, nodes={"n0": 4.0})
    loss = {FAST: 10.0, SLOW: 10.0}
    for _ in range(240):
        now_s += 15.0
        used = dict(zip(requests, fair_shares(4.0, [4.0, 4.0], list(requests.values())), strict=True))
        loss[FAST] *= 1.0 - 0.002 * used[FAST]
        loss[SLOW] = max(6.0, loss[SLOW] - 0.1 * used[SLOW])
        samples = Samples.of((one, Sample(now_s, cores, GIB)) for one, cores in used.items())
        evaluations = {one: Evaluation(value, 10.0, now_s, "loss") for one, value in loss.items()}
        targets = engine.step(now_s, Seen(seen.groups, seen.containers, samples, (), seen.nodes, evaluations), Report())
        seen = Seen()
        for one, group in GROUPS.items():
            if group in targets:
                cores = float(targets[group].estimate.target[CPU])
                engine.published(group, (cores, GIB), (cores, GIB), now_s)
                if abs(cores - requests[one]) > 0.05:
                    requests[one] = cores
                    changed[one] = sharing(one, request_cores=cores)
                    seen = Seen({}, {**seen.containers, one: changed[one]})
    assert used[FAST] > 3.0
    assert 0.7 < used[SLOW] < 1.0
    assert sum(requests.values()) == pytest.approx(4.0, abs=0.2)
    assert "shares" in [rail for rail, _ in engine.why(GROUPS[SLOW]).rails]


CLASSES = {FAST: "short", SLOW: "long"}


def of_class(instance: Instance, started_s: float, request_cores: float = 0.1) -> Running:
    base = sharing(instance, request_cores=request_cores, by="phasewise")
    return base._replace(workload=CLASSES[instance], started_s=started_s)


def a_shared_node(samples_every_s: float) -> Engine:
    """One core; runs of the short class took 60 core seconds, those of the long class 200. A long one has run alone for
    a minute, sampled this often."""
    engine = an_engine(step_s=5.0)
    for name, core_s in (("short", 60.0), ("long", 200.0)):
        curve = curve_of(5.0, np.full((int(core_s / 5.0), 2), (1.0, GIB), np.float32))
        engine.classes.runs(WorkloadKey("ns", name), "main").add(curve)
    seen = Seen(
        {GROUPS[one]: Rules(declared_cores=0.1) for one in CLASSES}, {SLOW: of_class(SLOW, NOW_S)}, nodes={"n0": 1.0}
    )
    engine.step(NOW_S, seen, Report())
    for age_s in np.arange(5.0, 65.0, 5.0):
        sampled_s = NOW_S + age_s // samples_every_s * samples_every_s
        samples = Samples.of([(SLOW, Sample(sampled_s, 1.0, GIB))] if sampled_s > NOW_S else [])
        engine.step(NOW_S + age_s, Seen(samples=samples), Report())
    return engine


def cores_of(engine: Engine, instance: Instance) -> float:
    return float(engine.targets[GROUPS[instance]].estimate.target[CPU])


def test_a_short_job_of_a_known_class_is_served_first_from_its_first_round_on() -> None:
    """Its first sample comes half a minute later, when it would be half over."""
    engine = a_shared_node(samples_every_s=5.0)
    engine.step(NOW_S + 65.0, Seen(containers={FAST: of_class(FAST, NOW_S + 64.0)}), Report())
    assert cores_of(engine, FAST) == pytest.approx(0.178), "eight ninths of what both declare"
    assert cores_of(engine, SLOW) < 0.025


def test_a_container_is_not_idle_between_samples_that_come_less_often_than_rounds() -> None:
    for sample_interval_s in (5.0, 15.0):
        used_core_s, runs = a_shared_node(sample_interval_s)._work_of(SLOW)
        assert used_core_s == pytest.approx(60.0, abs=10.0)
        assert runs is not None and len(runs) == 1


def test_a_moved_job_keeps_the_progress_it_made_on_its_former_node() -> None:
    """Both are of the long class. The moved one has done 60 of 200 core seconds elsewhere, and so is served first;
    otherwise the one that was there before is."""
    for resumed_pod_uid, moved_is_first in ((SLOW.pod_uid, True), ("", False)):
        engine, moved = a_shared_node(samples_every_s=5.0), Instance("ns", "uid-moved", "main")
        there = of_class(SLOW, NOW_S)._replace(shares_node="n1")
        engine.step(NOW_S + 65.0, Seen(containers={FAST: there, SLOW: None}, nodes={"n1": 1.0}), Report())
        for age_s in np.arange(70.0, 80.0, 5.0):
            engine.step(NOW_S + age_s, Seen(samples=Samples.of([(FAST, Sample(NOW_S + age_s, 1.0, GIB))])), Report())
        resumed = of_class(SLOW, NOW_S + 80.0)._replace(
            shares_node="n1", resumed_pod_uid=resumed_pod_uid, group=GROUPS[FAST]
        )
        engine.step(NOW_S + 80.0, Seen(containers={moved: resumed}), Report())
        (node,) = engine._shares.shared(NOW_S + 80.0, SLOTS, Report())
        assert (node.weights[1] > node.weights[0]) == moved_is_first


def test_work_of_the_old_pod_until_its_end_counts_for_the_pod_that_resumes_it() -> None:
    """The old pod still trains and saves while the one that resumes it has started. A restarted container has done
    nothing."""
    used = {SLOW: 40.0}
    shares = Shares(lambda instance: Work(used.get(instance, 0.0), None))
    here = of_class(SLOW, NOW_S)
    shares.take_nodes({"n0": 1.0, "n1": 1.0})
    shares.place(SLOW, here, math.nan, NOW_S)
    shares.place(WEB, here._replace(shares_node="n1", resumed_pod_uid=SLOW.pod_uid), math.nan, NOW_S)

    def done() -> dict[Instance, float]:
        return {key: shares._completed_core_s(key, shares._containers[key], used.get(key, 0.0)) for key in (SLOW, WEB)}

    assert done() == {SLOW: 40.0, WEB: 40.0}
    used[SLOW] = 45.0
    assert done()[WEB] == 45.0
    used[WEB] = 10.0
    assert done()[WEB] == 55.0
    used[SLOW] = 0.0
    assert done()[SLOW] == 0.0
