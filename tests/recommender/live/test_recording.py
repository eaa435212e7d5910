"""FakeView of a recommender: a replay publishes the same targets bit for bit, whatever happened in between."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.base.slots import SlotArrays
from recommender.cli.replay import Comparison
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.oom import OomObservation
from recommender.engine import engine as stepped
from recommender.engine.engine import Engine
from recommender.engine.journal import Journal, Reader
from recommender.engine.keys import Group
from recommender.engine.options import Options, RailOptions
from recommender.engine.recording import Recorder
from recommender.engine.replaying import Replay, Step
from recommender.learning import artifacts
from tests.fakes.day import START_S
from tests.fakes.recorded import PIECE_BYTES, Outage, live, recorder_of
from tests.fakes.records import GIB, MAIN, FakeView, a_pod, a_vpa, recommender, rounds
from tests.rig.waiting import wait_until


@pytest.fixture
def cluster() -> FakeView:
    records = FakeView()
    records.raw["job"] = a_vpa()
    records.pods["job"] = [a_pod("job-1")]
    return records


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record"


def replayed(file: Path) -> tuple[int, int, list[tuple[float, Group]], Step]:
    """Number of steps and of recorded targets, where the targets of a replay differ, and its last step."""
    steps, targets, differences = 0, 0, list[tuple[float, Group]]()
    for step in Replay(file).steps():
        steps, targets = steps + 1, targets + len(step.changed)
        differences += [(step.now_s, group) for group in step.changed if step.differs(group)]
    return steps, targets, differences, step


def last_step(file: Path, **options: float) -> Step:
    *_, step = Replay(file).steps(**options)
    return step


# -- one container -----------------------------------------------------------------------------------------------------


def test_the_users_limits_bound_targets_of_a_replay_with_other_options(cluster: FakeView, file: Path) -> None:
    policy = {"containerPolicies": [{"containerName": "*", "maxAllowed": {"memory": "4Gi"}}]}
    cluster.raw["job"] = a_vpa(resourcePolicy=policy)
    recorder = recorder_of(file)
    rounds(recommender(cluster, recorder=recorder), cluster, 40, memory_gib=3.9)
    recorder.close()
    wide = Options(RailOptions(memory_margin=0.5))
    *_, last = Replay(file, lambda start: start._replace(options=wide)).steps()
    groups = last.engine.groups
    assert groups.arrays.published[groups.slots[MAIN], 1] > 5.8 * GIB
    assert groups.arrays.in_force[groups.slots[MAIN], 1] == 4 * GIB


def test_a_failed_step_fails_again_in_a_replay_unless_the_code_is_fixed(
    cluster: FakeView, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_of(file)
    ours = recommender(cluster, recorder=recorder)
    rounds(ours, cluster, 5)
    with monkeypatch.context() as broken:
        broken.setattr(stepped, "assess", failing_from(cluster.now_s + 1.0))
        with pytest.raises(ZeroDivisionError):
            rounds(ours, cluster, 1)
        recorder.close()
        assert replayed(file)[0] == 6
        assert "failed when recorded, and fails now: ZeroDivisionError" in caplog.text
    caplog.clear()
    assert replayed(file)[0] == 6
    assert "fails now" not in caplog.text, "with fixed code"


def failing_from(at_s: float) -> Callable[..., object]:
    """A replacement of `assess` that fails from this time on."""
    assess = stepped.assess

    def failing(*arguments: Any) -> object:
        return assess(*arguments) if arguments[5] < at_s else 1 / 0

    return failing


def test_a_full_disk_ends_the_record_but_not_the_rounds(
    cluster: FakeView, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorder_of(file)
    ours = recommender(cluster, recorder=recorder)
    assert not rounds(ours, cluster, 5).problems

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Journal, "append", full)
    for _ in range(2):
        assert rounds(ours, cluster, 1).problems == {"record": "the record ends here: No space left on device"}
    assert replayed(file)[0] == 5


def test_a_next_file_that_cannot_be_created_ends_the_record_but_not_the_rounds(cluster: FakeView, file: Path) -> None:
    ours = recommender(cluster, recorder=Recorder(Journal(file, 1)))
    assert not rounds(ours, cluster, 1).problems
    file.with_name("record.1").mkdir()
    for _ in range(2):
        assert rounds(ours, cluster, 1).problems == {"record": "the record ends here: Is a directory"}
    file.with_name("record.1").rmdir()
    assert replayed(file)[0] == 1


# -- a cluster with many jobs ------------------------------------------------------------------------------------------


@dataclass
class Hours:
    """A record, the cluster in which it was made, and the engine at the end."""

    file: Path
    day: Outage
    engine: Engine


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Hours:
    """An hour, five minutes of it without an API server, and a quarter of an hour after a restart."""
    file = tmp_path_factory.mktemp("hours") / "record"
    day, recorder = Outage(round_s=60.0), recorder_of(file)
    for number, _ in enumerate(live(day, recorder, 60)):
        day.away = 30 <= number < 35
    *_, last = live(day, recorder, 15)
    recorder.close()
    assert (last.engine.groups.arrays.killed_s > START_S).any()
    return Hours(file, day, last.engine)


def state_of(engine: Engine) -> dict[str, list[bytes]]:
    """All that determines the engine's next targets, except what it learned from earlier runs."""
    fleet, groups = engine.fleet, engine.groups
    parts: dict[str, SlotArrays] = {
        "containers": fleet.arrays, "rows": fleet.rows, "curves": fleet.curves, "tracker": fleet.tracker.state,
        "foresight": fleet.foresight.state, "groups": groups.arrays,
    }  # fmt: skip
    found = {
        f"{part}.{name}": [array.tobytes()]
        for part, arrays in parts.items()
        for name, array in vars(arrays).items()
        if isinstance(array, np.ndarray)
    }
    for group, slot in groups.slots.items():
        past = groups.history[slot].past
        found[f"history of {group}"] = [array.tobytes() for array in (*past.cpu, *past.memory, past.state)]
    return found


