"""A recorded recommender, run again: it says the same, bit for bit; whatever befell it in between."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from local_cluster.waiting import wait_until
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.oom import OomObservation
from recommender.engine import advising
from recommender.engine.engine import Engine
from recommender.engine.journal import Journal, Reader
from recommender.engine.keys import Group
from recommender.engine.options import Options, RailOptions
from recommender.engine.recording import Recorder
from recommender.engine.replaying import Replay, Step
from recommender.errors import BadInput
from recommender.slots import SlotArrays
from tests.fakes.day import START_S
from tests.fakes.recorded import PIECE_BYTES, Outage, live, recorder_of
from tests.fakes.records import GIB, MAIN, FakeView, a_pod, a_vpa, recommender, rounds, target_of


@pytest.fixture
def cluster() -> FakeView:
    records = FakeView()
    records.raw["job"] = a_vpa()
    records.pods["job"] = [a_pod("job-1")]
    return records


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "record"


def differing(file: Path) -> tuple[int, int, list[tuple[float, Group]]]:
    """Steps, targets that were said, and where other ones are said now."""
    steps, said, found = 0, 0, list[tuple[float, Group]]()
    for step in Replay(file).steps():
        steps, said = steps + 1, said + len(step.changed)
        found += [(step.now_s, group) for group in step.changed if step.differs(group)]
    return steps, said, found


def last_of(file: Path, **more: float) -> Step:
    *_, step = Replay(file).steps(**more)
    return step


# -- one container, by hand --------------------------------------------------------------------------------------------


def test_what_a_container_was_given_and_why_is_known_of_each_moment(cluster: FakeView, file: Path) -> None:
    recorder = recorder_of(file)
    ours = recommender(cluster, recorder=recorder)
    rounds(ours, cluster, 40)
    calm_s, calm = cluster.now_s, ours.engine.why(MAIN)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(ours, cluster, 1)
    killed = ours.engine.why(MAIN)
    recorder.close()
    steps, _, found = differing(file)
    assert (steps, found) == (41, [])
    assert last_of(file, until_s=calm_s).engine.why(MAIN).rails == calm.rails
    then = last_of(file, until_s=calm_s + 1.0)
    assert then.engine.why(MAIN).rails == killed.rails != calm.rails
    assert "killed" in str(killed.rails)
    assert then.engine.targets[MAIN].estimate.target[1] == ours.engine.targets[MAIN].estimate.target[1]


def test_with_another_margin_another_target_is_said(cluster: FakeView, file: Path) -> None:
    recorder = recorder_of(file)
    ours = recommender(cluster, recorder=recorder)
    rounds(ours, cluster, 40, memory_gib=3.9)
    recorder.close()
    wide = Options(RailOptions(memory_margin=0.5))
    *_, last = Replay(file, lambda start: start._replace(options=wide)).steps()
    assert last.differs(MAIN)
    assert last.engine.targets[MAIN].estimate.target[1] == pytest.approx(1.5 * 3.9 * GIB, rel=0.01)
    assert target_of(cluster)[1] < 1.4 * 3.9


def test_what_the_user_allows_bounds_what_would_have_been_given_too(cluster: FakeView, file: Path) -> None:
    most = {"containerPolicies": [{"containerName": "*", "maxAllowed": {"memory": "4Gi"}}]}
    cluster.raw["job"] = a_vpa(resourcePolicy=most)
    recorder = recorder_of(file)
    rounds(recommender(cluster, recorder=recorder), cluster, 40, memory_gib=3.9)
    recorder.close()
    wide = Options(RailOptions(memory_margin=0.5))
    *_, last = Replay(file, lambda start: start._replace(options=wide)).steps()
    groups = last.engine.groups
    assert groups.arrays.published[groups.slots[MAIN], 1] > 5.8 * GIB
    assert groups.arrays.given[groups.slots[MAIN], 1] == 4 * GIB


def test_a_step_that_failed_fails_again_and_is_the_end_of_what_can_be_known(
    cluster: FakeView, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = recorder_of(file)
    ours = recommender(cluster, recorder=recorder)
    rounds(ours, cluster, 5)
    with monkeypatch.context() as broken:
        broken.setattr(advising, "assess", failing_from(cluster.now_s + 1.0))
        with pytest.raises(ZeroDivisionError):
            rounds(ours, cluster, 1)
        recorder.close()
        assert differing(file)[0] == 6
        assert "failed when recorded, and fails now: ZeroDivisionError" in caplog.text
    assert differing(file)[0] == 6  # mended, it goes on


def failing_from(at_s: float) -> Callable[..., object]:
    """In place of the look at the situation."""
    assess = advising.assess

    def failing(*given: Any) -> object:
        return assess(*given) if given[5] < at_s else 1 / 0

    return failing


def test_a_disk_that_is_full_ends_the_record_and_not_the_rounds(
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
    assert differing(file)[0] == 5


def test_a_next_file_that_cannot_be_made_ends_the_record_and_not_the_rounds(cluster: FakeView, file: Path) -> None:
    ours = recommender(cluster, recorder=Recorder(Journal(file, 1)))
    assert not rounds(ours, cluster, 1).problems
    file.with_name("record.1").mkdir()
    for _ in range(2):
        assert rounds(ours, cluster, 1).problems == {"record": "the record ends here: Is a directory"}
    file.with_name("record.1").rmdir()
    assert differing(file)[0] == 1


# -- a world -----------------------------------------------------------------------------------------------------------


@dataclass
class Hours:
    """A record, the cluster it was made in, and the engine as it was at the end."""

    file: Path
    day: Outage
    engine: Engine


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Hours:
    """Two hours and some minutes, the API server away for five of them, and forty minutes after a restart."""
    file = tmp_path_factory.mktemp("hours") / "record"
    day, recorder = Outage(round_s=60.0), recorder_of(file)
    for number, _ in enumerate(live(day, recorder, 130)):
        day.away = 70 <= number < 75
    *_, last = live(day, recorder, 40)
    recorder.close()
    assert (last.engine.groups.arrays.killed_s > START_S).any()
    return Hours(file, day, last.engine)


def state_of(engine: Engine) -> dict[str, list[bytes]]:
    """All that decides what the engine says next, but for what earlier runs taught."""
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
    """Ten places of jobs of several classes that come, run and go; of each the minutes are told."""
    assert hours.day.class_states
    steps, said, found = differing(hours.file)
    assert (steps, found) == (170, [])
    assert said > 200
    now, then = state_of(last_of(hours.file).engine), state_of(hours.engine)
    assert {name for name, state in now.items() if state != then[name]} == set()


@pytest.mark.parametrize("lost", ["published", "history", "class"])
def test_nothing_that_is_recorded_can_be_left_out(lost: str, hours: Hours, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the entries of any one kind the engine comes to another state."""
    call_of = Replay._call_of
    monkeypatch.setattr(
        Replay, "_call_of", lambda run, kind, content: list if kind == lost else call_of(run, kind, content)
    )
    assert state_of(last_of(hours.file).engine) != state_of(hours.engine)


