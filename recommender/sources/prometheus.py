"""Saved answers of the Prometheus HTTP API (`query_range`) become rows in normal form.

One file holds one query's answer, so cpu, memory and requests usually come in several files; all of a source are read
together and joined by container and moment. Which series is which is told by `--map`, by the metric's name, or, since
rate() drops the name, by the file's name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from recommender.errors import BadInput
from recommender.records import FloatArray
from recommender.sources.answers import AnswerSeries, read_answer
from recommender.sources.base import (
    CPU_COLUMN,
    LABEL_COLUMNS,
    MEMORY_COLUMN,
    NAME_COLUMNS,
    REQUEST_COLUMNS,
    Origins,
    RawSamples,
    Reader,
    ReadOptions,
    schema,
)
from recommender.sources.prometheus_queries import CPU_METRIC, MEMORY_METRIC, REQUESTS_METRIC, is_counter

_REQUEST_OF = dict(zip(("cpu", "memory"), REQUEST_COLUMNS, strict=True))

_OLD_LABELS = {"pod": "pod_name", "container": "container_name"}
"""What kubelets before Kubernetes 1.16 called them."""

OVERLAP_OF_RESTARTS = 0.25
"""The series of a restarted container overlap by Prometheus' five minutes of staleness; more are different things."""

_NO_USE = ("limit", "quota", "throttl")
"""What bounds use, or tells of use that was refused, is not taken for use by the name of its file."""

_STALE_S = 300.0
"""How long a request stands without being scraped again: Prometheus' own look-back."""

NAMED_AT_MOST = 5

_NOTHING = pd.Series(dtype=np.float64, index=pd.Index([], dtype=np.float64))
"""Curves are values by unix seconds, increasing."""


@dataclass(frozen=True, slots=True)
class _Role:
    """What a series stands for."""

    column: str
    factor: float = 1.0
    counter: bool = False


@dataclass(slots=True)
class _Container:
    """What the answers say of one container: series by role, and its label texts."""

    series: dict[_Role, list[AnswerSeries]] = field(default_factory=lambda: defaultdict(list))
    texts: dict[str, str] = field(default_factory=dict)


def open_answers(files: Sequence[Path], options: ReadOptions) -> Reader:
    """All saved answers of a source. They are read and joined at once; JSON does not come in batches.

    Raises
    ------
    BadInput
        An answer that is none, or no series for cpu or memory among them.
    """
    containers: dict[str, _Container] = defaultdict(_Container)
    metrics: set[str] = set()
    foreign = {name for file in files for name in _names_of(file)}
    for file in files:
        answer = list(read_answer(file))
        here = {series.metric for series in answer}
        metrics |= here - {""}
        foreign |= here.union(*(series.labels for series in answer)) - {""}
        named = [(series, _labels(series, options)) for series in answer]
        whole_pods = not any("container" in labels for _, labels in named)
        for series, labels in named:
            role = _role(series, len(here) == 1, options)
            if role is None or not (whole_pods or labels.get("container") not in (None, "", "POD")):
                continue
            name = "/".join(labels[label] for label in NAME_COLUMNS if labels.get(label))
            if not name:
                remedy = "Sum by (namespace, pod, container), or name labels: `--map container=LABEL`."
                raise series.refuse("no label says which container it is", remedy, None, "container")
            containers[name].series[role].append(series)
            containers[name].texts.update({label: labels[label] for label in LABEL_COLUMNS if label in labels})
    _require(containers, files[0], metrics, options)
    rows = _rows(containers)

    def samples(origins: Origins, batched: bool) -> Iterator[RawSamples]:
        del batched
        yield replace(rows, rows=origins.take(len(rows)))

    kinds = schema(rows.values, rows.labels)
    return Reader(files[0], sorted(foreign), kinds, rows.as_table().nbytes, lambda column: column, samples)


def _labels(series: AnswerSeries, options: ReadOptions) -> dict[str, str]:
    """Our labels by our names; `--map` may name others."""
    found = {}
    for name in (*NAME_COLUMNS, *LABEL_COLUMNS):
        foreign = [mapped.old for mapped in options.columns if mapped.new == name] or [
            name,
            _OLD_LABELS.get(name, name),
        ]
        value = next((series.labels[label] for label in foreign if label in series.labels), None)
        if value is not None:
            found[name] = value
    return found


