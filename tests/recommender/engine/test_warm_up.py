"""What is compiled before the first round of a live recommender."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINT_KERNELS_NOT_LOADED = """
import sys
from numba.core.dispatcher import Dispatcher
from recommender.engine import engine, warm_up
from recommender.kernels.histogram import add_memory, estimate, observe_grid
from recommender.learning.model import BUNDLED, load

warm_up.warm_up(load(BUNDLED), 1.0, 4)
ours = ("recommender.engine", "recommender.p")  # engine, phases and policies, not the kernels themselves
loaded = [vars(module) for name, module in sys.modules.items() if name.startswith(ours)]
called = {one for names in loaded for one in names.values() if isinstance(one, Dispatcher)}
print(*sorted(one.__name__ for one in {*called, add_memory, estimate, observe_grid} if not one.signatures))
"""


@pytest.mark.long
def test_no_kernel_is_compiled_in_a_round_not_even_after_a_kill_or_a_restart() -> None:
    """The compiler would hold up the round."""
    command, root = (sys.executable, "-P", "-c", PRINT_KERNELS_NOT_LOADED), Path(__file__).parents[3]
    environ = os.environ | {"PYTHONPATH": str(root)}
    output = subprocess.run(command, env=environ, cwd=root, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["usage_features"], "which only training and dry runs call"


def test_kernels_load_without_scipy_linalg_which_can_still_be_imported() -> None:
    """It takes 16 MiB that a recommender never uses."""
    program = """
import sys
from recommender.engine.warm_up import warm_up
from recommender.learning.model import BUNDLED, load

warm_up(load(BUNDLED), 1.0, 4)
print("scipy.linalg" in sys.modules)
import scipy.linalg
print(scipy.linalg.norm([3.0, 4.0]))
"""
    command, root = (sys.executable, "-c", program), Path(__file__).parents[3]
    output = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "5.0"]
