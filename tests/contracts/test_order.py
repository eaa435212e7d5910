"""The order in which test files start, and how many examples they draw."""

from __future__ import annotations

import re
from pathlib import Path

import hypothesis

from tests.longest_first import LONGEST_FIRST

ROOT = Path(__file__).parents[2]


def test_the_files_that_start_first_exist() -> None:
    assert [file for file in LONGEST_FIRST if not (ROOT / file).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)


def test_no_test_draws_more_examples_than_the_fast_profile() -> None:
    """One that sets a number itself overrides the profile; `tests.examples.at_most` does not."""
    most = hypothesis.settings.get_profile("fast").max_examples
    found = (
        (file, re.findall(r"@settings\(.*max_examples=(\d+)", file.read_text()))
        for file in (ROOT / "tests").rglob("test_*.py")
    )
    assert [file.name for file, numbers in found if any(int(number) > most for number in numbers)] == []
