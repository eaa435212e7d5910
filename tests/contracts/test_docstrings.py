"""The examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITH_EXAMPLES = sorted(
    ".".join(source.relative_to(ROOT).with_suffix("").parts)
    for folder in ("recommender", "extender")
    for source in (ROOT / folder).rglob("*.py")
    if ">>>" in source.read_text()
)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_a_docstring_are_true(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0 and found.failed == 0
