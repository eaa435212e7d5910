"""The order in which test files begin, and how many examples they draw."""

from __future__ import annotations

import re
from pathlib import Path

import hypothesis

from tests.longest_first import LONGEST_FIRST

ROOT = Path(__file__).parents[2]


def test_the_files_that_begin_first_are_there() -> None:
    assert [file for file in LONGEST_FIRST if not (ROOT / file).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)


def test_no_test_draws_more_examples_than_the_fast_profile_says() -> None:
    """One that sets a number itself overrides the profile; `tests.examples.at_most` does not."""
    few = hypothesis.settings.get_profile("fast").max_examples
    found = (
        (file, re.findall(r"@settings\(.*max_examples=(\d+)", file.read_text()))
        for file in (ROOT / "tests").rglob("test_*.py")
    )
    assert [file.name for file, numbers in found if any(int(number) > few for number in numbers)] == []
