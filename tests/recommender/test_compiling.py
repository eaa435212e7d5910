"""Kernels: compiled in a subprocess, loaded from the cache, and recompiled when outdated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recommender.compiling import drop_outdated

LOOP = """
from numba import njit
from recommender.compiling import compile_in_subprocess
from recommender.kernels.loading import NotCompiled, run_without_compiling

@njit(cache=True)
def total(numbers):
    return numbers[0] + numbers[1]

def warm_up():
    total((1.0, 2.0))

if __name__ == "__main__":
    warm_up()
"""

PRINT_MISSES_AND_HITS = "print(sum(loop.total.stats.cache_misses.values()), sum(loop.total.stats.cache_hits.values()))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loop.py").write_text(LOOP)
    return tmp_path


def output_of(program: str, folder: Path) -> str:
    """The output of a process that imports `loop` from this folder and caches its kernels there."""
    paths = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    environ = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "compiled")}
    command = (sys.executable, "-c", f"import loop\n{program}")
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
def test_a_missing_kernel_is_compiled_by_a_subprocess_and_then_loaded(folder: Path) -> None:
    program = f"loop.compile_in_subprocess(loop.warm_up, 'loop')\n{PRINT_MISSES_AND_HITS}"
    assert [output_of(program, folder) for _ in range(2)] == ["1 1", "0 1"]


def test_a_kernel_that_the_subprocess_does_not_compile_is_compiled_in_this_process(folder: Path) -> None:
    program = "loop.compile_in_subprocess(loop.warm_up, 'this')\nprint(loop.total.signatures)"  # an empty module
    assert output_of(program, folder) == "[(UniTuple(float64, 2),)]"


def test_run_without_compiling_raises_for_a_kernel_that_is_not_cached(folder: Path) -> None:
    program = """
try:
    loop.run_without_compiling(loop.warm_up)
except loop.NotCompiled as error:
    print(error, loop.total.signatures)
"""
    assert output_of(program, folder) == "total []"


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


def run_module(folder: Path, module: str, *, drop_first: bool = False) -> subprocess.CompletedProcess[str]:
    """A process that prints `result()` of a module, after dropping outdated kernels of the folder if asked to."""
    environ = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environ["PYTHONPATH"] = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    drop = (
        "from pathlib import Path; from recommender.compiling import drop_outdated; "
        f"drop_outdated(Path({str(folder)!r}))\n"
    )
    command = (sys.executable, "-B", "-c", f"{drop if drop_first else ''}import {module}; print({module}.result())")
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_kernels_of_an_earlier_version_are_recompiled_even_if_their_classes_are_gone(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(PAIR_MODULE.format(name="Pair"))
    assert run_module(tmp_path, "pair").stdout == "3.0\n"
    (index,) = (tmp_path / "__pycache__").glob("pair.total-*.nbi")
    long_ago = index.stat().st_mtime - 10.0
    (tmp_path / "pair.py").write_text(PAIR_MODULE.format(name="Both"))
    os.utime(tmp_path / "pair.py", (long_ago, long_ago))  # like installers that keep the times of an archive
    assert "Can't get attribute 'Pair'" in run_module(tmp_path, "pair").stderr, "without dropping outdated kernels"
    assert run_module(tmp_path, "pair", drop_first=True).stdout == "3.0\n"
    drop_outdated(tmp_path)
    assert list((tmp_path / "__pycache__").glob("pair.total-*.nbi")), "current kernels are kept"


@pytest.mark.long
def test_a_kernel_is_recompiled_when_a_kernel_that_it_calls_is_replaced(tmp_path: Path) -> None:
    """Numba checks only the file of the caller, and keeps the old code of the callee in it."""
    source = "from numba import njit\n{imports}\n@njit(cache=True)\ndef {name}():\n    return {value}\n"
    (tmp_path / "called.py").write_text(source.format(imports="", name="answer", value=1))
    (tmp_path / "caller.py").write_text(
        source.format(imports="from called import answer", name="result", value="answer()")
    )
    assert run_module(tmp_path, "caller").stdout == "1\n"
    (tmp_path / "called.py").write_text(source.format(imports="", name="answer", value=2))
    assert run_module(tmp_path, "caller").stdout == "1\n", "without dropping outdated kernels"
    assert run_module(tmp_path, "caller", drop_first=True).stdout == "2\n"
