"""Quantities against worked examples, and against the client library's slower parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity as library_quantity

from recommender.cluster.errors import BadQuantity
from recommender.cluster.objects.quantities import cpu_quantity, memory_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("250m", 0.25), ("1", 1.0), ("1000m", 1.0), ("1e0", 1.0), ("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("+2", 2.0),
        ("1500000n", 0.0015), ("750u", 0.00075), ("1k", 1e3), ("1Ki", 1024.0), ("1.5Gi", 1.5 * 2**30), ("2M", 2e6),
        ("1E", 1e18), ("1Ei", 2.0**60), ("12E3", 12e3), ("1e-3", 1e-3), (3, 3.0), (0.25, 0.25), ("-1", -1.0),
    ],
)  # fmt: skip
def test_a_quantity_is_read_by_its_suffix(text: str | float, value: float) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize("text", ["", "nan", "inf", "1K", "ki", "1 Gi", "0x10", "1mi", "1Gi ", True, "１"])
def test_a_value_that_is_not_a_quantity_is_refused(text: str) -> None:
    with pytest.raises(BadQuantity):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["1e402", "1.7e308", "9" * 400, "9" * 308 + "Ei"])
def test_a_quantity_that_is_too_large_for_a_double_is_a_very_large_one(text: str) -> None:
    """The API server accepts such a limit; without the pod that has it, its node would look empty."""
    assert (parse_quantity(text), parse_quantity(f"-{text}")) == (1e300, -1e300)


def test_a_refused_value_does_not_affect_an_equal_valid_one() -> None:
    assert parse_quantity(1) == 1.0
    with pytest.raises(BadQuantity):
        parse_quantity(True)


@given(st.decimals(0, 10**9, places=3), st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_parsing_agrees_with_the_client_library(number: object, suffix: str) -> None:
    text = f"{number}{suffix}"
    assert parse_quantity(text) == pytest.approx(float(library_quantity(text)), rel=1e-15)


@pytest.mark.parametrize(
    ("cpu_cores", "text"),
    [(0.587, "587m"), (0.5870001, "588m"), (1.0, "1"), (2.4, "2400m"), (0.0, "0"), (1e11, "100000000000")],
)
def test_cpu_is_formatted_in_whole_millicores(cpu_cores: float, text: str) -> None:
    assert cpu_quantity(cpu_cores) == text


@pytest.mark.parametrize(
    ("memory_bytes", "text"),
    [(262144000, "250Mi"), (628694953, "628694953"), (0, "0"), (1024, "1Ki"), (1e14, "97656250000Ki"), (10.2, "11")],
)
def test_memory_is_formatted_in_whole_bytes_with_a_binary_suffix_where_exact(memory_bytes: float, text: str) -> None:
    assert memory_quantity(memory_bytes) == text


@given(st.integers(0, 10**9))
def test_millicores_survive_formatting_and_parsing(milli: int) -> None:
    assert parse_quantity(cpu_quantity(milli / 1000)) == milli / 1000


@given(st.integers(0, 2**53))
def test_bytes_survive_formatting_and_parsing(count: int) -> None:
    assert parse_quantity(memory_quantity(count)) == count
