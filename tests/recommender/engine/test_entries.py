"""The input of an engine in a record: encoding and decoding preserve every bit."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.records import Sample
from recommender.engine.entries import KnownGroup, RecordedModel, RecordedStep, Start, pack_block, unpack_block
from recommender.engine.journal import GZIP_LEVEL
from recommender.engine.keys import Ended, Group, Instance, Kill, Rules, Running
from recommender.engine.options import BandOptions, Options, RailOptions
from recommender.engine.seen import Evaluation, GroupStart, Samples, Seen
from recommender.learning import model as models
from recommender.policies.histogram import HistogramAggregate, HistogramSession
from tests.recommender.engine.worked import MAIN, MODEL, instance, running

WORDS = st.text(max_size=6)
NUMBERS = st.floats(width=64)
PAIRS = st.tuples(NUMBERS, NUMBERS)
INSTANCES = st.builds(Instance, WORDS, WORDS, WORDS)
GROUPS = st.builds(Group, WORDS, WORDS, WORDS)
ENDED = st.none() | st.builds(Ended, st.integers(), st.none() | NUMBERS, st.none() | NUMBERS)
RUNNING = st.builds(
    Running,
    group=GROUPS,
    workload=st.none() | WORDS,
    started_s=st.none() | NUMBERS,
    requests=PAIRS,
    limits=PAIRS,
    restarts=st.integers(0, 9),
    finished=st.booleans(),
    ended=ENDED,
    terminating=st.booleans(),
    deferred_since_s=NUMBERS,
)
RULES = st.builds(
    Rules, st.booleans(), st.booleans(), st.booleans(), st.booleans(), memory_interval_s=st.none() | NUMBERS
)
SEEN = st.builds(
    Seen,
    groups=st.dictionaries(GROUPS, st.none() | RULES, max_size=3),
    containers=st.dictionaries(INSTANCES, st.none() | RUNNING, max_size=3),
    samples=st.lists(st.tuples(INSTANCES, st.builds(Sample, NUMBERS, NUMBERS, NUMBERS)), max_size=5).map(Samples.of),
    kills=st.lists(
        st.builds(Kill, GROUPS, INSTANCES, NUMBERS, NUMBERS, st.none() | NUMBERS, st.none() | NUMBERS), max_size=2
    ),
    nodes=st.dictionaries(WORDS, st.none() | NUMBERS, max_size=2),
    evaluations=st.dictionaries(INSTANCES, st.builds(Evaluation, NUMBERS, NUMBERS, NUMBERS, WORDS), max_size=2),
)


def text_of(seen: Seen) -> str:
    """All of it with every bit, comparable although NaN does not equal itself."""
    return repr((replace(seen, samples=Samples()), list(seen.samples.instances), seen.samples.values.tolist()))


def through_a_block(*seen: Seen) -> list[Seen]:
    numbers: dict[Instance, int] = {}
    block = pack_block([("step", RecordedStep.of(60.0, one, numbers)) for one in seen])
    names: list[Instance] = []
    return [step.seen(names) for _, step in unpack_block(block)]


def test_an_encoded_step_has_new_names_and_its_samples_in_columns() -> None:
    """A container starts, is sampled and is killed; another container and a group are gone."""
    seen = Seen(
        {MAIN: Rules(evicts=True), Group("ns", "old", "main"): None},
        {instance(): running(limits=(math.nan, 5.0)), instance(1): None},
        Samples.of([(instance(), Sample(10.0, 0.1, 1e9)), (instance(), Sample(25.0, 0.3, math.nan))]),
        [Kill(MAIN, instance(), 26.0, 4e9, ratio=1.5)],
    )
    step = RecordedStep.of(60.0, seen, {})
    assert step.groups == [(MAIN, Rules(evicts=True)), (("ns", "old", "main"), None)]
    assert step.names == [instance()]
    assert (len(step.numbers), len(step.values)) == (2 * 4, 2 * 3 * 8)
    (found,) = through_a_block(seen)
    assert text_of(found) == text_of(seen)


@given(st.lists(SEEN, max_size=3))
def test_encoded_steps_decode_with_every_bit_and_in_order(seen: list[Seen]) -> None:
    assert list(map(text_of, through_a_block(*seen))) == list(map(text_of, seen))


def test_a_block_is_a_line_of_json_and_what_an_older_record_lacks_gets_its_default() -> None:
    step = RecordedStep.of(60.0, Seen({MAIN: Rules(False, True)}), {})
    block = pack_block([("step", step)])
    assert block.count(b"\n") == 1
    ((_, recorded),) = json.loads(block)[0]["step"]["groups"]
    shortened = block.replace(json.dumps(recorded, separators=(",", ":")).encode(), b"[false,true]")
    assert shortened != block
    assert unpack_block(shortened)[0][1].groups[0][1] == Rules(applied=False, evicts=True)
    with pytest.raises(ValueError, match=r"step\.names\.0\.2"):
        unpack_block(block.replace(b'"names":[]', b'"names":[["ns","uid"]]'))


def test_a_recorded_sample_takes_less_space_than_half_of_its_numbers() -> None:
    """Seconds, cores and bytes are 24 bytes."""
    recorded = Path(models.__file__).parents[1] / "data" / "recordings" / "replay.parquet"
    rows = pd.read_parquet(recorded, columns=["timestamp", "cpu_cores", "memory_bytes"]).to_numpy(float)[:10_000]
    step = RecordedStep.of(60.0, Seen(samples=Samples([instance()] * len(rows), rows)), {})
    assert len(gzip.compress(pack_block([("step", step)]), GZIP_LEVEL)) < 12 * len(rows)


def test_a_start_decodes_with_all_options() -> None:
    options = Options(RailOptions(target_violation=(0.01, 0.02), shrink_after_s=7.0), BandOptions(hold_cpu=0.3))
    start = Start(options, 15.0, 40, None, 15.0, "abc")
    assert unpack_block(pack_block([("start", start)])) == [("start", start)]


@pytest.mark.parametrize("interval_s", [None, 3600.0])
def test_a_decoded_history_continues_like_the_original(interval_s: float | None) -> None:
    history = HistogramAggregate()
    history.memory_interval_s = interval_s
    fresh = GroupStart(HistogramAggregate(), (math.nan, 2.0), {"judged": 3.5})
    for at_s in range(100):
        history.past.observe_oom(1e6 + 60.0 * at_s, 1e9 + 1e7 * at_s)
    for start in (fresh, GroupStart(history, (0.1, math.nan))):
        step = RecordedStep.of(60.0, Seen(), {})
        step.known_groups = [(MAIN, KnownGroup.of(start))]
        ((_, decoded),) = unpack_block(pack_block([("step", step)]))
        ((_, known),) = decoded.known_groups
        found = known.start()
        assert repr(found[1:]) == repr(start[1:])
        for session in (start.history.past, found.history.past):
            session.observe_oom(1e6 + 7000.0, 3e9)
        assert arrays_of(found.history.past) == arrays_of(start.history.past)


def arrays_of(session: HistogramSession) -> list[Any]:
    return [part.tobytes() for part in (*session.cpu, *session.memory, session.state)]


def test_a_decoded_model_has_the_same_detector() -> None:
    recorded = RecordedModel.of(MODEL)
    ((_, decoded),) = unpack_block(pack_block([("model", recorded)]))
    found = decoded.load()
    assert (decoded.digest, found.origin) == (recorded.digest, MODEL.origin)
    assert RecordedModel.of(found).digest == recorded.digest
    for name, part in MODEL.detector.to_state().items():
        assert np.array_equal(found.detector.to_state()[name], part)
