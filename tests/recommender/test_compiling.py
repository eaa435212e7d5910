"""Compiled loops: who compiles them, and what is told when nothing may be compiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LOOP = """
from numba import njit
from recommender.compiling import compile_in_subprocess
from recommender.kernels.loading import NotCompiled, run_without_compiling

@njit(cache=True)
def total(numbers):
    return sum(numbers)

def rehearse():
    total((1.0, 2.0))

if __name__ == "__main__":
    rehearse()
"""

COMPILED_HERE = "print(sum(loop.total.stats.cache_misses.values()), sum(loop.total.stats.cache_hits.values()))"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loop.py").write_text(LOOP)
    return tmp_path


def said_by(program: str, folder: Path) -> str:
    """What a process prints that finds `loop` in this folder, and keeps there what it compiles."""
    paths = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    environ = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(folder / "compiled")}
    command = (sys.executable, "-c", f"import loop\n{program}")
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.strip()


def test_what_is_not_compiled_yet_is_compiled_by_another_process_and_then_loaded(folder: Path) -> None:
    asked = f"loop.compile_in_subprocess(loop.rehearse, 'loop')\n{COMPILED_HERE}"
    looked_for_and_missed, then_found = 1, 1
    assert said_by(asked, folder) == f"{looked_for_and_missed} {then_found}"
    assert said_by(asked, folder) == "0 1"


def test_what_the_other_process_leaves_uncompiled_is_compiled_here(folder: Path) -> None:
    does_nothing = "this"
    said = said_by(f"loop.compile_in_subprocess(loop.rehearse, {does_nothing!r})\nprint(loop.total.signatures)", folder)
    assert said == "[(UniTuple(float64, 2),)]"


def test_nothing_is_compiled_while_only_loading_is_allowed(folder: Path) -> None:
    asked = """
try:
    loop.run_without_compiling(loop.rehearse)
except loop.NotCompiled as error:
    print(error, loop.total.signatures)
"""
    assert said_by(asked, folder) == "total []"


def test_loops_are_loaded_without_linear_algebra_which_stays_there_for_others() -> None:
    """It is 16 MiB in a recommender that never asks for it."""
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
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "5.0"]


OF_A_PAIR = """
from typing import NamedTuple
from numba import njit

class {name}(NamedTuple):
    one: float
    other: float

@njit(cache=True)
def total(pair):
    return pair.one + pair.other

def asked():
    return total({name}(1.0, 2.0))
"""


def asked(folder: Path, module: str, *, dropping: bool = False) -> subprocess.CompletedProcess[str]:
    """A process that prints what a module of a folder says when it is asked, with or without what is outdated."""
    environ = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environ["PYTHONPATH"] = os.pathsep.join((str(folder), str(Path(__file__).parents[2])))
    drop = (
        "from pathlib import Path; from recommender.compiling import drop_outdated; "
        f"drop_outdated(Path({str(folder)!r}))\n"
    )
    command = (sys.executable, "-B", "-c", f"{drop if dropping else ''}import {module}; print({module}.asked())")
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_what_an_earlier_version_left_compiled_is_compiled_anew_also_where_its_classes_are_gone(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(OF_A_PAIR.format(name="Pair"))
    assert asked(tmp_path, "pair").stdout == "3.0\n"
    (index,) = (tmp_path / "__pycache__").glob("pair.total-*.nbi")
    long_ago = index.stat().st_mtime - 10.0
    (tmp_path / "pair.py").write_text(OF_A_PAIR.format(name="Both"))
    os.utime(tmp_path / "pair.py", (long_ago, long_ago))  # as installers do that keep the times of an archive
    assert "Can't get attribute 'Pair'" in asked(tmp_path, "pair").stderr, "what happens if nobody looks"
    assert asked(tmp_path, "pair", dropping=True).stdout == "3.0\n"
    (kept,) = (tmp_path / "__pycache__").glob("pair.total-*.nbi")
    compiled_s = kept.stat().st_mtime
    assert asked(tmp_path, "pair", dropping=True).stdout == "3.0\n"
    assert kept.stat().st_mtime == compiled_s, "what is of the present version stays"


def test_a_module_that_calls_another_is_compiled_anew_when_that_one_is_replaced(tmp_path: Path) -> None:
    """Numba keeps what the other was when it was compiled: it looks at the file of the caller alone."""
    compiled = "from numba import njit\n{imports}\n@njit(cache=True)\ndef {name}():\n    return {value}\n"
    (tmp_path / "called.py").write_text(compiled.format(imports="", name="answer", value=1))
    (tmp_path / "caller.py").write_text(
        compiled.format(imports="from called import answer", name="asked", value="answer()")
    )
    assert asked(tmp_path, "caller").stdout == "1\n"
    (tmp_path / "called.py").write_text(compiled.format(imports="", name="answer", value=2))
    assert asked(tmp_path, "caller").stdout == "1\n", "what happens if nobody looks"
    assert asked(tmp_path, "caller", dropping=True).stdout == "2\n"
