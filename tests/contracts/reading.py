"""The imports of source files, and the requirements files."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

MODULE_OF = {
    "scikit-learn": "sklearn",
    "pandas-stubs": "pandas",
    "pytest-xdist": "xdist",
    "pyyaml": "yaml",
    "google-re2": "re2",
    "prometheus-client": "prometheus_client",
    "cyclonedx-python-lib": "cyclonedx",
    "httptools": "uvicorn",  # its server uses it
    "uvicorn-worker": "uvicorn_worker",
}


def python_files(folder: Path) -> Iterator[Path]:
    """Modules, and scripts without a suffix whose first line runs Python."""
    for file in folder.rglob("*"):
        if file.suffix == ".py":
            yield file
        elif file.is_file() and not file.suffix:
            first = file.read_bytes()[:80].split(b"\n")[0]
            if first.startswith(b"#!") and (b"/in-environment" in first or b"python" in first):
                yield file


def statements(file: Path) -> Iterator[ast.stmt]:
    """Every statement at any depth. Expressions, most of a tree, contain no imports."""
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


def requirements(file: str) -> list[str]:
    """The libraries that a requirements file names itself."""
    lines = (ROOT / file).read_text().splitlines()
    return [line.split("==")[0] for line in lines if line and not line.startswith(("#", "-r"))]
