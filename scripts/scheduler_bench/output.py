"""The bench's tables, its goals and its JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import benches
from scheduler_bench.binding import KINDS, OURS, Round
from scheduler_bench.calls import Times
from scheduler_bench.large import Held
from scheduler_bench.perf import Perf

BIND_SHARE = 0.95
P99_MS, P99_BESIDE_SLOW_MS = {1_000: 2.0, 5_000: 2.0}, {1_000: 4.0, 5_000: 4.0}
PSS_MIB = 400e6 / 2**20
"""The goals: of the pods bound with an extender that answers at once; of calls by node names; of the whole service."""

TITLES = {
    "none": "no extender",
    "flask": "nothing, by Flask",
    "bare": "nothing, by a bare socket",
    "bare-scores": "all alike, by a bare socket",
    "served": "nothing, as ours is served",
    "scores": "all alike, as ours is served",
    "ours": "ours",
    "tuned": "nothing, scheduler of our manifests",
    "installed": "ours, scheduler of our manifests",
}

PERF_TITLES = {
    "none": "no extender",
    "unbatched": "no extender, no batching",
    "stub": "all alike, by a bare socket",
    "ours": "ours",
}


def show(
    console: Console,
    facts: Mapping[str, Any],
    rounds: Sequence[Round],
    times: Sequence[Times],
    held: Sequence[Held],
    perf: Sequence[Perf] = (),
) -> None:
    """What was measured, beside what it is compared with."""
    console.print(f"{facts['date']}, {facts['machine']}", highlight=False)
    if rounds:
        console.print(_binding(rounds, facts))
        console.print(_cpu(rounds))
    if times:
        console.print(_calls(times))
    if held:
        console.print(_memory(held))
    if perf:
        console.print(_perf(perf, facts))


def medians(rounds: Sequence[Round]) -> dict[str, float]:
    """Pods bound a second by kind: the median of its rounds."""
    found = {kind: [each.pods_per_s for each in rounds if each.kind == kind] for kind in KINDS}
    return {kind: statistics.median(rates) for kind, rates in found.items() if rates}


def _binding(rounds: Sequence[Round], facts: Mapping[str, Any]) -> Table:
    middle = medians(rounds)
    asked = f"{facts['share_percent']} % of them asked about" if facts["share_percent"] else "asked about as by default"
    title = f"pods bound per second, {facts['nodes']} nodes, {asked}, bursts of {facts['pods']}; median of the rounds"
    shares = [kind for kind in KINDS if kind not in OURS and kind in middle]
    numbers = ("pods/s", "rounds", *(f"of {TITLES[kind]}" for kind in shares), "others' cores")
    made = benches.table(title, "extender", *numbers)
    for kind, rate in middle.items():
        own = [each for each in rounds if each.kind == kind]
        made.add_row(
            TITLES[kind],
            f"{rate:.0f}",
            " ".join(f"{each.pods_per_s:.0f}" for each in own),
            *(f"{rate / middle[other]:.1%}" for other in shares),
            " ".join(f"{each.others_cores:.1f}" for each in own),
        )
    return made


def _cpu(rounds: Sequence[Round]) -> Table:
    title = "CPU of a pod, ms, and the scheduler's memory; medians of the rounds"
    parts_of = ("its own", "scheduler's", "API server's and etcd's", "together", "resident, MiB")
    made = benches.table(title, "extender", *parts_of)
    for kind in medians(rounds):
        own = [each for each in rounds if each.kind == kind]
        parts = [(each.extender_cpu_ms, each.scheduler_cpu_ms, each.server_cpu_ms) for each in own]
        figures = [*zip(*parts, strict=True), [sum(each) for each in parts]]
        held_mib = statistics.median(each.scheduler_mib for each in own)
        made.add_row(TITLES[kind], *(f"{statistics.median(ms):.2f}" for ms in figures), f"{held_mib:.0f}")
    return made


def _calls(times: Sequence[Times]) -> Table:
    title = "a call, milliseconds; the constant has the size of the answer"
    heads = ("calls", "p50", "p90", "p99", "most", "goal p99", "others' cores")
    made = benches.table(title, "node names", "slow clients", "server", "verb", *heads, text_columns=4)
    for one in times:
        goals = P99_BESIDE_SLOW_MS if one.slow_clients else P99_MS
        goal = goals.get(one.names) if one.server == "ours" else None
        figures = (f"{ms:.2f}" for ms in (one.p50_ms, one.p90_ms, one.p99_ms, one.most_ms))
        made.add_row(
            f"{one.names:,}",
            f"{one.slow_clients:,}",
            one.server,
            one.verb,
            str(one.calls),
            *figures,
            f"{goal:g}" if goal else "",
            f"{one.others_cores:.1f}",
        )
    return made


def _memory(held: Sequence[Held]) -> Table:
    heads = ("nodes", "pods", "synced after", "once synced", "after the calls", "RSS, sum", "goal")
    made = benches.table("memory of the whole service, MiB (PSS of all its processes)", *heads, text_columns=0)
    for one in held:
        goal = f"{PSS_MIB:.0f}" if (one.nodes, one.pods) == (5_000, 50_000) else ""
        made.add_row(
            f"{one.nodes:,}", f"{one.pods:,}", f"{one.synced_s:.1f} s", f"{one.synced.pss_mib:.0f}",
            f"{one.used.pss_mib:.0f}", f"{one.used.rss_mib:.0f}", goal,
        )  # fmt: skip
    return made


def _perf(perf: Sequence[Perf], facts: Mapping[str, Any]) -> Table:
    title = f"scheduler_perf, {facts['nodes']} nodes, {facts['pods']} pods; medians of the rounds"
    made = benches.table(
        title, "case", "extender", "pods/s", "rounds", "an attempt, ms: p50", "p90", "p99", text_columns=2
    )
    for case, kind in dict.fromkeys((each.case, each.kind) for each in sorted(perf, key=lambda one: one.case)):
        own = [each for each in perf if (each.case, each.kind) == (case, kind)]
        middle = (
            statistics.median(ms) for ms in zip(*((one.p50_ms, one.p90_ms, one.p99_ms) for one in own), strict=True)
        )
        made.add_row(
            case,
            PERF_TITLES[kind],
            f"{statistics.median(one.pods_per_s for one in own):.0f}",
            " ".join(f"{one.pods_per_s:.0f}" for one in own),
            *(f"{ms:.2f}" for ms in middle),
        )
    return made


def write_json(
    file: Path,
    facts: Mapping[str, Any],
    rounds: Sequence[Round],
    times: Sequence[Times],
    held: Sequence[Held],
    perf: Sequence[Perf] = (),
) -> None:
    """Everything, for programs."""
    goals = {"bind_share": BIND_SHARE, "p99_ms": {str(names): ms for names, ms in P99_MS.items()}, "pss_mib": PSS_MIB}
    content = {
        **facts,
        "goals": goals,
        "binding": {"median_pods_per_s": medians(rounds), "rounds": rounds},
        "calls": times,
        "perf": perf,
        "memory": held,
    }
    benches.write_json(file, content)
