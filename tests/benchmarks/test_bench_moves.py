"""bench_moves: how it judges jobs moved under faults, and a few moves on real nodes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest

from benchmarks.moves.faults import FaultCounts, as_json, check_steps, table_row
from tests.benchmarks.benches import invoke
from tests.rig.real_node.node import what_is_missing


def test_missing_and_repeated_steps_are_detected_across_pods() -> None:
    assert check_steps([(1, "a"), (2, "a"), (3, "b"), (4, "b")]) == (False, False, 2)
    assert check_steps([(1, "a"), (2, "a"), (1, "b"), (2, "b")]) == (False, True, 2)
    assert check_steps([(1, "a"), (3, "a")]) == (True, False, 1)
    assert check_steps([]) == (False, False, 0)


def test_the_table_row_shows_the_faults_and_their_effect_on_jobs() -> None:
    faults = Counter({"node full": 2, "controller killed": 3})
    counted = FaultCounts(faults, moves=20, jobs=21, downtime_s=[4.0, 6.0, 20.0])
    row = "| 20 of 21 jobs | 3 x controller killed, 2 x node full | 0 | 0 | 0 | 0 | 0 | 6 s, 20 s |"
    assert table_row(counted) == row
    assert orjson.loads(orjson.dumps(as_json(counted)))["faults"] == {"node full": 2, "controller killed": 3}


@pytest.mark.skipif(bool(what_is_missing()), reason=f"no real node on this machine: {what_is_missing()}")
@pytest.mark.cluster
def test_jobs_moved_on_real_nodes_under_faults_lose_nothing(tmp_path: Path) -> None:
    done = invoke("bench_moves", "--faults", "--moved", 3, "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    counted = orjson.loads((tmp_path / "r.json").read_bytes())
    assert counted["moves"] >= 3 <= counted["jobs"] - 1
    assert all(counted[harm] == 0 for harm in ("lost", "repeated", "moved_twice", "late", "failed"))
