"""`phasewise replay` and `phasewise explain --record`, on a record of one minute."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from recommender.cli.replay import start_changes
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.usage.oom import OomObservation
from recommender.engine.entries import Start, encode_target
from recommender.engine.journal import Journal
from recommender.engine.options import Options
from recommender.engine.recording import Recorder
from recommender.engine.target import Target
from tests.fakes.command_line import CommandResult
from tests.fakes.records import GIB, FakeView, a_pod, a_vpa, recommender, rounds

Phasewise = Callable[..., CommandResult]

STEPS, KILLED_AT = 60, 1_000_040


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute of one container that is OOM-killed after 40 seconds."""
    file, cluster = tmp_path_factory.mktemp("record") / "minute.rec", FakeView()
    cluster.raw["job"], cluster.pods["job"] = a_vpa(), [a_pod("job-1")]
    recorder = Recorder(Journal(file, 2**30))
    live = recommender(cluster, recorder=recorder)
    rounds(live, cluster, 40, memory_gib=2.0)
    cluster.killed = [OomObservation(ObjectKey("ns", "job-1"), "main", cluster.now_s, 4 * GIB)]
    rounds(live, cluster, 20, memory_gib=2.0)
    recorder.close()
    return file


def test_a_replay_with_equal_targets_exits_with_0(phasewise: Phasewise, record: Path) -> None:
    ended = phasewise("replay", record)
    assert ended.code == 0
    assert "60 steps, 1970-01-12T13:46:41Z to 1970-01-12T13:47:40Z; starts: 1" in ended.out
    assert "all targets are equal, bit for bit" in ended.out


@pytest.mark.option("phasewise replay", "--from", "--until", "--json")
def test_a_replay_with_other_targets_reports_them_and_exits_with_1(
    phasewise: Phasewise, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recommender.engine.kills.bumped_memory_bytes", lambda *_: 7 * GIB)
    ended = phasewise("replay", record, "--json")
    assert ended.code == 1
    document = orjson.loads(ended.out)
    first = document["differences"][0]
    assert (first["at_s"], first["vpa"], first["container"]) == (KILLED_AT + 1, "job", "main")
    assert first["recorded"][0][1][1] == pytest.approx(4.8 * GIB, rel=0.01)
    assert first["replayed"][0][1][1] == pytest.approx(7 * GIB)
    ended = phasewise("replay", record)
    assert "ns/job" in ended.out
    before = phasewise("replay", record, "--until", KILLED_AT)
    assert before.code == 0
    after = phasewise("replay", record, "--from", KILLED_AT + 10, "--json")
    assert after.code == 1
    assert orjson.loads(after.out)["from_s"] == KILLED_AT + 10


def test_targets_that_differ_in_one_bit_are_shown_as_different(
    phasewise: Phasewise, record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_bit_more(target: Target | None) -> Any:
        (lower, (cpu_cores, memory_bytes), upper), doubt = encode_target(target)
        return [[lower, [math.nextafter(cpu_cores, math.inf), memory_bytes], upper], doubt]

    monkeypatch.setattr("recommender.engine.entries.encode_target", one_bit_more)
    monkeypatch.setenv("COLUMNS", "200")
    first = next(line for line in phasewise("replay", record).out.splitlines() if "ns/job" in line)
    recorded, replayed = first.split("│")[3:5]
    assert "cores" in recorded and recorded.strip() != replayed.strip()


def test_a_record_of_endlessly_nested_lists_is_refused(phasewise: Phasewise, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "nested.rec", 2**20)
    journal.append(b"[" * 200_000)
    journal.close()
    assert phasewise("replay", tmp_path / "nested.rec").code == 2


@pytest.mark.option("phasewise replay", "--with")
def test_with_reports_what_each_workload_would_have_been_given(phasewise: Phasewise, record: Path) -> None:
    ended = phasewise("replay", record, "--with", "memory-margin=2", "--json")
    assert ended.code == 0
    (workload,) = orjson.loads(ended.out)["workloads"]
    before, after = (workload[side]["memory_bytes"] / GIB for side in ("recorded", "replayed"))
    assert before < 4.9
    assert after == pytest.approx(3.0 * 2.0, rel=0.05)
    assert "ns/job, container main" in phasewise("replay", record, "--with", "memory-margin=2").out


def test_another_step_keeps_the_length_of_a_cycle() -> None:
    start = Start(Options(), 15.0, 40, None, 1.0, "")
    for changes, samples in ((("step=30s",), 20), (("step=30s", "cycle=5m"), 10), (("cycle=5m", "step=30s"), 10)):
        changed = start_changes(changes)(start)
        assert (changed.step_s, changed.cycle_samples) == (30.0, samples)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay", "--with", "interval=5s"), "--with interval: no target depends on it"),
        (("replay", "--with", "nonsense=5s"), "Try 'phasewise recommender --help' for help.\n\nError: No such option"),
        (("replay", "--with", "step=0.000001"), "a cycle of 3e+07 samples is too long"),
        (("replay", "--from", "noon"), "'noon' is not a time"),
        (("replay", "--until", "1970-01-01"), "it has no step in that period"),
        (("explain", "ns/other", "--record"), "it has no target for VPA ns/other. It has targets for: ns/job."),
        (("explain", "ns/job", "--at", "1970-01-01", "--record"), "it has no step in that period"),
    ],
)
def test_a_bad_replay_or_explanation_is_refused(
    phasewise: Phasewise, record: Path, arguments: tuple[str, ...], message: str
) -> None:
    ended = phasewise(*arguments, record)
    assert ended.code == 2
    assert message in ended.err


