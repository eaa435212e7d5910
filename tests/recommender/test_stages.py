"""What pods say that they do: since when, what is over, and when they last saved what they have learned."""

from __future__ import annotations

import math

import orjson
import pytest

from recommender.readings import Reading, Stage, stage_of
from recommender.stages import Stages


def test_a_stage_lasts_until_another_is_told() -> None:
    stages = Stages()
    for stage in (Stage(1.0, "load"), Stage(5.0, "train"), Stage(9.0, "train")):
        stages.observe(stage)
    assert (stages.name, stages.since_s, stages.saved_s) == ("train", 5.0, None)
    stages.observe(Stage(4.0, "load"))
    assert stages.name == "train", "that is older news"


def test_words_in_passing_are_over_with_the_next_loss_and_a_stage_is_not() -> None:
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
    assert (stages.name, stages.since_s) == ("train", 15.0), "the stage that was told goes on"


def test_each_checkpoint_that_is_told_counts_and_an_annotation_that_stands_counts_once() -> None:
    stages = Stages()
    for moment_s in (10.0, 20.0):
        stages.observe(Stage(moment_s, "checkpoint", passing=True))
    assert (stages.since_s, stages.saved_s) == (10.0, 20.0)
    noted = Stages()
    for moment_s in (10.0, 20.0):
        noted.observe(Stage(moment_s, "saving", event=False))
    assert noted.saved_s == 10.0


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        ({"stage": " Load "}, Stage(3.0, "load")),
        ({"stage": "x" * 100, "checkpoint": "saved"}, Stage(3.0, "x" * 63)),
        ({"checkpoint": "Saving checkpoint"}, Stage(3.0, "checkpoint", passing=True)),
        ({"evaluate": "Evaluating"}, Stage(3.0, "evaluate", passing=True)),
        ({"stage": " ", "loss": "1"}, None),
        ({"stage": 7}, None),
    ],
)
def test_a_stage_is_told_by_its_name_or_in_other_words(words: dict[str, object], stage: Stage | None) -> None:
    assert stage_of(words, 3.0) == stage


def test_what_is_kept_comes_back_and_what_does_not_fit_is_told_again() -> None:
    stages = Stages("checkpoint", 5.0, 5.0, "train")
    assert Stages.from_state(orjson.loads(orjson.dumps(stages.to_state()))) == stages
    for wrong in ({}, stages.to_state() | {"since_s": "x"}, stages.to_state() | {"saved_s": math.nan}):
        assert Stages.from_state(wrong) is None
