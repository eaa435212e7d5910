"""A dry run made of simple simulated series, so that reports can be tested without the engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

import numpy as np

from recommender.base.records import (
    UNKNOWN_PHASE,
    VIOLATION_TOLERANCE,
    ContainerReplay,
    FloatArray,
    IntArray,
    ReplayResult,
    Tally,
    Timeline,
    WorkloadAdvice,
)
from recommender.phases.graph import PhaseGraph
from recommender.phases.graph_io import to_networkx
from recommender.phases.statistics import PhaseStatistics
from recommender.plots.policies import tradeoffs_for_page
from recommender.report.page import render_page
from recommender.report.summary import Prices, summarise

STEP_S, CYCLE = 15.0, 40
GIB = float(1 << 30)
START = 1_790_000_000
HOSTILE = "team-a/<script>alert('x')</script>&\"[red]\\"
LONG = "a-namespace-with-a-long-name/" + "job-" * 40 + "worker-0/main"

PHASES = (  # cores, GiB, spread of cores: import, load, train, evaluate, export
    (0.6, 0.5, 0.15),
    (1.2, 4.0, 0.30),
    (3.4, 6.5, 0.25),
    (2.2, 6.7, 0.20),
    (0.4, 7.0, 0.10),
)
ORACLES = frozenset({"ground.truth", "current.step.max", "current.step.rules"})
POLICIES = (
    "static", "histogram", "prev.step.max", "prev.step.rules", "phase.rules", "phasewise",
    "current.step.max", "current.step.rules", "ground.truth",
)  # fmt: skip


@dataclass(frozen=True)
class Simulated:
    """A finished dry run and its timelines, which a report may draw."""

    result: ReplayResult
    timelines: tuple[Timeline, ...]


def simulated_series(rng: np.random.Generator, samples: int) -> tuple[FloatArray, IntArray]:
    """Usage (n, 2) with gaps and a short memory spike, and the phase of each sample."""
    labels: list[int] = [0] * int(rng.integers(6, 14)) + [1] * int(rng.integers(15, 40))
    while len(labels) < samples:
        labels += [2] * int(rng.integers(60, 140)) + [3] * int(rng.integers(8, 25))
    labels = labels[: samples - 12] + [4] * 12
    phase = np.array(labels, dtype=np.int64)
    size = rng.uniform(0.4, 2.5)
    levels = np.array(PHASES)
    cpu = size * np.clip(levels[phase, 0] + levels[phase, 2] * rng.standard_normal(samples), 0.02, None)
    memory = size * GIB * (levels[phase, 1] * (1 + 0.0004 * np.arange(samples)) + 0.05 * rng.standard_normal(samples))
    memory[int(rng.integers(60, samples - 20))] *= 1.5
    usage = np.column_stack([cpu, memory])
    gap = int(rng.integers(30, samples - 20))
    usage[gap : gap + 5] = np.nan
    phase[:4] = UNKNOWN_PHASE
    return usage, phase


def allocations(usage: FloatArray, starts: IntArray, rng: np.random.Generator) -> dict[str, FloatArray]:
    """What each policy would have reserved from each of `starts` on: crude, but different for each policy."""
    ends = [*starts[1:], len(usage)]
    coming = np.array([np.nanmax(usage[a:b], axis=0) for a, b in zip(starts, ends, strict=True)])
    usual = np.array(
        [np.nanmean(usage[a:b], axis=0) + 2 * np.nanstd(usage[a:b], axis=0) for a, b in zip(starts, ends, strict=True)]
    )
    before = np.vstack([np.nanmax(usage[: starts[0]], axis=0)[None], coming[:-1]])
    peak = np.nanmax(usage, axis=0)
    return {
        "static": np.tile(peak * [1.9, 1.5], (len(starts), 1)),
        "histogram": 1.15 * np.maximum.accumulate(before, axis=0),
        "prev.step.max": before,
        "prev.step.rules": np.vstack([before[:1], usual[:-1]]),
        "phase.rules": coming * rng.uniform(0.82, 1.35, coming.shape),
        "phasewise": coming * rng.uniform(0.93, 1.3, coming.shape),
        "current.step.max": coming,
        "current.step.rules": usual,
    }


def tallied(usage: FloatArray, allocated: FloatArray, resizes: int) -> Tally:
    """The tally of judged samples `usage` (n, 2) under `allocated` (n, 2)."""
    present = ~np.isnan(usage[:, 0])
    used, given = usage[present], allocated[present]
    over_cpu, over_memory = (used > given * VIOLATION_TOLERANCE).sum(axis=0)
    above = np.concatenate([[False], used[:, 1] > given[:, 1]])
    return Tally(
        samples=int(present.sum()),
        judged_s=float(present.sum()) * STEP_S,
        used=tuple(used.sum(axis=0) * STEP_S),
        allocated=tuple(given.sum(axis=0) * STEP_S),
        slack=tuple(np.maximum(given - used, 0).sum(axis=0) * STEP_S),
        shortage=tuple(np.maximum(used - given, 0).sum(axis=0) * STEP_S),
        violations=(int(over_cpu), int(over_memory)),
        oom_events=int((above[1:] & ~above[:-1]).sum()),
        resizes=resizes,
    )


def simulate_container(rng: np.random.Generator, name: str, samples: int) -> tuple[ContainerReplay, Timeline]:
    usage, phase = simulated_series(rng, samples)
    starts = np.arange(4, samples, CYCLE)
    timestamps = START + (np.arange(samples) * int(STEP_S)).astype(np.int64)
    by_policy = allocations(usage, starts, rng)
    lengths = np.diff([*starts, samples])
    tallies = {
        policy: tallied(
            usage[4:], np.repeat(given, lengths, axis=0), int((np.diff(given, axis=0) != 0).any(axis=1).sum())
        )
        for policy, given in by_policy.items()
    }
    filled = np.where(np.isnan(usage), 0.0, usage)
    tallies["ground.truth"] = tallied(usage[4:], filled[4:], samples - 5)
    decisions = {policy: (timestamps[starts], given) for policy, given in by_policy.items()}
    decisions["ground.truth"] = (timestamps[4:], filled[4:])
    why = {
        "histogram": {"percentile": 0.9, "margin": 1.15, "confidence": 0.4, "lines": ["cpu p90 1.2", "memory p90 4Gi"]},
    }  # fmt: skip
    asked = timestamps[starts[::2]]
    marks = {"phasewise": {"asked": asked, "applied": asked + 60, "deferred": asked[:0], "killed": timestamps[[90]]}}
    told = [("policy", "phase.plan"), ("rule", "80% that phase 2 starts within 40 s; it needs 1.1 cores")]
    reasons = {"phasewise": [(float(timestamps[10]), told[:1]), (float(timestamps[samples // 2]), told)]}
    workload = name.split("/", maxsplit=1)[0]
    replay = ContainerReplay(name, workload, tallies)
    return replay, Timeline(name, workload, timestamps, usage, phase, decisions, why, marks, reasons)


def advice(name: str, number: int) -> WorkloadAdvice:
    """One of several workloads; the first is backed by little, and the second declares nothing."""
    now = (math.nan, math.nan) if number == 1 else (4.0 + number, (8 + number) * GIB)
    wanted = (1.25, 3.5 * GIB)
    saved = (now[0] - wanted[0], now[1] - wanted[1])
    return WorkloadAdvice(
        "team", name, "main", "Deployment/web", now, wanted, (0.5, 3 * GIB), (1.5, 4 * GIB), saved, saved,
        short_share=0.021, killed_runs=0, runs=1 + 6 * number, hours=2.0 + number,
    )  # fmt: skip


def simulated_run(containers: int = 16, seed: int = 0, samples: tuple[int, int] = (180, 700)) -> Simulated:
    rng = np.random.default_rng(seed)
    names = [HOSTILE, LONG, "größe/日本語"] + [f"train-{i % 5}/job-{i:03d}/main" for i in range(containers - 3)]
    pairs = [simulate_container(rng, name, int(rng.integers(*samples))) for name in names]
    result = ReplayResult(
        step_s=STEP_S,
        cycle_s=CYCLE * STEP_S,
        policies=POLICIES,
        oracles=ORACLES,
        containers=tuple(replay for replay, _ in pairs),
        left_out=(("short-1", "fewer than 5 samples"), ("short-2", "fewer than 5 samples"), ("odd", "no decision")),
        model={"origin": "cross-fitted, 5 folds", "phases": 5, "features": ["cpu_cores", "memory_bytes"], "lag": 3},
        notes=("flowcon was left out: it needs the column loss.",),
        workloads=tuple(advice(name, number) for number, name in enumerate(names)),
    )
    return Simulated(result, tuple(timeline for _, timeline in pairs))


def runs_of(timeline: Timeline) -> list[tuple[int, int]]:
    """The runs of known phases of a timeline: (phase, length)."""
    assert timeline.labels is not None
    known = timeline.labels[timeline.labels >= 0]
    return [(int(phase), len(list(same))) for phase, same in groupby(known)]


def phase_table() -> PhaseStatistics:
    """Statistics of the simulated phases."""
    levels = np.array(PHASES)
    usage = np.column_stack([levels[:, 0], levels[:, 1] * GIB])
    trend = np.array(
        [[0.5, 0.1, 0.3, 0.4], [0.4, 0.6, 0.2, 0.6], [0.9, 0.9, 0, 0], [0.7, 0.9, -0.3, 0], [0.1, 1, -0.9, 0]]
    )
    return PhaseStatistics(
        ("cpu.of_peak", "memory.of_peak", "cpu.trend", "memory.trend"), usage, usage * 0.12, trend,
        np.full((5, 4), 0.1), np.array([100, 300, 5000, 900, 100]), np.array([16, 16, 16, 14, 16]),
    )  # fmt: skip


def page_of(run: Simulated, prices: Prices | None = None) -> str:
    """The page with every section, and charts of twelve containers."""
    sequences = [runs_of(timeline) for timeline in run.timelines]
    return render_page(
        run.result,
        run.timelines[:12],
        generated_at=datetime(2026, 11, 21, 8, 0, tzinfo=UTC),
        version="0.1.0",
        prices=prices,
        phase_graph=to_networkx(PhaseGraph.fit(sequences, 5)),
        sequences=sequences,
        phase_table=phase_table(),
        tradeoffs=tradeoffs_for_page(summarise(run.result)),
    )
