"""All policies by name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recommender.base.errors import Misuse
from recommender.base.records import PolicyFunction
from recommender.policies.ai4dl import CycleRule, current_step, ground_truth, phase_rules, previous_step
from recommender.policies.histogram import decide_by_histogram

POLICIES: Mapping[str, Callable[[Any], PolicyFunction]] = {
    "ground.truth": lambda _: ground_truth,
    "current.step.max": lambda _: current_step(CycleRule.MAX),
    "current.step.rules": lambda _: current_step(CycleRule.RULES),
    "prev.step.max": lambda _: previous_step(CycleRule.MAX),
    "prev.step.rules": lambda _: previous_step(CycleRule.RULES),
    "phase.rules": lambda model: phase_rules(model.statistics.usage_mean, model.statistics.usage_sd),
    "histogram": lambda _: decide_by_histogram,
}
"""In the order of reports; each is made with a trained model, or None if it needs none."""

NEED_MODEL = frozenset({"phase.rules"})
ORACLES = frozenset({"ground.truth", "current.step.max", "current.step.rules"})
"""They read the future that they are judged on, for comparison only."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that allocates CPU and memory of a container for the coming cycle."""

    name: str
    decide: PolicyFunction
    oracle: bool = False
    every_sample: bool = False  # whether it decides at every sample instead of once per cycle


def make_policy(name: str, model: Any = None) -> Policy:
    """Make the policy called `name`, with a model if it needs one."""
    check_names([name])
    return Policy(name, POLICIES[name](model), name in ORACLES, every_sample=name == "ground.truth")


def check_names(names: Iterable[str], others: Sequence[str] = ()) -> None:
    """Raise an error for a name that is neither a policy nor one of the others, with the closest match."""
    known = dict.fromkeys((*others, *POLICIES))
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]!r}? " if near else ""
            raise Misuse(f"there is no policy {name!r}. {hint}Known: {', '.join(known)}.")
