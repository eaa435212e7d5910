"""Histograms of one container in the format of upstream's checkpoints, so that history survives a change of recommender
in either direction.

A checkpoint holds what upstream's does: both histograms and the times of CPU samples. Weights keep four digits. The
memory peak of the current window is left out, or a restart would count it twice.

Source: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/recommender/util/histogram.go`,
`model/aggregate_container_state.go` and `checkpoint/checkpoint_writer.go`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from recommender.base.errors import BadInput
from recommender.base.records import FloatArray
from recommender.base.units import format_time, parse_rfc3339_s
from recommender.kernels import histogram as kernel
from recommender.policies.histogram import FIRST_REFERENCE_S, HistogramSession

VERSION = "v3"  # the only version upstream writes and reads
HEAVIEST = 10_000  # encoded weight of the heaviest bucket; the others are scaled likewise, to whole numbers

LARGEST_WEIGHT = 2**32 - 1
"""Upstream decodes weights into 32 bits; with a larger one it cannot read any list of checkpoints."""

Status = dict[str, Any]


def merged(sessions: Sequence[HistogramSession]) -> HistogramSession:
    """Merge sessions, of which some share histograms; memory windows stay with their containers."""
    whole, distinct = HistogramSession(), {id(session.histograms): session for session in sessions}.values()
    for session in distinct:
        _add(whole.cpu, session.cpu)
        _add(whole.memory, session.memory)
    sums, seen = np.array([session.cpu.sums for session in distinct]), whole.cpu.sums
    seen[kernel.FIRST_S] = np.fmin.reduce(sums[:, kernel.FIRST_S])
    seen[kernel.LAST_S] = np.fmax.reduce(sums[:, kernel.LAST_S])
    seen[kernel.SAMPLES] = sums[:, kernel.SAMPLES].sum()
    whole.state[kernel.OOM_EVENTS] = sum(session.state[kernel.OOM_EVENTS] for session in sessions)
    return whole


def checkpoint_status(sessions: Sequence[HistogramSession], now_s: float) -> Status:
    """The `status` of a checkpoint of these sessions, left unchanged; windows that end after `now_s` are open."""
    whole = merged(sessions)
    take_back_running_peaks(whole.memory, sessions, now_s)
    status = {
        "version": VERSION,
        "lastUpdateTime": _text_of(now_s),
        "firstSampleStart": _text_of(whole.cpu.sums[kernel.FIRST_S]),
        "lastSampleStart": _text_of(whole.last_s),
        "totalSamplesCount": whole.samples,
        "cpuHistogram": _encoded(whole.cpu),
        "memoryHistogram": _encoded(whole.memory),
    }
    return {name: field for name, field in status.items() if field is not None}


def take_back_running_peaks(memory: kernel.Histogram, sessions: Sequence[HistogramSession], now_s: float) -> None:
    """Subtract from `memory`, OUT, the peaks of open windows, which would otherwise count again in new ones."""
    for session in sessions:
        window_end_s = session.state[kernel.WINDOW_END_S]
        if now_s < window_end_s:
            peak = max(session.state[kernel.USAGE_PEAK], session.state[kernel.OOM_PEAK])
            kernel.subtract_sample(memory, kernel.FIRST_BYTES, peak, kernel.MEMORY_WEIGHT, window_end_s)


def session_of(status: Mapping[str, Any], checkpoint: str) -> HistogramSession:
    """Read a session from the `status` of `checkpoint`, `namespace/name`; BadInput names it and an invalid field."""
    reading = _Reading(f"checkpoint {checkpoint}")
    if (version := status.get("version")) != VERSION:
        raise reading.refuse("version", f"is {version!r}, not {VERSION!r}")
    session = HistogramSession()
    samples = status.get("totalSamplesCount") or 0
    if type(samples) is not int or samples < 0:
        raise reading.refuse("totalSamplesCount", "is not a count")
    session.cpu.sums[kernel.SAMPLES] = samples
    for place, field in ((kernel.FIRST_S, "firstSampleStart"), (kernel.LAST_S, "lastSampleStart")):
        session.cpu.sums[place] = reading.time_s(status.get(field), field, absent=math.nan)
    reading.fill(session.cpu, status, "cpuHistogram")
    reading.fill(session.memory, status, "memoryHistogram")
    return session


def _add(whole: kernel.Histogram, part: kernel.Histogram) -> None:
    """Add the weights of `part` to `whole` at the later reference time of the two; `whole` is OUT."""
    if not part.sums[kernel.TOTAL]:
        return
    if not whole.sums[kernel.TOTAL]:
        for ours, theirs in zip(whole, part, strict=True):
            ours[:] = theirs
        return
    ours_s, theirs_s = whole.sums[kernel.REFERENCE_S], part.sums[kernel.REFERENCE_S]
    reference_s = max(ours_s, theirs_s)
    shrunk, grown = (2.0 ** round((own - reference_s) / kernel.HALF_LIFE_S) for own in (ours_s, theirs_s))
    weights = whole.weights * shrunk + part.weights * grown
    total = whole.sums[kernel.TOTAL] * shrunk + part.sums[kernel.TOTAL] * grown
    _set(whole, weights, total, reference_s)


def _set(histogram: kernel.Histogram, weights: FloatArray, total: float, reference_s: float) -> None:
    """Set the weights of a histogram, which is OUT."""
    histogram.weights[:] = weights
    histogram.sums[kernel.TOTAL] = total
    histogram.sums[kernel.REFERENCE_S] = reference_s


def _encoded(histogram: kernel.Histogram) -> Status:
    """Encode one histogram: without weights and total if it is empty, without reference if it never had a sample."""
    filled = kernel.filled_buckets(histogram)
    reference_s, total = histogram.sums[kernel.REFERENCE_S], float(histogram.sums[kernel.TOTAL])
    encoded: Status = {} if reference_s == FIRST_REFERENCE_S else {"referenceTimestamp": _text_of(reference_s)}
    if total == 0.0 or not len(filled):
        return encoded
    weights = histogram.weights[filled[0] : filled[-1] + 1]
    shares = np.floor(weights * (HEAVIEST / weights.max()) + 0.5).astype(np.int64)
    encoded["bucketWeights"] = {str(filled[0] + place): share for place, share in enumerate(shares.tolist()) if share}
    return encoded | {"totalWeight": total}


def _text_of(time_s: float) -> str | None:
    """RFC 3339 in whole seconds, as the API server stores it; None for NaN."""
    return None if math.isnan(time_s) else format_time(time_s)


class _Reading:
    """Reader of one checkpoint; its errors name the field."""

    def __init__(self, place: str) -> None:
        self._place = place

    def refuse(self, field: str, problem: str) -> BadInput:
        remedy = "Delete the checkpoint; the histogram of its container then starts empty."
        return BadInput(f"{field} {problem}", remedy=remedy, file=self._place)

    def time_s(self, text: object, field: str, *, absent: float) -> float:
        if text is None:
            return absent
        try:
            return parse_rfc3339_s(str(text))
        except ValueError as error:
            raise self.refuse(field, f"is not an RFC 3339 time: {str(text)[:40]!r}") from error

    def fill(self, histogram: kernel.Histogram, status: Mapping[str, Any], field: str) -> None:
        """Read one histogram of the status into `histogram`, which is OUT."""
        encoded = status.get(field) or {}
        if not isinstance(encoded, Mapping):
            raise self.refuse(field, "is not an object")
        total = encoded.get("totalWeight") or 0.0
        if isinstance(total, bool) or not isinstance(total, int | float) or not 0.0 <= total < math.inf:
            raise self.refuse(f"{field}.totalWeight", "is not a number of at least zero")
        shares = self._shares(encoded.get("bucketWeights") or {}, kernel.BUCKETS, f"{field}.bucketWeights")
        if not shares.any():
            return
        name = "referenceTimestamp"
        reference_s = self.time_s(encoded.get(name), f"{field}.{name}", absent=FIRST_REFERENCE_S)
        _set(histogram, shares * (total / shares.sum()), float(total), reference_s)

    def _shares(self, given: object, number: int, field: str) -> FloatArray:
        if not isinstance(given, Mapping):
            raise self.refuse(field, "is not an object")
        shares = np.zeros(number)
        for name, share in given.items():
            bucket = int(name) if str(name).isdecimal() else -1
            if not 0 <= bucket < number:
                raise self.refuse(field, f"has bucket {str(name)[:40]!r}; they go from 0 to {number - 1}")
            if type(share) is not int or not 0 <= share <= LARGEST_WEIGHT:
                raise self.refuse(f"{field}[{bucket}]", "is not a whole number of 32 bits")
            shares[bucket] = share
        return shares