def test_a_truncated_record_is_replayed_and_a_damaged_one_up_to_the_damage(
    phasewise: Phasewise, record: Path, tmp_path: Path
) -> None:
    raw = record.read_bytes()
    cut, damaged = tmp_path / "cut.rec", tmp_path / "damaged.rec"
    cut.write_bytes(raw[:-5])
    ended = phasewise("replay", cut)
    assert ended.code == 0
    assert "59 steps" in ended.out
    assert "the last block is incomplete" in ended.err
    damaged.write_bytes(raw[:-5] + bytes([raw[-5] ^ 1]) + raw[-4:])  # in the checksum
    ended = phasewise("replay", damaged)
    assert ended.code == 2
    assert f"{damaged}: block 60 is damaged: Error -3 while decompressing data: incorrect data check" in ended.err
    assert "can be replayed: --until 1970-01-12T13:47:39Z" in ended.err
    assert phasewise("replay", damaged, "--until", "1970-01-12T13:47:39Z").code == 0
    ended = phasewise("explain", "ns/job", "--record", damaged)
    assert ended.code == 2 and "`explain --at`" in ended.err
    assert phasewise("explain", "ns/job", "--record", damaged, "--at", "1970-01-12T13:47:39Z").code == 0


@pytest.mark.option("phasewise explain", "--record", "--at", "--json")
def test_explain_at_shows_what_the_engine_knew_at_that_time(phasewise: Phasewise, record: Path) -> None:
    before = phasewise("explain", "ns/job", "--record", record, "--at", KILLED_AT).out
    after = phasewise("explain", "ns/job", "--record", record, "--at", KILLED_AT + 1).out
    assert "killed" not in before
    assert "killed" in after
    assert "recent.use" in after
    assert after.startswith("ns/job, as of 1970-01-12T13:47:21Z\n")
    document = orjson.loads(phasewise("explain", "ns/job", "--record", record, "--json").out)
    assert document["profile"]["updated"] == "1970-01-12T13:47:40Z"
    (entry,) = document["vpa"]["recommendation"]["containerRecommendations"]
    assert float(entry["target"]["memory"]) == pytest.approx(4.8 * GIB, rel=0.01)


def test_explain_at_needs_a_record(phasewise: Phasewise) -> None:
    ended = phasewise("explain", "ns/job", "--at", KILLED_AT)
    assert ended.code == 2
    assert "--at needs a record: add --record FILE" in ended.err
