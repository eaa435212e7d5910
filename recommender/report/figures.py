"""The results of a dry run for programs: JSON with a stable schema (`"schema": 1`), and a flat CSV."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from recommender.base.files import atomic_write
from recommender.base.records import CPU, MEMORY, ReplayResult
from recommender.report.nodes import node_figures
from recommender.report.summary import USUAL_PRICES, PolicyTotals, Prices, Usage, outcome_of, outcomes_of
from recommender.report.workloads import figures

SCHEMA = 1

COLUMNS = (
    "container", "workload", "policy", "oracle", "samples", "judged_hours",
    "cpu_used_core_hours", "cpu_allocated_core_hours", "cpu_slack_core_hours", "cpu_shortage_core_hours",
    "cpu_slack_ratio", "cpu_violations", "cpu_violation_ratio",
    "memory_used_gib_hours", "memory_allocated_gib_hours", "memory_slack_gib_hours", "memory_shortage_gib_hours",
    "memory_slack_ratio", "memory_violations", "memory_violation_ratio",
    "oom_events", "resizes", "resizes_per_hour", "kills", "lost_core_hours", "lost_gib_hours",
)  # fmt: skip
"""Columns of the CSV, one row per container and policy."""


def to_json(result: ReplayResult, prices: Prices = USUAL_PRICES) -> bytes:
    """Serialise the dry run as one JSON object.

    Stable keys: schema, step_s, cycle_s, containers, samples, model, workloads (as `recommend` has them), and per
    policy cpu, memory and resizes_per_container_hour; for policies of the simulated cluster also kills,
    killed_run_share, lost_core_hours, lost_gib_hours, net_saved_cpu and net_saved_memory. Further keys: left_out,
    notes, nodes (by policy, and for the requests advised, `new`), and per policy oracle, resizes and each resource's
    slack, shortage and violations. An undefined ratio (nothing used, judged or declared) is null.
    """
    totals = outcomes_of(result)
    report = {
        "schema": SCHEMA,
        "step_s": result.step_s,
        "cycle_s": result.cycle_s,
        "containers": len(result.containers),
        "samples": max((outcome.samples for outcome in totals.values()), default=0),
        "model": dict(result.model),
        "workloads": [figures(one, prices) for one in result.workloads],
        "policies": {name: _policy(outcome, name in result.oracles) for name, outcome in totals.items()},
        "nodes": {name: node_figures(one) for name, one in result.nodes.items()},
        "left_out": [{"container": container, "reason": reason} for container, reason in result.left_out],
        "notes": list(result.notes),
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(report, default=str, option=options)


def write_csv(result: ReplayResult, path: str | Path) -> None:
    """Write one row per container and policy; undefined ratios, and kills of policies not simulated, are empty."""
    with atomic_write(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for replay in result.containers:
            for policy in result.policies:
                outcome = outcome_of(replay.tallies[policy], replay.runs.get(policy))
                writer.writerow(
                    {
                        "container": replay.container,
                        "workload": replay.workload,
                        "policy": policy,
                        "oracle": int(policy in result.oracles),
                        "samples": outcome.samples,
                        "judged_hours": outcome.hours,
                        **{f"cpu_{name}": value for name, value in _usage(outcome.cpu, "core_hours").items()},
                        **{f"memory_{name}": value for name, value in _usage(outcome.memory, "gib_hours").items()},
                        "oom_events": outcome.oom_events,
                        "resizes": outcome.resizes,
                        "resizes_per_hour": outcome.resizes_per_hour,
                        **_kills(outcome),
                    }
                )


def _policy(outcome: PolicyTotals, oracle: bool) -> dict[str, Any]:
    return {
        "cpu": _usage(outcome.cpu, "core_hours"),
        "memory": {**_usage(outcome.memory, "gib_hours"), "oom_events": outcome.oom_events},
        **_kills(outcome),
        "resizes_per_container_hour": outcome.resizes_per_hour,
        "resizes": outcome.resizes,
        "oracle": oracle,
    }


def _usage(usage: Usage, unit: str) -> dict[str, Any]:
    """The JSON fields of a resource; the unit is appended to the names of amounts."""
    amounts = ("used", "allocated", "slack", "shortage")
    return {f"{name}_{unit}" if name in amounts else name: value for name, value in asdict(usage).items()}


def _kills(outcome: PolicyTotals) -> dict[str, Any]:
    if outcome.kills is None:
        return {}
    return {
        "kills": outcome.kills.kills,
        "killed_run_share": outcome.kills.killed_run_share,
        "lost_core_hours": outcome.lost[CPU],
        "lost_gib_hours": outcome.lost[MEMORY],
        "net_saved_cpu": outcome.kills.net_saved(CPU),
        "net_saved_memory": outcome.kills.net_saved(MEMORY),
    }
