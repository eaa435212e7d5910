"""What may be published of an estimate: the default recommender's rules as a table, then invariants."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import RESOURCES, Amounts, ContainerPolicy, ContainerRecommendation
from recommender.policies.constraints import (
    SharedLimits,
    at_most,
    constrain,
    constrain_again,
    integer_cpu_containers,
    pod_share,
)
from recommender.policies.histogram import Estimate

MIB = 2.0**20
NAN = math.nan


Rules = partial(ContainerPolicy, "main")


def estimate(cpu: float = 0.587, memory_mib: float = 600) -> Estimate:
    target = np.array([cpu, memory_mib * MIB])
    return Estimate(lower=target * 0.5, target=target, upper=target * 2)


def publish(
    rules: ContainerPolicy = Rules(),  # noqa: B008
    shared: SharedLimits = SharedLimits(),  # noqa: B008
    *,
    whole_cores: bool = False,
    **amounts: float,
) -> ContainerRecommendation:
    (found,) = constrain({"main": estimate(**amounts)}, lambda _: rules, shared, {"main"} if whole_cores else ())
    return found


def test_an_estimate_inside_all_limits_is_published_as_it_is() -> None:
    found = publish()
    assert found == ContainerRecommendation(
        "main",
        target=(0.587, 600 * MIB),
        lower=(0.294, 300 * MIB),  # 293.5m in whole millicores, rounded up
        upper=(1.174, 1200 * MIB),
        uncapped=(0.587, 600 * MIB),
    )


CASES: dict[str, tuple[dict[str, Any], dict[str, Amounts], list[str]]] = {
    "minAllowed raises target and bounds, not the uncapped target": (
        {"rules": Rules(min_allowed=(1.0, None))},
        {
            "target": (1.0, 600 * MIB),
            "lower": (1.0, 300 * MIB),
            "upper": (1.174, 1200 * MIB),
            "uncapped": (0.587, 600 * MIB),
        },
        ["MinAllowed: cpu 587m -> 1.00"],
    ),
    "maxAllowed lowers target and bounds, not the uncapped target": (
        {"rules": Rules(max_allowed=(None, 400 * MIB))},
        {
            "target": (0.587, 400 * MIB),
            "lower": (0.294, 300 * MIB),
            "upper": (1.174, 400 * MIB),
            "uncapped": (0.587, 600 * MIB),
        },
        ["MaxAllowed: memory 600Mi -> 400Mi"],
    ),
    "the maximum wins over the minimum": (
        {"rules": Rules(min_allowed=(2.0, None), max_allowed=(1.0, None))},
        {"target": (1.0, 600 * MIB), "lower": (1.0, 300 * MIB), "upper": (1.0, 1200 * MIB)},
        ["MinAllowed: cpu 587m -> 2.00", "MaxAllowed: cpu 2.00 -> 1.00"],
    ),
    "the global maximum holds where the policy has none": (
        {"rules": Rules(max_allowed=(0.5, None)), "shared": SharedLimits(maximum=(0.1, 512 * MIB))},
        {"target": (0.5, 512 * MIB)},
        ["MaxAllowed: cpu 587m -> 500m", "GlobalMaximum: memory 600Mi -> 512Mi"],
    ),
    "limits of zero have no effect": (
        {"rules": Rules(min_allowed=(0.0, 0.0), max_allowed=(0.0, 0.0)), "shared": SharedLimits(maximum=(0.0, 0.0))},
        {"target": (0.587, 600 * MIB), "upper": (1.174, 1200 * MIB)},
        [],
    ),
    "whole cores: all four, before the caps": (
        {"whole_cores": True},
        {
            "target": (1.0, 600 * MIB),
            "lower": (1.0, 300 * MIB),
            "upper": (2.0, 1200 * MIB),
            "uncapped": (1.0, 600 * MIB),
        },
        ["IntegerCpu: cpu 587m -> 1.00"],
    ),
    "a cap may still leave a part of a core": (
        {"whole_cores": True, "rules": Rules(max_allowed=(0.8, None))},
        {"target": (0.8, 600 * MIB), "uncapped": (1.0, 600 * MIB)},
        ["IntegerCpu: cpu 587m -> 1.00", "MaxAllowed: cpu 1.00 -> 800m"],
    ),
    "rounding up to multiples: all four, before the caps": (
        {
            "shared": SharedLimits(round_cpu_millicores=50, round_memory_bytes=128 * 2**20),
            "rules": Rules(max_allowed=(0.59, None)),
        },
        {
            "target": (0.59, 640 * MIB),
            "lower": (0.3, 384 * MIB),
            "upper": (0.59, 1280 * MIB),
            "uncapped": (0.6, 640 * MIB),
        },
        ["MaxAllowed: cpu 600m -> 590m"],
    ),
    "rounding up to a multiple far above all amounts": (
        {"shared": SharedLimits(round_cpu_millicores=10**9, round_memory_bytes=2**60)},
        {"target": (1e6, 2.0**60)},
        [],
    ),
    "rounding to zero or less has no effect": (
        {"shared": SharedLimits(round_cpu_millicores=0, round_memory_bytes=-5)},
        {"target": (0.587, 600 * MIB)},
        [],
    ),
    "a resource that is not controlled is not recommended": (
        {"rules": Rules(controlled=frozenset({"memory"}))},
        {
            "target": (NAN, 600 * MIB),
            "lower": (NAN, 300 * MIB),
            "upper": (NAN, 1200 * MIB),
            "uncapped": (NAN, 600 * MIB),
        },
        [],
    ),
    "the pod minimum holds for target and bounds": (
        {"cpu": 0.001, "memory_mib": 1},
        {
            "target": (0.025, 250 * MIB),
            "lower": (0.025, 250 * MIB),
            "upper": (0.025, 250 * MIB),
            "uncapped": (0.025, 250 * MIB),
        },
        ["PodMinimum: cpu 1m -> 25m", "PodMinimum: memory 1Mi -> 250Mi"],
    ),
    "maxAllowed may go below the pod minimum": (
        {"cpu": 0.001, "memory_mib": 1, "rules": Rules(max_allowed=(0.01, 100 * MIB))},
        {"target": (0.01, 100 * MIB)},
        [
            "PodMinimum: cpu 1m -> 25m",
            "MaxAllowed: cpu 25m -> 10m",
            "PodMinimum: memory 1Mi -> 250Mi",
            "MaxAllowed: memory 250Mi -> 100Mi",
        ],
    ),
    "huge upper bounds are capped, too": (
        {"cpu": 1e11 / 2, "rules": Rules(max_allowed=(4.0, None))},
        {"target": (4.0, 600 * MIB), "lower": (4.0, 300 * MIB), "upper": (4.0, 1200 * MIB)},
        ["MaxAllowed: cpu 50000000000 -> 4.00"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_limits_constrain_the_estimate_of_a_container(case: str) -> None:
    arguments, wanted, limits = CASES[case]
    found = publish(**arguments)
    for name, amounts in wanted.items():
        assert getattr(found, name) == pytest.approx(amounts, rel=1e-12, nan_ok=True), name
    assert [str(limit) for limit in found.limits] == limits


@pytest.mark.parametrize(
    ("containers", "cpu_cores", "memory_bytes"),
    [(1, 0.025, 262144000), (2, 0.012, 131072000), (3, 0.008, 87381333), (0, 0.025, 262144000)],
)
def test_the_pod_minimum_is_shared_and_truncated(containers: int, cpu_cores: float, memory_bytes: float) -> None:
    assert pod_share(SharedLimits().pod_minimum, containers) == (cpu_cores, memory_bytes)


def test_a_lower_bound_below_the_pod_minimum_is_raised_although_the_target_is_above_it() -> None:
    found = publish(cpu=0.04)
    assert (found.lower[0], found.target[0], found.upper[0]) == (0.025, 0.04, 0.08)


def test_containers_that_are_off_do_not_share_the_pod_minimum() -> None:
    small = estimate(cpu=0.001, memory_mib=1)
    off = {"b"}
    found = constrain(
        {"c": small, "b": small, "a": small}, lambda name: Rules(mode="Off" if name in off else "Auto"), SharedLimits()
    )
    assert [(one.container, one.target) for one in found] == [("a", (0.012, 125 * MIB)), ("c", (0.012, 125 * MIB))]


def test_a_container_without_controlled_resources_still_shares_the_pod_minimum() -> None:
    small = estimate(cpu=0.001, memory_mib=1)
    found = constrain(
        {"a": small, "b": small}, lambda name: Rules(controlled=frozenset() if name == "a" else frozenset(RESOURCES)),
        SharedLimits(),
    )  # fmt: skip
    assert [(one.container, one.target) for one in found] == [("b", (0.012, 125 * MIB))]


@pytest.mark.parametrize(
    ("rules", "target"),
    [
        (Rules(), (3.0, 5 * MIB)),
        (Rules(max_allowed=(2.0, None)), (2.0, 5 * MIB)),
        (Rules(min_allowed=(None, 6 * MIB)), (3.0, 6 * MIB)),
        (Rules(controlled=frozenset({"memory"})), (NAN, 5 * MIB)),
        (Rules(mode="Off"), None),
        (Rules(controlled=frozenset()), None),
    ],
)
def test_a_published_recommendation_is_constrained_again(rules: Rules, target: tuple[float, float] | None) -> None:
    amounts = (3.0, 5 * MIB)
    found = constrain_again(
        ContainerRecommendation("main", amounts, amounts, amounts, amounts), rules, SharedLimits(maximum=(9.0, None))
    )
    if target is None or found is None:
        assert found is target is None
        return
    for bound in (found.target, found.lower, found.upper):
        assert bound == pytest.approx(target, nan_ok=True)
    assert found.uncapped[1] == 5 * MIB


def test_annotations_choose_the_containers_with_whole_cores() -> None:
    prefix = "vpa-post-processor.kubernetes.io/"
    annotations = {f"{prefix}a_integerCPU": "true", f"{prefix}b_integerCPU": "True", f"{prefix}d_integerCPU": "true"}
    assert integer_cpu_containers(annotations, ["a", "b", "c"]) == {"a"}


amount = st.floats(0.0, 64.0)
limit = st.one_of(st.none(), st.floats(0.001, 64.0).map(lambda cores: round(cores, 3)))


@given(cpu=amount, minimum=limit, maximum=limit, common=limit, step=st.integers(-1, 500), whole=st.booleans())
def test_for_any_limits_bounds_stay_in_order_and_caps_hold(
    cpu: float, minimum: float | None, maximum: float | None, common: float | None, step: int, whole: bool
) -> None:
    shared = SharedLimits(maximum=(common, None), round_cpu_millicores=step)
    found = publish(Rules(min_allowed=(minimum, None), max_allowed=(maximum, None)), shared, whole_cores=whole, cpu=cpu)
    assert found.lower[0] <= found.target[0] <= found.upper[0]
    highest = maximum if maximum is not None else common
    assert highest is None or found.target[0] <= highest
    assert minimum is None or highest is not None or found.target[0] >= minimum
    for cores in (found.target[0], found.lower[0], found.upper[0], found.uncapped[0]):
        assert round(cores, 3) == cores, "whole millicores"


def test_a_namespace_has_its_own_maximum_and_the_smaller_one_counts() -> None:
    shared = SharedLimits(
        maximum=(2.0, None), namespace_maximum={"small": (0.5, 400 * MIB), "large": (8.0, None), "memory": (None, 1.0)}
    )
    assert shared.within("elsewhere").maximum == (2.0, None)
    assert shared.within("small").maximum == (0.5, 400 * MIB)
    assert shared.within("large").maximum == (2.0, None)
    assert shared.within("memory").maximum == (2.0, 1.0)
    found = publish(shared=shared.within("small"))
    assert (found.target, found.uncapped) == ((0.5, 400 * MIB), (0.587, 600 * MIB))


def test_the_oom_bump_of_a_vpa_overrides_the_operators_and_that_the_default() -> None:
    operator = SharedLimits(oom_bump_up_ratio=1.5, oom_min_bump_up_bytes=10.0)
    assert operator.oom_bump(Rules()) == (1.5, 10.0)
    assert operator.oom_bump(Rules(oom_bump_up_ratio=2.0, oom_min_bump_up_bytes=0.0)) == (2.0, 0.0)
    assert SharedLimits().oom_bump(Rules(oom_bump_up_ratio=2.0)) == (2.0, None)


def test_a_target_is_cut_to_the_most_that_a_container_can_have_but_not_its_upper_bound() -> None:
    one = ContainerRecommendation("main", (3.0, math.nan), (2.0, math.nan), (4.0, math.nan), (3.0, math.nan))
    cut = at_most(one, (1.5, 1.0), "ContainerLimit")
    assert (cut.target[0], cut.lower[0], cut.upper[0], cut.uncapped[0]) == (1.5, 1.5, 4.0, 3.0)
    assert list(map(str, cut.limits)) == ["ContainerLimit: cpu 3.00 -> 1.50"]
    assert at_most(one, (3.0, 1.0), "ContainerLimit").limits == ()
