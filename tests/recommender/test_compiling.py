"""Kernels: compiled in a subprocess, loaded from the cache, and recompiled when outdated."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from numba.core import config

from recommender.compiling import compile_in_subprocess, drop_outdated
from recommender.kernels.loading import NotCompiled, run_without_compiling

LOOP = """
from numba import njit

@njit(cache=True)
def total(numbers):
    return numbers[0] + numbers[1]

def warm_up():
    total((1.0, 2.0))

if __name__ == "__main__":
    warm_up()
"""

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


@pytest.fixture
def loop(tmp_path: Path, imported_anew: Import) -> Any:
    (tmp_path / "loop.py").write_text(LOOP)
    return imported_anew("loop")


def misses_and_hits(kernel: Any) -> tuple[int, int]:
    return sum(kernel.stats.cache_misses.values()), sum(kernel.stats.cache_hits.values())


@pytest.mark.long
def test_a_missing_kernel_is_compiled_by_a_subprocess_and_then_loaded(loop: Any, imported_anew: Import) -> None:
    compile_in_subprocess(loop.warm_up, "loop")
    assert misses_and_hits(loop.total) == (1, 1)
    again = imported_anew("loop")
    compile_in_subprocess(again.warm_up, "loop")
    assert misses_and_hits(again.total) == (0, 1)


def test_a_kernel_that_the_subprocess_does_not_compile_is_compiled_in_this_process(loop: Any) -> None:
    compile_in_subprocess(loop.warm_up, "this")  # an empty module
    assert str(loop.total.signatures) == "[(UniTuple(float64, 2),)]"


def test_run_without_compiling_raises_for_a_kernel_that_is_not_cached(loop: Any) -> None:
    with pytest.raises(NotCompiled, match=r"^total$"):
        run_without_compiling(loop.warm_up)
    assert not loop.total.signatures


def test_kernels_load_without_scipy_linalg_which_can_still_be_imported() -> None:
    """It takes 16 MiB that a recommender never uses."""
    program = """
import sys
import numpy as np
from recommender.compiling import compile_in_subprocess
from recommender.policies.histogram import HistogramSession

compile_in_subprocess(lambda: HistogramSession().observe_grid(np.ones((3, 2)), 0, 1.0), "this")
print("scipy.linalg" in sys.modules)
import scipy.linalg
print(scipy.linalg.norm([3.0, 4.0]))
"""
    command, root = (sys.executable, "-c", program), Path(__file__).parents[2]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "5.0"]


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
