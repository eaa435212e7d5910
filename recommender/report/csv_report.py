"""The dry run as a flat table: a row per container and policy."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from recommender.files import written_aside
from recommender.records import ReplayResult
from recommender.report.summary import outcome_of

COLUMNS = (
    "container", "workload", "policy", "oracle", "samples", "judged_hours",
    "cpu_used_core_hours", "cpu_allocated_core_hours", "cpu_slack_core_hours", "cpu_shortage_core_hours",
    "cpu_slack_ratio", "cpu_violations", "cpu_violation_ratio",
    "memory_used_gib_hours", "memory_allocated_gib_hours", "memory_slack_gib_hours", "memory_shortage_gib_hours",
    "memory_slack_ratio", "memory_violations", "memory_violation_ratio",
    "oom_events", "resizes", "resizes_per_hour", "kills", "lost_core_hours", "lost_gib_hours",
)  # fmt: skip


def write_csv(result: ReplayResult, path: str | Path) -> None:
    """Write one row per container and policy; an undefined ratio, and kills where none is played, are empty fields."""
    with written_aside(path) as aside, aside.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_rows(result))


def _rows(result: ReplayResult) -> Iterator[list[object]]:
    for replay in result.containers:
        for policy in result.policies:
            outcome = outcome_of(replay.tallies[policy], replay.runs.get(policy))
            row: list[object] = [replay.container, replay.workload, policy, int(policy in result.oracles)]
            row += [outcome.samples, outcome.hours]
            for usage in outcome.resources:
                row += [usage.used, usage.allocated, usage.slack, usage.shortage]
                row += [usage.slack_ratio, usage.violations, usage.violation_ratio]
            row += [outcome.oom_events, outcome.resizes, outcome.resizes_per_hour]
            yield [*row, *((None,) * 3 if outcome.kills is None else (outcome.kills.kills, *outcome.kills.lost))]
