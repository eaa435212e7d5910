"""Progress that jobs report in an annotation, parsed strictly."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import BadInput
from recommender.progress.readings import Reading, parse_reading, reading_of


@pytest.mark.parametrize(
    ("text", "reading"),
    [
        ("loss=0.42 step=1200", Reading(5.0, 0.42, "loss", 1200, event=False)),
        ("loss: 1e-3, epoch: 3", Reading(5.0, 0.001, "loss", None, 3, event=False)),
        ("step = 7; accuracy = .9; epoch=1", Reading(5.0, 0.9, "accuracy", 7, 1, event=False)),
        ("score=-12", Reading(5.0, -12, "score", event=False)),
        ("accuracy=0.9 loss=0.3", Reading(5.0, 0.3, "loss", event=False)),
        (" 0.25 ", Reading(5.0, 0.25, "loss", event=False)),
    ],
)
def test_an_annotation_is_parsed(text: str, reading: Reading) -> None:
    assert parse_reading(text, "pod ns/p", 5.0) == reading


def test_a_loss_of_nan_is_kept_and_a_step_of_nan_is_dropped() -> None:
    assert math.isnan(parse_reading("loss=nan step=3", "pod ns/p", 5.0).value)
    assert parse_reading("loss=0.3 step=nan", "pod ns/p", 5.0).step is None


@pytest.mark.parametrize(
    "text", ["", "fine", "step=3", "loss=", "loss=much", "lost=3", "loss=1_0", "loss=٣", "x" * 300]
)
def test_an_invalid_annotation_is_refused_with_the_pod_and_a_remedy(text: str) -> None:
    with pytest.raises(BadInput, match=r"pod ns/p: the progress .* cannot be read: .*Write loss=0.42 step=1200"):
        parse_reading(text, "pod ns/p", 5.0)


@pytest.mark.parametrize("value", [True, [1], {"a": 1}])
def test_a_json_value_that_is_not_a_number_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="loss is not a number"):
        reading_of({"loss": value}, 0.0)


@given(st.text(max_size=80))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(BadInput):
        assert parse_reading(text, "pod ns/p", 1.0).time_s == 1.0
