"""The checkpoint encoding of the default recommender, written plainly: buckets by weight relative to the reference."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from tests.baselines.replay import DAY_S, NaiveVpa

EPSILON = 1e-4


def naive_status(samples: list[tuple[float, float, int]], now_s: float) -> dict[str, Any]:
    """The status after samples of (cores, bytes, unix seconds) of one container without a memory limit."""
    vpa = NaiveVpa()
    for cpu_cores, memory_bytes, time_s in samples:
        vpa.observe(float(cpu_cores), float(memory_bytes), float(time_s))
    if vpa.window_end is not None and now_s < vpa.window_end:
        vpa.memory.samples.remove((max(vpa.usage_peak, vpa.oom_peak), 1.0, vpa.window_end))
    return {
        "version": "v3",
        "lastUpdateTime": text(now_s),
        "firstSampleStart": text(vpa.cpu_times[0]),
        "lastSampleStart": text(vpa.cpu_times[-1]),
        "totalSamplesCount": len(vpa.cpu_times),
        "cpuHistogram": encoded(vpa.cpu),
        "memoryHistogram": encoded(vpa.memory),
    }


def encoded(histogram: Any) -> dict[str, Any]:
    """The reference is the midnight nearest to the first sample; it would not move until 100 half-lives later."""
    if not histogram.samples:
        return {}
    reference_s = math.floor(histogram.samples[0][2] / DAY_S + 0.5) * DAY_S
    weights: dict[int, float] = {}
    for value, weight, time_s in histogram.samples:
        bucket = histogram.bucket(value)
        weights[bucket] = weights.get(bucket, 0.0) + weight * 2.0 ** ((time_s - reference_s) / DAY_S)
    shares = {
        str(bucket): math.floor(weight * 10_000 / max(weights.values()) + 0.5)
        for bucket, weight in weights.items()
        if weight >= EPSILON
    }
    return {
        "bucketWeights": {bucket: share for bucket, share in shares.items() if share},
        "totalWeight": sum(weights.values()),
    }


def text(time_s: float) -> str:
    return datetime.fromtimestamp(math.floor(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
