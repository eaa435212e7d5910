"""The examples in docstrings give the output that they show."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES_WITH_EXAMPLES = sorted(
    ".".join(source.relative_to(ROOT).with_suffix("").parts)
    for folder in ("recommender", "extender")
    for source in (ROOT / folder).rglob("*.py")
    if ">>>" in source.read_text()
)


@pytest.mark.parametrize("module", MODULES_WITH_EXAMPLES)
def test_the_examples_in_docstrings_give_the_output_that_they_show(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0 and found.failed == 0