def _role(series: AnswerSeries, only_metric: bool, options: ReadOptions) -> _Role | None:
    """By `--map`, by metric name, by file name where the file holds one metric; None for what nobody asked for."""
    metric, file_name = series.metric, series.file.name
    counter = is_counter(metric)
    for mapped in options.columns:
        if mapped.old in (metric, *_names_of(series.file)):
            return _Role(mapped.new, mapped.factor, counter)
    if metric in options.features:
        return _Role(metric, 1.0, counter)
    if REQUESTS_METRIC in metric:
        column = _REQUEST_OF.get(series.labels.get("resource", ""))
        return None if column is None else _Role(column)
    if CPU_METRIC in metric:
        return _Role(CPU_COLUMN, 1.0, counter)
    if MEMORY_METRIC in metric:
        return _Role(MEMORY_COLUMN)
    about = [resource for resource in ("cpu", "memory") if resource in file_name.lower()]
    no_use = any(word in f"{file_name} {metric}".lower() for word in _NO_USE)
    if not only_metric or len(about) != 1 or no_use:
        return None
    if "request" in file_name.lower():
        return _Role(_REQUEST_OF[about[0]])
    return _Role(CPU_COLUMN if about == ["cpu"] else MEMORY_COLUMN, 1.0, counter)


def _names_of(file: Path) -> tuple[str, str]:
    return file.name, file.name.split(".json")[0]


def _require(containers: Mapping[str, _Container], file: Path, metrics: set[str], options: ReadOptions) -> None:
    present = {role.column for container in containers.values() for role in container.series}
    for column in (CPU_COLUMN, MEMORY_COLUMN, *options.features):
        if column not in present:
            known = ", ".join(sorted(metrics)[:NAMED_AT_MOST]) or "none that has a name"
            raise BadInput(
                f"no series is known to be {column}; metrics here: {known}",
                remedy=f"Save its query_range answer beside this one, or name metric or file: `--map {column}=METRIC`.",
                file=file,
                column=column,
            )


def _rows(containers: Mapping[str, _Container]) -> RawSamples:
    """All containers below one another."""
    names = list(containers)
    frames = [_joined(name, containers[name]) for name in names]
    rows = pd.concat(frames)
    codes = pa.array(np.repeat(np.arange(len(names), dtype=np.int32), [len(frame) for frame in frames]))
    labels = {}
    for label in LABEL_COLUMNS:
        texts = pa.array([containers[name].texts.get(label) for name in names], pa.string())
        if texts.null_count < len(texts):
            labels[label] = texts.take(codes).dictionary_encode()
    return RawSamples(
        pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())),
        rows.index.to_numpy(np.float64),
        {str(column): rows[column].to_numpy(np.float64) for column in rows},
        labels,
        np.arange(len(rows)),
    )


def _joined(name: str, container: _Container) -> pd.DataFrame:
    """One container's columns on common moments: those of cpu, and of memory where cpu has none.

    Queries saved with other start times are a fraction of a step apart; they are moved to cpu's moments. Gaps at either
    end, such as the moment before the first rate, are left out.
    """
    curves = {role.column: _curve(name, role, series) for role, series in container.series.items()}
    declared = {column: curves.pop(column) for column in REQUEST_COLUMNS if column in curves}
    if CPU_COLUMN in curves:
        curves = {column: _aligned(curve, curves[CPU_COLUMN].index) for column, curve in curves.items()}
    use = pd.DataFrame({column: curves.get(column, _NOTHING) for column in (CPU_COLUMN, MEMORY_COLUMN)})
    inside = np.flatnonzero(use.notna().all(axis=1))
    times_s = use.index[inside[0] : inside[-1] + 1] if len(inside) else use.index[:0]
    columns = {column: curve.reindex(times_s) for column, curve in curves.items()}
    columns |= {
        column: curve.reindex(times_s, method="ffill", tolerance=_STALE_S) for column, curve in declared.items()
    }
    return pd.DataFrame(columns)