def test_hours_of_many_jobs_with_kills_a_restart_and_an_outage_are_replayed_bit_for_bit(hours: Hours) -> None:
    """Jobs of several classes start, run and end in ten places; rounds are a minute apart."""
    assert hours.day.class_states
    steps, targets, differences, last = replayed(hours.file)
    assert (steps, differences) == (75, [])
    assert targets > 100
    replayed_state, recorded_state = state_of(last.engine), state_of(hours.engine)
    assert {name for name, state in replayed_state.items() if state != recorded_state[name]} == set()


@pytest.mark.long
@pytest.mark.parametrize("omitted", [{"published"}, {"history"}, {"load", "in_use", "drop_untaught", "forget"}])
def test_a_replay_without_the_calls_of_one_kind_ends_in_another_state(
    omitted: set[str], hours: Hours, tmp_path: Path
) -> None:
    blocks = [[entry for entry in block if not omitted & entry.keys()] for block in blocks_of(hours.file)]
    write(tmp_path / "record", blocks)
    assert state_of(last_step(tmp_path / "record").engine) != state_of(hours.engine)


# -- a killed process --------------------------------------------------------------------------------------------------


def run_until_killed(file: Path, blocks: int, count: Callable[[], int]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "tests.fakes.recorded", file], cwd=Path(__file__).parents[3])
    try:
        wait_until(lambda: count() >= blocks, "some rounds", timeout_s=120, every_s=0.3)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.long
def test_a_record_survives_a_kill_and_the_next_process_continues_it(file: Path) -> None:
    def blocks() -> int:
        return sum(1 for _ in Reader(file)) if file.exists() else 0

    run_until_killed(file, 30, blocks)
    first = blocks()
    steps, targets, differences, _ = replayed(file)
    assert (steps, differences) == (first, [])
    assert targets > 0
    run_until_killed(file, first + 20, blocks)
    starts = [step.begins for step in Replay(file).steps()]
    assert sum(starts) == 2
    assert starts.index(True, 1) == first
    assert replayed(file)[2] == []


# -- unusable files ----------------------------------------------------------------------------------------------------


