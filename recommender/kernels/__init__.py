"""Compiled loops over samples: plain arrays in and out, each tested against a slow reference implementation.

Small functions have `inline="always"`, so that they are compiled with their callers alone: a sixth less time for all
kernels. Not `share_above`: the decisions of the plan would take a sixth longer. Loops are over numbers: array
expressions take longer to compile, and to run where the arrays are small.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
