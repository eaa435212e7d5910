"""The stages that pods report: when they begin and end, and the last checkpoint."""

from __future__ import annotations

import math
from dataclasses import asdict

import orjson
import pytest

from recommender.progress.readings import Reading, Stage, Stages, stage_of


def test_a_stage_lasts_until_another_is_reported() -> None:
    stages = Stages()
    for stage in (Stage(1.0, "load"), Stage(5.0, "train"), Stage(9.0, "train")):
        stages.observe(stage)
    assert (stages.name, stages.since_s, stages.saved_s) == ("train", 5.0, None)
    stages.observe(Stage(4.0, "load"))
    assert stages.name == "train", "an older stage is ignored"


def test_after_a_clock_is_set_back_by_an_hour_stages_are_followed_at_once() -> None:
    stages = Stages("train", 10_000.0, None, "train")
    stages.observe(Stage(6400.0, "checkpoint", passing=True))
    assert (stages.name, stages.since_s, stages.saved_s) == ("checkpoint", 6400.0, 6400.0)
    stages.since_s = 10_000.0
    stages.observe_reading(Reading(6401.0, 0.5, "loss"))
    assert (stages.name, stages.since_s) == ("train", 6401.0)


def test_a_passing_stage_ends_with_the_next_loss_and_a_named_one_does_not() -> None:
    stages = Stages()
    stages.observe(Stage(10.0, "checkpoint", passing=True))
    stages.observe_reading(Reading(9.0, 0.5, "loss"))
    assert (stages.name, stages.saved_s) == ("checkpoint", 10.0)
    stages.observe_reading(Reading(11.0, 0.5, "loss"))
    assert (stages.name, stages.since_s, stages.saved_s) == ("", 11.0, 10.0)
    stages.observe(Stage(12.0, "train"))
    stages.observe_reading(Reading(13.0, 0.5, "loss"))
    assert (stages.name, stages.since_s) == ("train", 12.0)
    stages.observe(Stage(14.0, "evaluate", passing=True))
    stages.observe_reading(Reading(15.0, 0.5, "loss"))
    assert (stages.name, stages.since_s) == ("train", 15.0), "the named stage continues"


def test_every_reported_checkpoint_counts_and_an_unchanged_annotation_counts_once() -> None:
    stages = Stages()
    for time_s in (10.0, 20.0):
        stages.observe(Stage(time_s, "checkpoint", passing=True))
    assert (stages.since_s, stages.saved_s) == (10.0, 20.0)
    polled = Stages()
    for time_s in (10.0, 20.0):
        polled.observe(Stage(time_s, "saving", event=False))
    assert polled.saved_s == 10.0


@pytest.mark.parametrize(
    ("fields", "stage"),
    [
        ({"stage": " Load "}, Stage(3.0, "load")),
        ({"stage": "x" * 100, "checkpoint": "saved"}, Stage(3.0, "x" * 63)),
        ({"checkpoint": "Saving checkpoint"}, Stage(3.0, "checkpoint", passing=True)),
        ({"evaluate": "Evaluating"}, Stage(3.0, "evaluate", passing=True)),
        ({"stage": " ", "loss": "1"}, None),
        ({"stage": 7}, None),
    ],
)
def test_a_stage_is_read_from_its_name_or_from_other_fields(fields: dict[str, object], stage: Stage | None) -> None:
    assert stage_of(fields, 3.0) == stage


def test_saved_stages_are_restored_and_invalid_ones_are_dropped() -> None:
    stages = Stages("checkpoint", 5.0, 5.0, "train")
    assert Stages.from_state(orjson.loads(orjson.dumps(asdict(stages)))) == stages
    for invalid in ({}, asdict(stages) | {"since_s": "x"}, asdict(stages) | {"saved_s": math.nan}):
        assert Stages.from_state(invalid) is None
