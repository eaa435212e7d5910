"""What a policy is, and the registry that finds one by its name."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from recommender.errors import Misuse
from recommender.records import Block, ContainerFacts, FloatArray


class PolicyModel(Protocol):
    """What the policies that learned something need of a model."""

    @property
    def phase_mean(self) -> FloatArray:
        """float64 (k, 2): mean use in each phase, cores and bytes."""

    @property
    def phase_sd(self) -> FloatArray:
        """float64 (k, 2): standard deviation of the use in each phase, cores and bytes."""

    @property
    def demand(self) -> Any:
        """What phases need and what violations cost, a `DemandModel`."""

    def occupancy(self, lead_samples: int, ahead_samples: int) -> FloatArray:
        """The expected share of some coming time in each phase, by context (`kernels.occupancy`)."""

    @property
    def target_violation(self) -> tuple[float, float]:
        """Share of samples that may violate, cpu and memory."""


class Session(Protocol):
    """One container under one policy. It keeps what it has seen, so a series may come in pieces.

    Cutting a series into pieces at decisions changes nothing: the conformance suite holds every policy to that.
    """

    def advance(self, block: Block) -> FloatArray:
        """Take in the next samples and decide where the block says so.

        Returns
        -------
        float64 (d, 2)
            Cores and bytes allocated from each decision of the block on; NaN where there has been no sample yet.
        """

    def explain(self) -> Mapping[str, Any]:
        """Why the last decision is what it is, in words and numbers a person can follow.

        Ready for JSON; holds at least `rule` (what was done, in words), `cpu_cores` and `memory_bytes`.
        """


class Policy(Protocol):
    """How much CPU and memory a container gets for the coming cycle."""

    name: str
    oracle: bool
    """True when the policy reads the future it is judged on; such a one is a yardstick, not a choice."""
    every_sample: bool
    """True when it decides at every sample instead of once per cycle (only `ground.truth`)."""

    def start(self, container: ContainerFacts) -> Session:
        """A session for a container of which no sample was seen yet."""


@dataclass(slots=True)
class Registry:
    """Policies by name, each with the function that makes one from a model (or from None)."""

    makers: dict[str, Callable[[Any], Policy]] = field(default_factory=dict)
    needs_model: set[str] = field(default_factory=set)

    def add(self, name: str, make: Callable[[Any], Policy], *, needs_model: bool = False) -> None:
        self.makers[name] = make
        if needs_model:
            self.needs_model.add(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self.makers)

    def make(self, name: str, model: Any = None) -> Policy:
        """The policy called `name`; `model` is handed to those that need one."""
        self.check([name])
        return self.makers[name](model)

    def check(self, names: Iterable[str], besides: Sequence[str] = ()) -> None:
        """Refuse an unknown name that is not one of those besides, and say which known one is nearest."""
        known = dict.fromkeys((*besides, *self.makers))
        for name in names:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"Did you mean {near[0]!r}? " if near else ""
                raise Misuse(f"there is no policy {name!r}. {hint}Known: {', '.join(known)}.")