def _curve(name: str, role: _Role, series: Sequence[AnswerSeries]) -> pd.Series:
    """One curve out of all series of one role: parts of one series are put together, a restart's new series goes on.

    Raises
    ------
    BadInput
        Series that run side by side with different values.
    """
    by_labels: dict[tuple[tuple[str, str], ...], list[AnswerSeries]] = defaultdict(list)
    for one in series:
        by_labels[tuple(sorted(one.labels.items()))].append(one)
    parts = [(group[-1], _one_curve(role, group)) for group in by_labels.values()]
    parts = sorted((part for part in parts if len(part[1])), key=lambda part: float(part[1].index[0]))
    whole = parts[0][1] if parts else _NOTHING
    for one, later in parts[1:]:
        common = later.index.intersection(whole.index)
        differ = int((whole[common] != later[common]).sum())
        if differ > max(1.0, OVERLAP_OF_RESTARTS * min(len(whole), len(later))):
            problem = f"{name} has several series side by side, different at {differ} of {len(common)} moments"
            remedy = "Sum them in the query: `sum by (namespace, pod, container) (...)`."
            raise one.refuse(problem, remedy, int(later.index.searchsorted(common[0])) + 1, role.column)
        whole = later.combine_first(whole)
    return whole * role.factor


def _one_curve(role: _Role, group: Sequence[AnswerSeries]) -> pd.Series:
    """One series, from however many answers, sorted; a counter becomes its rate.

    Raises
    ------
    BadInput
        Two answers give different values for one moment, or use is below zero.
    """
    all_s, given = np.concatenate([one.times_s for one in group]), np.concatenate([one.values for one in group])
    order = np.lexsort((np.isnan(given), all_s))  # stable; what says nothing comes last
    all_s, given = all_s[order], given[order]
    differ = (np.diff(all_s) == 0) & (np.diff(given) != 0) & ~np.isnan(given[1:])
    if differ.any():
        at = int(np.argmax(differ))
        ends = np.cumsum([len(one.times_s) for one in group])
        one, other = (group[int(np.searchsorted(ends, row, side="right"))] for row in order[at : at + 2])
        problem = f"two different values for one moment: {given[at + 1]:g} here, {given[at]:g} in {one.file}"
        row = int(np.flatnonzero(other.times_s == all_s[at])[0]) + 1
        raise other.refuse(problem, "Name only one of the two files.", row, role.column)
    times_s, first = np.unique(all_s, return_index=True)
    values = given[first]
    here = ~np.isnan(values)
    if role.counter:
        times_s, values = rate(times_s[here], values[here])
        return pd.Series(values, times_s)
    negative = values < 0
    if negative.any():
        row = int(np.argmax(negative))
        remedy = "Correct the query: use cannot be below zero."
        raise group[0].refuse(f"{values[row]:g} is negative", remedy, row + 1, role.column)
    return pd.Series(values, times_s)


def rate(times_s: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """How fast a counter grew up to each sample; a counter that falls was reset to zero in between.

    Parameters
    ----------
    times_s, counts
        float64 (n,), increasing seconds, and the counter.

    Returns
    -------
    times_s, rates
        float64 (n - 1,). NaN after a hole of two usual intervals or more: such a rate tells of the hole.

    Examples
    --------
    >>> rate(np.array([0.0, 10.0, 20.0]), np.array([5.0, 15.0, 5.0]))[1].tolist()
    [1.0, 0.5]
    """
    if len(times_s) < 2:
        return np.empty(0), np.empty(0)
    elapsed_s = np.diff(times_s)
    grown = np.diff(counts)
    rates = np.where(grown < 0, counts[1:], grown) / elapsed_s
    rates[elapsed_s >= 2 * np.median(elapsed_s)] = np.nan
    return times_s[1:], rates


def _aligned(curve: pd.Series, cpu_s: pd.Index) -> pd.Series:
    """The curve moved to cpu's moments where the two were asked for at others."""
    common = len(curve.index.intersection(cpu_s))
    if len(cpu_s) < 2 or not len(curve) or 2 * common >= min(len(curve), len(cpu_s)):
        return curve
    step_s = float(np.median(np.diff(cpu_s)))
    moved = curve.set_axis(cpu_s[0] + np.floor((curve.index - cpu_s[0]) / step_s + 0.5) * step_s)
    return moved[~moved.index.duplicated()]
