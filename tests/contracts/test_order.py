"""The order in which test files begin."""

from __future__ import annotations

from pathlib import Path

from tests.longest_first import LONGEST_FIRST

ROOT = Path(__file__).parents[2]


def test_the_files_that_begin_first_are_there() -> None:
    assert [file for file in LONGEST_FIRST if not (ROOT / file).is_file()] == []
    assert len(set(LONGEST_FIRST)) == len(LONGEST_FIRST)
