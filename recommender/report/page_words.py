"""Texts of the page: what each policy does, facts of the model, and rows of the phase table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from recommender.base.units import format_cpu, format_duration, format_memory
from recommender.phases.statistics import PhaseStatistics

POLICY_WORDS = {
    "static": "The container's declared CPU and memory requests.",
    "histogram": "The default Vertical Pod Autoscaler's target: a percentile of a decaying histogram plus a margin.",
    "prev.step.max": "Reactive: the maximum use of the previous cycle.",
    "prev.step.rules": "Reactive: mean plus two standard deviations of the previous cycle.",
    "phase.rules": "AI4DL: mean plus two standard deviations of the phase detected just before the cycle.",
    "phasewise": (
        "Ours, as it runs live: phases, forecasts, earlier runs of the workload and all guard rails, applied by the "
        "updater of the simulated cluster."
    ),
    "vpa": "The default Vertical Pod Autoscaler's recommender, applied by the same updater.",
    "class.peak": "The largest peak of earlier runs of the workload plus 15 %, from the start of a run.",
    "krr": "The recommendation of KRR (95th percentile of CPU, largest memory plus 15 %) when a pod begins, and daily.",
    "phase.graph": (
        "The forecast alone: the demand of the next cycle from the phase, its age, the phases before, the present "
        "level and earlier runs of the workload. Its margin aims at the target share of violations."
    ),
    "flowcon": "FlowCon: CPU shares by the growth efficiency of the training loss.",
    "current.step.max": "Oracle: the maximum use of the next cycle, unknown in practice.",
    "current.step.rules": "Oracle: mean plus two standard deviations of the next cycle, unknown in practice.",
    "ground.truth": "Oracle: the use itself, sample by sample.",
}


def duration_words(seconds: float) -> str:
    """A duration for running text, with spaces before the units.

    >>> duration_words(600), duration_words(5400), duration_words(15)
    ('10 min', '1 h 30 min', '15 s')
    """
    pairs = re.findall(r"([\d.]+)([a-z]+)", format_duration(seconds))
    return " ".join(f"{count} {'min' if unit == 'm' else unit}" for count, unit in pairs)


def path_steps(path: Sequence[str]) -> list[tuple[int, ...]]:
    """The phases of each element of a prototype's path: one, or several that alternate.

    >>> path_steps(["1", "(0 2)*"])
    [(1,), (0, 2)]
    """
    return [tuple(int(phase) for phase in re.findall(r"\d+", element)) for element in path]


def feature_rows(table: PhaseStatistics) -> list[dict[str, Any]]:
    """One row per phase: number, description, share of time, containers, mean ± standard deviation of features."""
    rows = []
    for phase in range(table.n_phases):
        cpu, memory = table.usage_mean[phase]
        cpu_sd, memory_sd = table.usage_sd[phase]
        seen = bool(table.samples[phase])
        features = zip(table.features, table.feature_mean[phase], table.feature_sd[phase], strict=True)
        rows.append(
            {
                "phase": phase,
                "words": table.describe(phase),
                "share": table.share(phase),
                "containers": int(table.containers[phase]),
                "cpu": f"{format_cpu(cpu)} ± {format_cpu(cpu_sd)}" if seen else "–",
                "memory": f"{format_memory(memory)} ± {format_memory(memory_sd)}" if seen else "–",
                "features": [(name, f"{mean:.3g} ± {sd:.2g}") for name, mean, sd in features] if seen else [],
            }
        )
    return rows


def fact_pairs(explanation: Mapping[str, object]) -> list[tuple[str, str]]:
    """Flatten an explanation or the facts of a model into (label, text); nested labels get the outer one in front."""
    pairs: list[tuple[str, str]] = []
    for key, value in explanation.items():
        label = re.sub(r"_(bytes|cores|s)$", "", str(key)).replace("_", " ")
        if isinstance(value, Mapping):
            pairs += [(f"{label}: {inner}", text) for inner, text in fact_pairs(value)]
        else:
            pairs.append((label, _in_words(str(key), value)))
    return pairs


def _in_words(key: str, value: object) -> str:
    if isinstance(value, str | bool) or value is None:
        return {"True": "yes", "False": "no", "None": "–"}.get(str(value), str(value))
    if isinstance(value, Sequence | set | frozenset):
        return ", ".join(_in_words(key, item) for item in value)
    if isinstance(value, int | float):
        return _number_in_words(key, float(value))
    return str(value)


def _number_in_words(key: str, value: float) -> str:
    if key.endswith("bytes") and value >= 1024:
        text = format_memory(value)
        return f"{text[:-2]} {text[-2:]}B"
    if key.endswith("_s") and value > 0:
        return format_duration(round(value, 3))
    if key.endswith("cores"):
        return f"{value:.4g} cores"
    return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e12 else f"{value:.4g}"
