"""Tables, goals and JSON of bench_scheduler."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import benches
from benchmarks.scheduler.binding import KINDS, Round
from benchmarks.scheduler.calls import BOTH, Times
from benchmarks.scheduler.large import ServiceMemory
from benchmarks.scheduler.perf import Perf
from benchmarks.scheduler.place import OURS

BIND_RATE_GOAL = 0.95
P99_MS, P99_BESIDE_SLOW_MS = {1_000: 2.0, 5_000: 2.0}, {1_000: 4.0, 5_000: 4.0}
PSS_MIB = 400e6 / 2**20
"""Goals: rate relative to an extender that answers nothing; latency by node names; memory of the whole extender."""

TITLES = {
    "none": "no extender",
    "flask": "answers nothing: Flask under gunicorn",
    "served": "answers nothing: our server",
    "scores": "equal scores: our server",
    "ours": "Phasewise",
    "tuned": "answers nothing: our server; scheduler of our manifests",
    "installed": "Phasewise as installed",
    "alone": "Phasewise as installed, without gunicorn",
}

PERF_TITLES = {
    "none": "none",
    "unbatched": "none, no batching",
    "stub": "equal scores, bare socket",
    "ours": "Phasewise",
}


def show(
    console: Console,
    facts: Mapping[str, Any],
    rounds: Sequence[Round],
    times: Sequence[Times],
    memory: Sequence[ServiceMemory],
    perf: Sequence[Perf] = (),
) -> None:
    console.print(f"{facts['date']}, {facts['machine']}", highlight=False)
    if rounds:
        console.print(_binding(rounds, facts))
        console.print(_cpu(rounds))
    if times:
        console.print(_calls(times))
    if memory:
        console.print(_memory(memory))
    if perf:
        console.print(_perf(perf, facts))


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Kind -> median over rounds of pods bound per second."""
    found = {kind: [each.pods_per_s for each in rounds if each.kind == kind] for kind in KINDS}
    return {kind: statistics.median(rates) for kind, rates in found.items() if rates}


def _binding(rounds: Sequence[Round], facts: Mapping[str, Any]) -> Table:
    middle = medians(rounds)
    scored = f"{facts['share_percent']} % of them passed" if facts["share_percent"] else "passed as by default"
    title = f"pods bound per second, {facts['nodes']} nodes, {scored}, bursts of {facts['pods']}; medians of the rounds"
    shares = [kind for kind in KINDS if kind not in OURS and kind in middle]
    numbers = ("pods/s", "by round", *(f"of {TITLES[kind]}" for kind in shares), "cores of others")
    rows = benches.table(title, "extender", *numbers)
    for kind, rate in middle.items():
        own = [each for each in rounds if each.kind == kind]
        rows.add_row(
            TITLES[kind],
            f"{rate:.0f}",
            " ".join(f"{each.pods_per_s:.0f}" for each in own),
            *(f"{rate / middle[other]:.1%}" for other in shares),
            " ".join(f"{each.other_cores:.1f}" for each in own),
        )
    return rows


def _cpu(rounds: Sequence[Round]) -> Table:
    title = "CPU per pod, ms, and memory of the scheduler; medians of the rounds"
    parts_of = ("extender", "scheduler", "API server and etcd", "together", "scheduler resident, MiB")
    rows = benches.table(title, "extender", *parts_of)
    for kind in medians(rounds):
        own = [each for each in rounds if each.kind == kind]
        parts = [(each.extender_cpu_ms, each.scheduler_cpu_ms, each.server_cpu_ms) for each in own]
        figures = [*zip(*parts, strict=True), [sum(each) for each in parts]]
        scheduler_mib = statistics.median(each.scheduler_mib for each in own)
        rows.add_row(TITLES[kind], *(f"{statistics.median(ms):.2f}" for ms in figures), f"{scheduler_mib:.0f}")
    return rows


def _calls(times: Sequence[Times]) -> Table:
    title = "latency of a call, milliseconds; the constant answer has the same size"
    headers = ("calls", "p50", "p90", "p99", "max", "p99, goal", "cores of others")
    rows = benches.table(title, "node names", "slow clients", "server", "verb", *headers, text_columns=4)
    for one in times:
        goals = P99_BESIDE_SLOW_MS if one.slow_clients else P99_MS
        goal = goals.get(one.names, 0.0) * (2 if one.verb == BOTH else 1) if one.server in OURS else 0.0
        figures = (f"{ms:.2f}" for ms in (one.p50_ms, one.p90_ms, one.p99_ms, one.most_ms))
        rows.add_row(
            f"{one.names:,}",
            f"{one.slow_clients:,}",
            one.server,
            one.verb,
            str(one.calls),
            *figures,
            f"{goal:g}" if goal else "",
            f"{one.other_cores:.1f}",
        )
    return rows


def _memory(memory: Sequence[ServiceMemory]) -> Table:
    headers = ("nodes", "pods", "synced after", "once synced", "after the calls", "RSS, sum", "goal")
    rows = benches.table("memory, MiB (PSS of all processes)", "extender", *headers)
    for one in memory:
        goal = f"{PSS_MIB:.0f}" if (one.nodes, one.pods) == (5_000, 50_000) else ""
        rows.add_row(
            TITLES[one.kind], f"{one.nodes:,}", f"{one.pods:,}", f"{one.synced_s:.1f} s", f"{one.synced.pss_mib:.0f}",
            f"{one.used.pss_mib:.0f}", f"{one.used.rss_mib:.0f}", goal,
        )  # fmt: skip
    return rows


def _perf(perf: Sequence[Perf], facts: Mapping[str, Any]) -> Table:
    title = f"scheduler_perf, {facts['nodes']} nodes, {facts['pods']} pods; medians of the rounds"
    rows = benches.table(
        title, "case", "extender", "pods/s", "by round", "attempt, ms: p50", "p90", "p99", text_columns=2
    )
    for case, kind in dict.fromkeys((each.case, each.kind) for each in sorted(perf, key=lambda one: one.case)):
        own = [each for each in perf if (each.case, each.kind) == (case, kind)]
        middle = (
            statistics.median(ms) for ms in zip(*((one.p50_ms, one.p90_ms, one.p99_ms) for one in own), strict=True)
        )
        rows.add_row(
            case,
            PERF_TITLES[kind],
            f"{statistics.median(one.pods_per_s for one in own):.0f}",
            " ".join(f"{one.pods_per_s:.0f}" for one in own),
            *(f"{ms:.2f}" for ms in middle),
        )
    return rows


def write_json(
    file: Path,
    facts: Mapping[str, Any],
    rounds: Sequence[Round],
    times: Sequence[Times],
    memory: Sequence[ServiceMemory],
    perf: Sequence[Perf] = (),
) -> None:
    p99_ms = {str(names): ms for names, ms in P99_MS.items()}
    goals = {"bind_share": BIND_RATE_GOAL, "p99_ms": p99_ms, "pss_mib": PSS_MIB}
    content = {
        **facts,
        "goals": goals,
        "binding": {"median_pods_per_s": medians(rounds), "rounds": rounds},
        "calls": times,
        "perf": perf,
        "memory": memory,
    }
    benches.write_json(file, content)
