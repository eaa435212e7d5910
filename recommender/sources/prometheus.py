"""Read saved answers of the Prometheus HTTP API (`query_range`) as rows in normal form.

A file holds the answer to one query, so cpu, memory and requests are usually in several files, which are joined by
container and time. `--map`, the metric name or, since rate() drops that, the file name give the role of a series.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa

from recommender.base.errors import BadInput
from recommender.base.records import FloatArray
from recommender.sources.base import (
    CPU_COLUMN,
    LABEL_COLUMNS,
    MEMORY_COLUMN,
    NAME_COLUMNS,
    REQUEST_COLUMNS,
    VALUE_COLUMNS,
    Origins,
    RawSamples,
    Reader,
    ReadOptions,
    listed,
    schema,
)
from recommender.sources.checks import LARGEST_NUMBER
from recommender.sources.paths import damaged_gzip, is_gzip, open_decompressed
from recommender.sources.prometheus_queries import CPU_METRIC, MEMORY_METRIC, REQUESTS_METRIC, is_counter

_REQUEST_COLUMN = dict(zip(("cpu", "memory"), REQUEST_COLUMNS, strict=True))

_LEGACY_LABELS = {"pod": "pod_name", "container": "container_name"}
"""Label names of kubelets before Kubernetes 1.16."""

MAX_RESTART_OVERLAP = 0.25
"""Series of a restarted container overlap by the five minutes of staleness; a larger share means different things."""

_NOT_USAGE = ("limit", "quota", "throttl")
"""Words in file or metric names that rule out usage."""

_LOOKBACK_S = 300.0
"""How long a request is valid without a new scrape: Prometheus' default look-back."""

_REMEDY = "Save the answer of /api/v1/query_range (start, end, step) again."

_EMPTY_CURVE = pd.Series(dtype=np.float64, index=pd.Index([], dtype=np.float64))
"""Curves are values indexed by increasing unix seconds."""


@dataclass(frozen=True, slots=True)
class AnswerSeries:
    """Entry `number` (from 1) of an answer's result: float64 (n,) unix seconds, and values, which may be NaN."""

    file: Path
    number: int
    labels: Mapping[str, str]
    times_s: FloatArray
    values: FloatArray

    @property
    def metric(self) -> str:
        """The metric's name; empty where a function such as rate() dropped it."""
        return self.labels.get("__name__", "")

    def bad_input(self, problem: str, remedy: str, row: int | None, column: str | None) -> BadInput:
        """The error for this series; `row` is the sample, from 1."""
        return BadInput(f"result {self.number}: {problem}", remedy=remedy, file=self.file, row=row, column=column)


class _Role(NamedTuple):
    """The column that a series provides, its unit, and whether it is a counter."""

    column: str
    factor: float = 1.0
    counter: bool = False


@dataclass(slots=True)
class _Container:
    """One container in the answers: series by role, and label texts."""

    series: dict[_Role, list[AnswerSeries]] = field(default_factory=lambda: defaultdict(list))
    texts: dict[str, str] = field(default_factory=dict)


def open_answers(files: Sequence[Path], options: ReadOptions) -> Reader:
    """The reader of all saved answers of a source, joined at once; BadInput without series of cpu or memory."""
    containers: dict[str, _Container] = defaultdict(_Container)
    metrics: set[str] = set()
    foreign = {name for file in files for name in _file_names(file)}
    for file in files:
        answer = list(read_answer(file))
        file_metrics = {series.metric for series in answer}
        metrics |= file_metrics - {""}
        foreign |= file_metrics.union(*(series.labels for series in answer)) - {""}
        named = [(series, _labels(series, options)) for series in answer]
        whole_pods = not any("container" in labels for _, labels in named)
        for series, labels in named:
            role = _role(series, len(file_metrics) == 1, options)
            if role is None or not (whole_pods or labels.get("container") not in (None, "", "POD")):
                continue
            name = "/".join(labels[label] for label in NAME_COLUMNS if labels.get(label))
            if not name:
                remedy = "Sum by (namespace, pod, container), or name labels: `--map container=LABEL`."
                raise series.bad_input("no label names the container", remedy, None, "container")
            containers[name].series[role].append(series)
            containers[name].texts.update({label: labels[label] for label in LABEL_COLUMNS if label in labels})
    # A row of the join is of no one file.
    place = files[0] if len(files) == 1 else Path(os.path.commonpath([file.absolute() for file in files]))
    _check_columns(containers, place, metrics, options)
    rows = _rows(containers)

    def samples(origins: Origins, batched: bool) -> Iterator[RawSamples]:
        del batched
        yield replace(rows, rows=origins.next_rows(len(rows)))

    kinds = schema(rows.values, rows.labels)
    return Reader(place, sorted(foreign), kinds, rows.as_table().nbytes, lambda column: column, samples)


