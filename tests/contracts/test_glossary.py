"""The glossary and the code use the same words, and each for one thing."""

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

NOT_GUESSED = {"Book", "Homes", "Land", "Manners", "Newcomers", "Opinion", "Parting", "Question", "Seat", "Standing"}
"""Names that classes once had and nobody from the field would understand: none comes back."""


def classes() -> Counter[str]:
    return Counter(
        node.name
        for program in ("recommender", "extender")
        for file in python_files(ROOT / program)
        for node in statements(file)
        if isinstance(node, ast.ClassDef)
    )


def test_no_term_is_listed_twice() -> None:
    assert len(ROWS) == GLOSSARY.count("\n| ") - 2 * GLOSSARY.count("| term |"), "a row that could not be read"
    words = [word for word, _, _ in ROWS]
    assert sorted(set(words)) == sorted(words)


@pytest.mark.parametrize(("word", "path"), [(word, path) for word, _, path in ROWS])
def test_the_code_says_it_where_the_glossary_says_so(word: str, path: str) -> None:
    module, _, name = path.rpartition(".")
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    assert name in {node.name for node in statements(file) if isinstance(node, ast.ClassDef)}, f"{word}: no {path}"


def test_a_name_in_the_glossary_is_that_of_one_class_alone_and_no_old_one_comes_back() -> None:
    found = classes()
    assert {name: found[name] for name in (path.rpartition(".")[2] for _, _, path in ROWS) if found[name] != 1} == {}
    assert NOT_GUESSED & found.keys() == set()
