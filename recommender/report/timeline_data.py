"""Timelines as the page's script draws them: small, exact where it matters, and plain JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recommender.records import CPU, MEMORY, FloatArray, IntArray, Timeline
from recommender.report.thinning import allocation_at, changes, moments, runs_of_labels, telling_points, violation_spans
from recommender.units import BYTES_PER_GIB, format_duration, format_memory

MOST_POINTS = 1500
MOST_CHANGES = 1500
_BINS = 600
_NOT_DRAWN = "ground.truth"  # it is the usage itself, a decision per sample
_UNITS = (1.0, BYTES_PER_GIB)


def timeline_data(timeline: Timeline, policies: Sequence[str], reasons_of: Sequence[str] = ()) -> dict[str, Any]:
    """One container for the page: seconds since its start, cores and GiB, None in gaps.

    Parameters
    ----------
    timeline
        As the replay drew it out.
    policies
        Names in the page's order; a policy is known to the script by its place.
    reasons_of
        Policies whose reasons are told, in this order; by default all.
    """
    drawn = [(i, name) for i, name in enumerate(policies) if name in timeline.decisions and name != _NOT_DRAWN]
    return {
        "container": timeline.container,
        "workload": timeline.workload,
        "start": int(timeline.timestamps[0]),
        "length": int(timeline.timestamps[-1] - timeline.timestamps[0]),
        "samples": len(timeline.timestamps),
        "usage": [_line(timeline, resource) for resource in (CPU, MEMORY)],
        "phases": [] if timeline.labels is None else runs_of_labels(timeline.timestamps, timeline.labels),
        "allocations": {str(i): _steps(timeline, *timeline.decisions[name]) for i, name in drawn},
        "marks": {str(i): marks for i, name in drawn if (marks := _marks(timeline, timeline.marks.get(name, {})))},
        "why": [
            {"policy": name, "facts": explained(timeline.explanations[name])}
            for name in reasons_of or policies
            if timeline.explanations.get(name)
        ],
    }


def explained(explanation: Mapping[str, object]) -> list[tuple[str, str]]:
    """An explanation, or facts of a model, as pairs of words; nested parts carry the names of what they are in."""
    pairs: list[tuple[str, str]] = []
    for key, value in explanation.items():
        words = re.sub(r"_(bytes|cores|s)$", "", str(key)).replace("_", " ")
        if isinstance(value, Mapping):
            pairs += [(f"{words}: {inner}", text) for inner, text in explained(value)]
        else:
            pairs.append((words, _in_words(str(key), value)))
    return pairs


def _in_words(key: str, value: object) -> str:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, str) or value is None or isinstance(value, bool | np.bool_):
        return {"True": "yes", "False": "no", "None": "–"}.get(str(value), str(value))
    if isinstance(value, Sequence | set | frozenset):
        return ", ".join(_in_words(key, item) for item in value)
    if isinstance(value, int | float | np.integer | np.floating):
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
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e12 else f"{value:.4g}"


def _line(timeline: Timeline, resource: int) -> dict[str, list[Any]]:
    values = timeline.usage[:, resource]
    kept = telling_points(values, MOST_POINTS)
    since = timeline.timestamps[kept] - timeline.timestamps[0]
    return {"t": since.tolist(), "v": _rounded(values[kept] / _UNITS[resource])}


def _steps(timeline: Timeline, times: IntArray, allocation: FloatArray) -> dict[str, Any]:
    kept = changes(times, allocation, MOST_CHANGES)
    held = allocation_at(timeline.timestamps, times, allocation)
    return {
        "t": (times[kept] - timeline.timestamps[0]).tolist(),
        "v": [_rounded(allocation[kept, resource] / _UNITS[resource]) for resource in (CPU, MEMORY)],
        "short": [
            violation_spans(timeline.timestamps, timeline.usage[:, resource], held[:, resource], _BINS)
            for resource in (CPU, MEMORY)
        ],
    }


def _marks(timeline: Timeline, marks: Mapping[str, IntArray]) -> dict[str, list[int]]:
    start, length = int(timeline.timestamps[0]), int(timeline.timestamps[-1] - timeline.timestamps[0])
    return {what: moments(times, start, length, _BINS) for what, times in marks.items() if len(times)}


def _rounded(values: FloatArray) -> list[float | None]:
    """Four significant digits are finer than any screen, and a third of the bytes."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in values.tolist()]
