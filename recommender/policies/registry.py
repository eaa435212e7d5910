"""All policies by name, in the order of reports."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from recommender.errors import Misuse
from recommender.policies.ai4dl import CycleRule, current_step, ground_truth, phase_rules, previous_step
from recommender.policies.base import Policy, PolicyFunction
from recommender.policies.histogram import decide_by_histogram
from recommender.policies.proactive import proactive


class PolicyEntry(NamedTuple):
    """A policy with its factory, which takes a model or None."""

    name: str
    make: Callable[[Any], PolicyFunction]
    oracle: bool = False
    every_sample: bool = False
    needs_model: bool = False


class Registry:
    """Policies by name."""

    def __init__(self, *entries: PolicyEntry) -> None:
        self._entries = {entry.name: entry for entry in entries}
        self.needs_model = frozenset(entry.name for entry in entries if entry.needs_model)

    def names(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def make(self, name: str, model: Any = None) -> Policy:
        """Make the policy called `name`, with a model if it needs one."""
        self.check([name])
        entry = self._entries[name]
        return Policy(name, entry.make(model), entry.oracle, entry.every_sample)

    def check(self, names: Iterable[str], others: Sequence[str] = ()) -> None:
        """Raise an error for a name that is neither a policy nor one of the others, with the closest match."""
        known = dict.fromkeys((*others, *self._entries))
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                raise Misuse(f"there is no policy {name!r}. {hint}Known: {', '.join(known)}.")


REGISTRY = Registry(
    PolicyEntry("ground.truth", lambda _: ground_truth, oracle=True, every_sample=True),
    PolicyEntry("current.step.max", lambda _: current_step(CycleRule.MAX), oracle=True),
    PolicyEntry("current.step.rules", lambda _: current_step(CycleRule.RULES), oracle=True),
    PolicyEntry("prev.step.max", lambda _: previous_step(CycleRule.MAX)),
    PolicyEntry("prev.step.rules", lambda _: previous_step(CycleRule.RULES)),
    PolicyEntry("phase.rules", phase_rules, needs_model=True),
    PolicyEntry("phase.proactive", proactive, needs_model=True),
    PolicyEntry("histogram", lambda _: decide_by_histogram),
)
