"""The glossary and the code use the same words, each for one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.contracts.reading import python_files, statements

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text()
ROWS = re.findall(r"^\| ([^|]+) \| ([^|]+) \| `([\w.]+)` \|$", GLOSSARY, re.MULTILINE)

RETIRED_NAMES = {"Book", "Homes", "Land", "Manners", "Newcomers", "Opinion", "Parting", "Question", "Seat", "Standing"}
"""Former class names that readers did not understand; none may come back."""


def classes() -> Counter[str]:
    return Counter(
        node.name
        for program in ("recommender", "extender")
        for file in python_files(ROOT / program)
        for node in statements(file)
        if isinstance(node, ast.ClassDef)
    )


def test_no_term_is_listed_twice() -> None:
    assert len(ROWS) == GLOSSARY.count("\n| ") - 2 * GLOSSARY.count("| term |"), "a row cannot be parsed"
    words = [word for word, _, _ in ROWS]
    assert sorted(set(words)) == sorted(words)


@pytest.mark.parametrize(("word", "path"), [(word, path) for word, _, path in ROWS])
def test_the_class_of_a_term_is_where_the_glossary_says(word: str, path: str) -> None:
    module, _, name = path.rpartition(".")
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    assert name in {node.name for node in statements(file) if isinstance(node, ast.ClassDef)}, f"{word}: no {path}"


def test_a_class_name_in_the_glossary_is_unique_and_no_retired_one_comes_back() -> None:
    found = classes()
    assert {name: found[name] for name in (path.rpartition(".")[2] for _, _, path in ROWS) if found[name] != 1} == {}
    assert RETIRED_NAMES & found.keys() == set()
