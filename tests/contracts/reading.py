"""What source files say they import."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def statements(file: Path) -> Iterator[ast.stmt]:
    """Every statement, however deep it lies. What lies in expressions, most of a tree, is no import."""
    todo: list[Any] = [ast.parse(file.read_text())]
    while todo:
        node = todo.pop()
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, block, ())


@functools.cache
def imported(file: Path) -> tuple[str, ...]:
    """Every name that a module imports, as `module` and `module.name`."""
    names: list[str] = []
    for node in statements(file):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(names)
