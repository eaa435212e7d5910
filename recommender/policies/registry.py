"""Every policy by its name, in the order in which reports list them."""

from __future__ import annotations

from recommender.policies.base import Registry
from recommender.policies.histogram import HistogramPolicy
from recommender.policies.oracle import CurrentStep, GroundTruth
from recommender.policies.phase_rules import PhaseRules
from recommender.policies.proactive import ProactivePolicy
from recommender.policies.reactive import CycleRule, PrevStep


def standard_policies() -> Registry:
    """A registry of all policies."""
    registry = Registry()
    registry.add("ground.truth", lambda _: GroundTruth())
    registry.add("current.step.max", lambda _: CurrentStep("current.step.max", CycleRule.MAX))
    registry.add("current.step.rules", lambda _: CurrentStep("current.step.rules", CycleRule.RULES))
    registry.add("prev.step.max", lambda _: PrevStep("prev.step.max", CycleRule.MAX))
    registry.add("prev.step.rules", lambda _: PrevStep("prev.step.rules", CycleRule.RULES))
    registry.add("phase.rules", PhaseRules, needs_model=True)
    registry.add("phase.proactive", ProactivePolicy, needs_model=True)
    registry.add("histogram", lambda _: HistogramPolicy())
    return registry


REGISTRY = standard_policies()
