"""Kernels are loaded from the cache, and recompiled when outdated."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba.core import config

from recommender.base.compiling import drop_outdated

Import = Callable[[str], Any]


@pytest.fixture
def imported_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    """Imports a module of the temporary folder as a new process would: its kernels are loaded from the cache there."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)

    def forget() -> None:
        for file in tmp_path.glob("*.py"):
            sys.modules.pop(file.stem, None)

    def imported(name: str) -> ModuleType:
        forget()
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield imported
    forget()


PAIR_MODULE = """
from typing import NamedTuple
from numba import njit

class {name}(NamedTuple):
    one: float
    other: float

@njit(cache=True)
def total(pair):
    return pair.one + pair.other

def result():
    return total({name}(1.0, 2.0))
"""


def test_kernels_of_an_earlier_version_are_recompiled_even_if_their_classes_are_gone(
    tmp_path: Path, imported_anew: Import
) -> None:
    (tmp_path / "pair.py").write_text(PAIR_MODULE.format(name="Pair"))
    assert imported_anew("pair").result() == 3.0
    (index,) = (tmp_path / "__pycache__").glob("pair.total-*.nbi")
    long_ago = index.stat().st_mtime - 10.0
    (tmp_path / "pair.py").write_text(PAIR_MODULE.format(name="Both"))
    os.utime(tmp_path / "pair.py", (long_ago, long_ago))  # like installers that keep the times of an archive
    with pytest.raises(AttributeError, match="Can't get attribute 'Pair'"):  # without dropping outdated kernels
        imported_anew("pair").result()
    drop_outdated(tmp_path)
    assert imported_anew("pair").result() == 3.0
    drop_outdated(tmp_path)
    assert list((tmp_path / "__pycache__").glob("pair.total-*.nbi")), "current kernels are kept"


def test_a_kernel_is_recompiled_when_a_kernel_that_it_calls_is_replaced(tmp_path: Path, imported_anew: Import) -> None:
    """Numba checks only the file of the caller, and keeps the old code of the callee in it."""
    source = "from numba import njit\n{imports}\n@njit(cache=True)\ndef {name}():\n    return {value}\n"
    (tmp_path / "called.py").write_text(source.format(imports="", name="answer", value=1))
    (tmp_path / "caller.py").write_text(
        source.format(imports="from called import answer", name="result", value="answer()")
    )
    assert imported_anew("caller").result() == 1
    (tmp_path / "called.py").write_text(source.format(imports="", name="answer", value=2))
    assert imported_anew("caller").result() == 1, "without dropping outdated kernels"
    drop_outdated(tmp_path)
    assert imported_anew("caller").result() == 2