def read_answer(file: Path) -> Iterator[AnswerSeries]:
    """Yield all series of one saved answer; raises BadInput for anything but a matrix of numbers."""
    answer = _load(file)
    if not isinstance(answer, dict) or "status" not in answer:
        raise BadInput("not an answer of the Prometheus API", remedy=_REMEDY, file=file)
    if answer["status"] != "success":
        problem = f"Prometheus answered with an error: {answer.get('error', 'no reason given')}"
        raise BadInput(problem, remedy="Correct the query and save it again.", file=file)
    data = answer["data"] if isinstance(answer.get("data"), dict) else {}
    kind, result = data.get("resultType"), data.get("result")
    if kind != "matrix" or not isinstance(result, list):
        problem = f"the result is a {kind}, not a matrix over time"
        raise BadInput(problem, remedy=_REMEDY, file=file, column="resultType")
    for number, entry in enumerate(result, start=1):
        yield _series(file, number, entry)


def _load(file: Path) -> Any:
    try:
        with open_decompressed(file) as stream:
            content = stream.read()
        return orjson.loads(content.removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        if is_gzip(file):
            raise damaged_gzip(file) from error
        raise BadInput(f"cannot be read ({error})", remedy="Write or copy it again.", file=file) from error
    except orjson.JSONDecodeError as error:
        problem, remedy = f"not valid JSON ({error.msg})", "It is truncated or damaged: save it again."
        raise BadInput(problem, remedy=remedy, file=file, row=error.lineno) from error


def _series(file: Path, number: int, entry: Any) -> AnswerSeries:
    try:
        times_s = np.array([pair[0] for pair in entry["values"]], dtype=np.float64)
        texts = pd.Series([pair[1] for pair in entry["values"]], dtype=object)
        values = pd.to_numeric(texts, errors="coerce").to_numpy(np.float64)
        labels = {name: str(text) for name, text in entry["metric"].items()}
        series = AnswerSeries(file, number, labels, times_s, values)
        if times_s.shape != values.shape or not np.isfinite(times_s).all():  # null becomes NaN
            raise ValueError
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise BadInput(
            f"result {number} lacks metric or values, or a sample is not a pair of time and value",
            remedy=_REMEDY,
            file=file,
            column="values",
        ) from error
    fix_query = "Correct the query (a division by zero?) or drop such samples with `... < Inf`."
    for bad, problem, remedy in (
        (np.isnan(values) & (texts.notna() & (texts != "NaN")).to_numpy(), "is not a number", _REMEDY),
        (np.isinf(values), "is not a finite number", fix_query),
        (np.abs(values) > LARGEST_NUMBER, "is larger than anything measured", fix_query),
    ):
        if bad.any():
            row = int(np.argmax(bad))
            raise series.bad_input(f"{texts[row]!r} {problem}", remedy, row + 1, "values")
    return series


def _labels(series: AnswerSeries, options: ReadOptions) -> dict[str, str]:
    """The labels of a series by our names; `--map` may name others."""
    found = {}
    for name in (*NAME_COLUMNS, *LABEL_COLUMNS):
        mapped_labels = [mapped.old for mapped in options.columns if mapped.new == name]
        candidates = mapped_labels or [name, _LEGACY_LABELS.get(name, name)]
        value = next((series.labels[label] for label in candidates if label in series.labels), None)
        if value is not None:
            found[name] = value
    return found


def _role(series: AnswerSeries, only_metric: bool, options: ReadOptions) -> _Role | None:
    """The role by `--map`, metric name, or file name if the file holds one metric; None for other series."""
    metric, file_name = series.metric, series.file.name
    counter = is_counter(metric)
    for mapped in options.columns:
        if mapped.old in (metric, *_file_names(series.file)):
            return _Role(mapped.new, mapped.factor, counter)
    if metric in options.features:
        return _Role(metric, 1.0, counter)
    if REQUESTS_METRIC in metric:
        column = _REQUEST_COLUMN.get(series.labels.get("resource", ""))
        return None if column is None else _Role(column)
    if CPU_METRIC in metric:
        return _Role(CPU_COLUMN, 1.0, counter)
    if MEMORY_METRIC in metric:
        return _Role(MEMORY_COLUMN)
    resources = [resource for resource in ("cpu", "memory") if resource in file_name.lower()]
    not_usage = any(word in f"{file_name} {metric}".lower() for word in _NOT_USAGE)
    if not only_metric or len(resources) != 1 or not_usage:
        return None
    if "request" in file_name.lower():
        return _Role(_REQUEST_COLUMN[resources[0]])
    return _Role(CPU_COLUMN if resources == ["cpu"] else MEMORY_COLUMN, 1.0, counter)


def _file_names(file: Path) -> tuple[str, str]:
    return file.name, file.name.split(".json")[0]


def _check_columns(containers: Mapping[str, _Container], file: Path, metrics: set[str], options: ReadOptions) -> None:
    present = {role.column for container in containers.values() for role in container.series}
    for column in (CPU_COLUMN, MEMORY_COLUMN, *options.features):
        if column not in present:
            known = listed(sorted(metrics)) or "none with a name"
            raise BadInput(
                f"no series was recognised as {column}; metrics here: {known}",
                remedy=f"Save its query_range answer beside this one, or name metric or file: `--map {column}=METRIC`.",
                file=file,
                column=column,
            )


def _rows(containers: Mapping[str, _Container]) -> RawSamples:
    frames = [_joined(name, container) for name, container in containers.items()]
    rows = pd.concat(frames)
    codes = pa.array(np.repeat(np.arange(len(frames), dtype=np.int32), [len(frame) for frame in frames]))
    texts = {label: [container.texts.get(label) for container in containers.values()] for label in LABEL_COLUMNS}
    return RawSamples(
        pa.DictionaryArray.from_arrays(codes, pa.array(list(containers), pa.string())),
        rows.index.to_numpy(np.float64),
        {str(column): rows[column].to_numpy(np.float64) for column in rows},
        {label: pa.array(known).take(codes).dictionary_encode() for label, known in texts.items() if any(known)},
        np.arange(len(rows)),
    )


def _joined(name: str, container: _Container) -> pd.DataFrame:
    """Join the columns of one container on common times: those of cpu, and those of memory where cpu has none.

    Queries with different start times are shifted by a fraction of a step; they are moved to the times of cpu. Gaps at
    either end, such as the time before the first rate, are dropped.
    """
    curves = {role.column: _curve(name, role, series) for role, series in container.series.items()}
    if CPU_COLUMN in curves:
        cpu_s = curves[CPU_COLUMN].index
        curves |= {name: _aligned(curve, cpu_s) for name, curve in curves.items() if name not in REQUEST_COLUMNS}
    use = pd.DataFrame({column: curves.get(column, _EMPTY_CURVE) for column in (CPU_COLUMN, MEMORY_COLUMN)})
    inside = np.flatnonzero(use.notna().all(axis=1))
    times_s = use.index[inside[0] : inside[-1] + 1] if len(inside) else use.index[:0]
    lasting: dict[str, Any] = {"method": "ffill", "tolerance": _LOOKBACK_S}
    return pd.DataFrame(
        {
            column: curve.reindex(times_s, **(lasting if column in REQUEST_COLUMNS else {}))
            for column, curve in curves.items()
        }
    )


def _curve(name: str, role: _Role, series: Sequence[AnswerSeries]) -> pd.Series:
    """Join the series of a role to one curve: parts, and new series after restarts. BadInput if others overlap."""
    by_labels: dict[tuple[tuple[str, str], ...], list[AnswerSeries]] = defaultdict(list)
    for one in series:
        by_labels[tuple(sorted(one.labels.items()))].append(one)
    parts = [(group[-1], _merged_curve(role, group)) for group in by_labels.values()]
    parts = sorted((part for part in parts if len(part[1])), key=lambda part: float(part[1].index[0]))
    curve = parts[0][1] if parts else _EMPTY_CURVE
    for one, later in parts[1:]:
        common = later.index.intersection(curve.index)
        differ = int((curve[common] != later[common]).sum())
        if differ > max(1.0, MAX_RESTART_OVERLAP * min(len(curve), len(later))):
            problem = f"{name} has several overlapping series, different at {differ} of {len(common)} times"
            remedy = "Sum parts such as cores in the query: `sum by (namespace, pod, container) (...)`. "
            remedy += "If two Prometheus or two jobs measured the same, take the largest: `max by`."
            raise one.bad_input(problem, remedy, int(later.index.searchsorted(common[0])) + 1, role.column)
        curve = later.combine_first(curve)
    return curve * role.factor


def _merged_curve(role: _Role, group: Sequence[AnswerSeries]) -> pd.Series:
    """Merge the parts of one series, sorted by time; a counter becomes its rate. BadInput if two parts differ."""
    for one in group:
        negative = one.values < 0
        if role.column in VALUE_COLUMNS and negative.any():
            row = int(np.argmax(negative))
            remedy = "Correct the query: usage cannot be negative."
            raise one.bad_input(f"{one.values[row]:g} is negative", remedy, row + 1, role.column)
    all_s, all_values = np.concatenate([one.times_s for one in group]), np.concatenate([one.values for one in group])
    order = np.lexsort((np.isnan(all_values), all_s))  # stable; NaN last
    all_s, all_values = all_s[order], all_values[order]
    differ = (np.diff(all_s) == 0) & (np.diff(all_values) != 0) & ~np.isnan(all_values[1:])
    if differ.any():
        at = int(np.argmax(differ))
        ends = np.cumsum([len(one.times_s) for one in group])
        one, other = (group[int(np.searchsorted(ends, row, side="right"))] for row in order[at : at + 2])
        problem = f"two different values for one time: {all_values[at + 1]:g} here, {all_values[at]:g} in {one.file}"
        row = int(np.flatnonzero(other.times_s == all_s[at])[0]) + 1
        raise other.bad_input(problem, "Name only one of the two files.", row, role.column)
    times_s, first = np.unique(all_s, return_index=True)
    values = all_values[first]
    if role.counter:
        known = ~np.isnan(values)
        times_s, values = rate(times_s[known], values[known])
    return pd.Series(values, times_s)


def rate(times_s: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The rate of a counter up to each sample; a falling counter was reset to zero.

    Returns times_s, rates: float64 (n - 1,). NaN after a gap of at least two median intervals, whose rate would be a
    mean over the gap.

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
    """Move a curve to the times of cpu if most of its times differ."""
    common = len(curve.index.intersection(cpu_s))
    if len(cpu_s) < 2 or not len(curve) or 2 * common >= min(len(curve), len(cpu_s)):
        return curve
    step_s = float(np.median(np.diff(cpu_s)))
    moved = curve.set_axis(cpu_s[0] + np.floor((curve.index - cpu_s[0]) / step_s + 0.5) * step_s)
    return moved[~moved.index.duplicated()]
