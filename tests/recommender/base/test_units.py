"""Durations, cores and bytes, parsed and formatted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recommender.base.errors import Misuse
from recommender.base.units import format_cpu, format_duration, format_memory, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15), ("10m", 600), ("1h30m", 5400), ("2.5", 2.5), ("500ms", 0.5)]
)
def test_a_duration_in_prometheus_notation_is_parsed(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@given(st.integers(1, 10**6))
def test_a_formatted_duration_is_parsed_back_up_to_two_units(minutes: int) -> None:
    seconds = minutes * 60.0
    cut_off = 3600 if minutes >= 24 * 60 else 0  # from a day on, minutes are not shown
    assert 0 <= seconds - parse_duration_s(format_duration(seconds)) <= cut_off


@pytest.mark.parametrize("text", ["", "0", "-5m", "ten", "5x", "1h-3m", "nan", "inf", "1e300", "200000d"])
def test_text_that_is_not_a_positive_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(Misuse, match="10m"):
        parse_duration_s(text)


def test_cores_and_bytes_are_formatted_in_suitable_units() -> None:
    assert [format_cpu(c) for c in (0, 0.0254, 1, 12.345, 250)] == ["0m", "25m", "1.00", "12.35", "250"]
    assert [format_memory(b) for b in (2048, 5 << 20, 3 << 30, 2 << 40)] == ["2Ki", "5Mi", "3.00Gi", "2.00Ti"]
