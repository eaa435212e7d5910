"""Choose the model of each container in a dry run, and the policies that can run with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from recommender.base.errors import BadArtifact
from recommender.base.records import UsageSeries
from recommender.base.units import format_duration
from recommender.learning.model import PhaseModel, name_hashes
from recommender.learning.training import CrossFit
from recommender.phases.features import source_columns
from recommender.policies.registry import NEED_MODEL, POLICIES, Policy, check_names, make_policy
from recommender.replaying.replay import Plan


@dataclass
class Planner:
    """Makes the plan of each container: its policies and phases."""

    policies: tuple[str, ...]  # names in the order of reports
    model: PhaseModel | CrossFit | None  # one model for all containers, models by fold, or None if no policy needs one
    _made: dict[int, list[Policy]] = field(default_factory=dict, repr=False)

    def __call__(self, series: UsageSeries) -> Plan:
        model = self.model_for(series.container)
        key = id(model)
        if key not in self._made:
            self._made[key] = [make_policy(name, model) for name in self.policies]
        needs_phases = not NEED_MODEL.isdisjoint(self.policies)
        return Plan(self._made[key], model.detector.trace(series) if model is not None and needs_phases else None)

    def model_for(self, container: str) -> PhaseModel | None:
        """The model for a container; of several, the one that was not trained on it."""
        return self.model.model_for(container) if isinstance(self.model, CrossFit) else self.model

    def any_model(self) -> PhaseModel | None:
        """The model to describe phases by: the only one, or the first fold's."""
        return self.model.models[0] if isinstance(self.model, CrossFit) else self.model


def usable_policies(
    asked: Sequence[str], model: PhaseModel | None, rows: Mapping[str, bool]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and policies that can run with this model, and a note on each that cannot.

    `asked`: names given by the user, empty for all; BadArtifact if one of them cannot run, Misuse if it is unknown.
    `rows`: those of the simulated cluster, and whether each needs a model.
    """
    check_names(asked, tuple(rows))
    chosen = tuple(name for name in dict.fromkeys((*rows, *POLICIES)) if not asked or name in asked)
    unusable = {name: why for name in chosen if (why := _why_unusable(name, model, rows))}
    if unusable and asked:
        name, why = next(iter(unusable.items()))
        raise BadArtifact(f"{name}: the model does not support this policy: {why}. Train a model on suitable data.")
    notes = tuple(f"{name} is left out: {why}." for name, why in unusable.items())
    return tuple(name for name in chosen if name not in unusable), notes


def _why_unusable(name: str, model: PhaseModel | None, rows: Mapping[str, bool]) -> str:
    """Why a row or policy cannot run with a model; empty if it can, or without a model."""
    if model is None or not rows.get(name, name in NEED_MODEL):
        return ""
    if model.demand is None:
        return "the model was imported and has phases only"
    if name in rows and (foreign := source_columns(model.detector.features)):
        return f"the model needs {', '.join(foreign)}, which live metrics do not have"
    return ""


def seen_in_training(model: PhaseModel | None, series: Sequence[UsageSeries]) -> int | None:
    """Number of series known from training: of the same name, begun before its data ended; None if not recorded."""
    if model is None:
        return 0
    if model.trained_on is None:
        return None
    before = [one for one in series if one.timestamps[0] <= model.facts.get("until_s", math.inf)]
    return int(np.isin(name_hashes(before), model.trained_on).sum())


def seen_notes(seen: int | None, containers: int) -> tuple[str, ...]:
    """A warning where a model is, or may be, judged on its training data."""
    if seen == 0:
        return ()
    if seen is None:
        return ("the model does not record what it was trained on: it may be judged on its training data here.",)
    return (
        f"the model was trained on {seen} of the {containers} containers that are replayed, which makes it look better "
        "than it is. Replay later runs, or leave out --model.",
    )


def model_facts(model: PhaseModel | CrossFit | None, seen: int | None) -> dict[str, object]:
    """Facts on the model for a report; it was trained on `seen` of the containers."""
    if model is None:
        return {"origin": "none"}
    if isinstance(model, CrossFit):
        folds = [m.detector.n_phases for m in model.models]
        first = model.models[0]
        origin: Mapping[str, object] = {"origin": f"cross-fitted by container, {len(folds)} folds", "phases": folds}
    else:
        first = model
        origin = {"origin": model.origin, "phases": model.detector.n_phases}
    return {
        **origin,
        "features": list(first.detector.features),
        "lag": first.detector.lag,
        "seen_in_training": seen,
        **{k: first.facts[k] for k in ("step_s", "cycle_s", "target_violation", "seed") if k in first.facts},
    }


def mismatch_notes(model: PhaseModel | None, step_s: float, cycle_s: float = 0.0) -> tuple[str, ...]:
    """A warning where the sampling rate or the cycle differs from those of training."""
    if model is None or "step_s" not in model.facts:
        return ()
    notes = []
    for what, trained, here in (("step", model.facts["step_s"], step_s), ("cycle", model.facts["cycle_s"], cycle_s)):
        if here > 0 and trained > 0 and not 0.8 <= here / trained <= 1.25:
            notes.append(
                f"the model was trained at a {what} of {format_duration(trained)}, here it is {format_duration(here)}: "
                "its phases and forecasts may not fit. Train on similar data."
            )
    return tuple(notes)