def test_a_record_of_another_version_is_reported_with_its_block(file: Path) -> None:
    write(file, [[{"start": {"options": {}}}]])
    with pytest.raises(BadInput, match=r"record: block 1 does not fit .*replay it with that one"):
        list(Replay(file).steps())


def test_a_record_with_a_model_of_another_version_is_reported_as_such(
    cluster: FakeView, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = recorder_of(file)
    rounds(recommender(cluster, recorder=recorder), cluster, 1)
    recorder.close()
    monkeypatch.setattr(artifacts, "SCHEMA", artifacts.SCHEMA + 1)
    with pytest.raises(BadInput, match=r"record: block 1 does not fit .*its model .*replay it with that one"):
        list(Replay(file).steps())


Blocks = list[list[dict[str, Any]]]
"""The entries of each block."""


def blocks_of(file: Path) -> Blocks:
    return [json.loads(block.content) for block in Reader(file)]


def write(file: Path, blocks: Blocks) -> None:
    journal = Journal(file, PIECE_BYTES)
    for block in blocks:
        journal.append(json.dumps(block).encode())
    journal.close()


def edited_record(file: Path, edit: Callable[[Blocks], object], steps: int = 12) -> None:
    """A record of a few steps with a kill, edited where no checksum tells."""
    cluster, recorder = FakeView(), recorder_of(file)
    cluster.raw["job"], cluster.pods["job"] = a_vpa(), [a_pod("job-1")]
    ours = recommender(cluster, recorder=recorder)
    rounds(ours, cluster, steps - 3, memory_gib=2.0)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(ours, cluster, 3, memory_gib=2.0)
    recorder.close()
    blocks = blocks_of(file)
    file.unlink()
    edit(blocks)
    write(file, blocks)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda blocks: blocks[0].pop(0), r"block 1 .*it has no model '\w{64}'"),
        (lambda blocks: blocks[0][1]["start"].__setitem__(1, "15s"), r"block 1 .*start\.1: .*valid number"),
        (lambda blocks: blocks[0][1]["start"].__setitem__(2, 2**53), r"block 1 .*start\.2: .*less than"),
        (
            lambda blocks: blocks[0][1]["start"][0]["rails"].update(shrink_step=None),
            r"block 1 .*start\.0\.rails\.shrink_step: .*valid number",
        ),
        (
            lambda blocks: blocks[0][1]["start"][0]["rails"].update(memory_margin=1e300),
            r"block 1 .*memory_margin is 1e\+300",
        ),
        (lambda blocks: blocks[0][1]["start"].__setitem__(4, math.nan), "block 1 .*sample_s is nan"),
        (lambda blocks: blocks[1][0]["step"].update(now_s=math.nan), r"block 2 .*step\.now_s: .*less than"),
        (lambda blocks: blocks[1][0]["step"].update(values="AAAA"), "block 2 does not fit"),
        (lambda blocks: blocks[1][0].update(jump=[]), r"block 2 .*jump: "),
    ],
)
def test_a_record_with_a_part_missing_or_of_another_type_is_refused_with_its_block(
    file: Path, edit: Callable[[Blocks], object], message: str
) -> None:
    edited_record(file, edit)
    with pytest.raises(BadInput, match=rf"record: {message}.*replay it with that one"):
        list(Replay(file).steps())


VALUES = (None, True, 0, -1, 2**31, 2**64, 1.5, 1e300, math.nan, math.inf, "", "\ud800", [], {}, [[]], [1], {"a": 1})


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys or positions."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])


@given(st.data())
def test_a_record_with_any_value_replaced_is_replayed_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    def edit(blocks: Blocks) -> None:
        content, key = data.draw(st.sampled_from(list(places(data.draw(st.sampled_from(blocks))))))
        content[key] = data.draw(st.sampled_from(VALUES))

    file = tmp_path_factory.mktemp("edited") / "record"
    edited_record(file, edit, steps=6)
    with suppress(BadInput):
        comparison = Comparison()
        for step in Replay(file).steps():
            comparison.see(step)
