"""The dry run as JSON, in the form other programs rely on (`"schema": 1`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from recommender.files import write_bytes_aside
from recommender.records import CPU, MEMORY, ReplayResult
from recommender.report.summary import Kills, Outcome, outcomes_of

SCHEMA = 1


def to_json(result: ReplayResult) -> bytes:
    """The whole dry run in one object.

    Keys that every reader may rely on: schema, step_s, cycle_s, containers, samples, model, and per policy cpu, memory
    and resizes_per_container_hour; of rows that were played in the simulated cluster kills, killed_run_share,
    lost_core_hours, lost_gib_hours, net_saved_cpu and net_saved_memory. Added for those who look closer: left_out,
    notes, and per policy oracle, resizes and each resource's shortage and violations. A ratio that is undefined
    (nothing used, nothing judged, nothing declared) is null.
    """
    totals = outcomes_of(result)
    report = {
        "schema": SCHEMA,
        "step_s": result.step_s,
        "cycle_s": result.cycle_s,
        "containers": len(result.containers),
        "samples": max((outcome.samples for outcome in totals.values()), default=0),
        "model": dict(result.model),
        "policies": {name: _policy(outcome, name in result.oracles) for name, outcome in totals.items()},
        "left_out": [{"container": container, "reason": reason} for container, reason in result.left_out],
        "notes": list(result.notes),
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(report, default=str, option=options)


def write_json(result: ReplayResult, path: str | Path) -> None:
    """Write `to_json` to a file, or for `-` to standard output."""
    data = to_json(result)
    if str(path) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        write_bytes_aside(path, data)


def _policy(outcome: Outcome, oracle: bool) -> dict[str, Any]:
    cpu, memory = outcome.resources
    return {
        "cpu": {
            "used_core_hours": cpu.used,
            "allocated_core_hours": cpu.allocated,
            "slack_ratio": cpu.slack_ratio,
            "violation_ratio": cpu.violation_ratio,
            "shortage_core_hours": cpu.shortage,
            "violations": cpu.violations,
        },
        "memory": {
            "used_gib_hours": memory.used,
            "allocated_gib_hours": memory.allocated,
            "slack_ratio": memory.slack_ratio,
            "violation_ratio": memory.violation_ratio,
            "shortage_gib_hours": memory.shortage,
            "violations": memory.violations,
            "oom_events": outcome.oom_events,
        },
        **_kills(outcome.kills),
        "resizes_per_container_hour": outcome.resizes_per_hour,
        "resizes": outcome.resizes,
        "oracle": oracle,
    }


def _kills(kills: Kills | None) -> dict[str, Any]:
    if kills is None:
        return {}
    return {
        "kills": kills.kills,
        "killed_run_share": kills.killed_run_share,
        "lost_core_hours": kills.lost[CPU],
        "lost_gib_hours": kills.lost[MEMORY],
        "net_saved_cpu": kills.net_saved[CPU],
        "net_saved_memory": kills.net_saved[MEMORY],
    }
