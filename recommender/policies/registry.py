"""Every policy by its name, in the order in which reports list them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from recommender.errors import Misuse
from recommender.policies.ai4dl import CycleRule, current_step, ground_truth, phase_rules, previous_step
from recommender.policies.base import Decides, Policy
from recommender.policies.histogram import decide_by_histogram
from recommender.policies.proactive import proactive


class Listed(NamedTuple):
    """A policy, and what makes it from a model (or from None)."""

    name: str
    make: Callable[[Any], Decides]
    oracle: bool = False
    every_sample: bool = False
    needs_model: bool = False


class Registry:
    """Policies by name."""

    def __init__(self, *listed: Listed) -> None:
        self._listed = {one.name: one for one in listed}
        self.needs_model = frozenset(one.name for one in listed if one.needs_model)

    def names(self) -> tuple[str, ...]:
        return tuple(self._listed)

    def make(self, name: str, model: Any = None) -> Policy:
        """The policy called `name`; `model` is handed to those that need one."""
        self.check([name])
        one = self._listed[name]
        return Policy(name, one.make(model), one.oracle, one.every_sample)

    def check(self, names: Iterable[str], besides: Sequence[str] = ()) -> None:
        """Refuse an unknown name that is not one of those besides, and say which known one is nearest."""
        known = dict.fromkeys((*besides, *self._listed))
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                raise Misuse(f"there is no policy {name!r}. {hint}Known: {', '.join(known)}.")


REGISTRY = Registry(
    Listed("ground.truth", lambda _: ground_truth, oracle=True, every_sample=True),
    Listed("current.step.max", lambda _: current_step(CycleRule.MAX), oracle=True),
    Listed("current.step.rules", lambda _: current_step(CycleRule.RULES), oracle=True),
    Listed("prev.step.max", lambda _: previous_step(CycleRule.MAX)),
    Listed("prev.step.rules", lambda _: previous_step(CycleRule.RULES)),
    Listed("phase.rules", phase_rules, needs_model=True),
    Listed("phase.proactive", proactive, needs_model=True),
    Listed("histogram", lambda _: decide_by_histogram),
)
