"""KRR's recommendation on recorded traces.

KRR reads the last 14 days of a workload from a Prometheus. Its strategy `simple` with the published defaults
(https://github.com/robusta-dev/krr#algorithm, `robusta_krr/strategies/simple.py`) says:

- CPU: the 95th percentile of each pod, of which the largest; at least 10 millicores; no limit.
- Memory, request and limit: the largest use of any pod + 15 %; at least 100 MB.
- Nothing, if all pods together have less than 100 samples.

It changes nothing by itself. Here it is run, and what it says is written at once, when a pod begins and once a day
while it goes on; a change restarts nothing. Until it says something, what is declared stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recommender.base.records import CPU, MEMORY, Amounts, FloatArray, UsageSeries
from recommender.kernels.histogram import DAY_S
from recommender.simulate.clock import Trace
from recommender.simulate.in_force import SimulatedRun
from recommender.simulate.playing import changes, judged_samples
from recommender.simulate.workloads import workload_name

HISTORY_S = 14 * DAY_S
CPU_PERCENTILE, MEMORY_MARGIN, FEWEST_SAMPLES = 95.0, 1.15, 100
LEAST_CORES, LEAST_BYTES = 0.01, 100e6


@dataclass(slots=True)
class _Workload:
    """The pods of a workload, and what all samples of each show, float64 (p, 3), see `_shown`.

    `spans_s`: float64 (p, 2), unix seconds of their first and last sample; minus infinity for earlier runs, all known.
    """

    series: Sequence[UsageSeries]
    spans_s: FloatArray
    shown: FloatArray

    def at(self, now_s: float) -> Amounts | None:
        """What KRR says at a time; None if it has too few samples."""
        from_s = now_s - HISTORY_S
        first_s, last_s = self.spans_s.T
        whole = (last_s < now_s) & ((first_s >= from_s) | np.isinf(first_s))
        shown = [self.shown[whole]]
        for at in np.flatnonzero(~whole & (first_s < now_s) & (last_s >= from_s)).tolist():
            times_s = self.series[at].timestamps
            shown.append(_shown(self.series[at].usage[(times_s >= from_s) & (times_s < now_s)])[np.newaxis])
        cpu_cores, memory_bytes, samples = np.concatenate(shown).T
        if samples.sum() < FEWEST_SAMPLES:
            return None
        most_cores, most_bytes = float(np.nanmax(cpu_cores)), float(np.nanmax(memory_bytes))
        return max(most_cores, LEAST_CORES), max(most_bytes * MEMORY_MARGIN, LEAST_BYTES)


def _shown(usage: FloatArray) -> FloatArray:
    """float64 (3,): percentile of the cores, most bytes, and number of samples, NaN for none."""
    known = usage[~np.isnan(usage[:, CPU])]
    if not len(known):
        return np.array([math.nan, math.nan, 0.0])
    return np.array([np.percentile(known[:, CPU], CPU_PERCENTILE), known[:, MEMORY].max(), len(known)])


def krr(traces: Sequence[Trace], history: Sequence[UsageSeries]) -> list[SimulatedRun]:
    """What these traces have if their workloads follow KRR; `history`: earlier runs, all of which it knows."""
    pods = [(one, (-math.inf, -math.inf)) for one in history]
    pods += [
        (trace.series, (float(trace.series.timestamps[0]), float(trace.series.timestamps[-1]))) for trace in traces
    ]
    of_workload: dict[tuple[str, str, str], list[tuple[UsageSeries, tuple[float, float]]]] = {}
    for pod in pods:
        of_workload.setdefault(workload_name(pod[0]), []).append(pod)
    workloads = {}
    for name, of in of_workload.items():
        series, spans_s = zip(*of, strict=True)
        workloads[name] = _Workload(series, np.array(spans_s), np.array([_shown(one.usage) for one in series]))
    return [_followed(trace, workloads[workload_name(trace.series)]) for trace in traces]


def _followed(trace: Trace, workload: _Workload) -> SimulatedRun:
    judged = judged_samples(trace)
    has, times_s = trace.declared[judged], trace.series.timestamps
    for now_s in np.arange(times_s[0], times_s[-1] + 1, DAY_S).tolist():
        if (said := workload.at(now_s)) is not None:
            has[times_s[judged] >= now_s] = said
    return changes(judged, has)