# -- a process that is killed ------------------------------------------------------------------------------------------


def killed_after(file: Path, blocks: int, before: Callable[[], int]) -> None:
    process = subprocess.Popen([sys.executable, "-m", "tests.fakes.recorded", file], cwd=Path(__file__).parents[3])
    try:
        wait_until(lambda: before() >= blocks, "some rounds", timeout_s=120, every_s=0.3)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_killed_while_it_records_all_rounds_but_the_last_are_there_and_the_next_process_goes_on(file: Path) -> None:
    def blocks() -> int:
        return sum(1 for _ in Reader(file)) if file.exists() else 0

    killed_after(file, 30, blocks)
    first = blocks()
    steps, said, found = differing(file)
    assert (steps, found) == (first, [])
    assert said > 0
    killed_after(file, first + 20, blocks)
    begun = [step.begins for step in Replay(file).steps()]
    assert sum(begun) == 2
    assert begun.index(True, 1) == first
    assert differing(file)[2] == []


# -- files that cannot be used -----------------------------------------------------------------------------------------


def test_a_record_of_another_version_is_named_with_its_block(file: Path) -> None:
    journal = Journal(file, PIECE_BYTES)
    text = b'[["start", {"options": {}}]]'
    journal.append(len(text).to_bytes(4, "little") + text)
    journal.close()
    with pytest.raises(BadInput, match=r"record: block 1 does not fit .*replay it with that one"):
        list(Replay(file).steps())
