"""Loops over samples, compiled: plain arrays in and out; each has a slow twin that it is tested against."""

import sys

# Numba looks for a BLAS by importing all of scipy.linalg, 16 MiB that stay in a recommender's memory for good. No
# kernel does linear algebra, so that it looks here, and finds none.
if "scipy.linalg" not in sys.modules:
    sys.modules["scipy.linalg"] = None  # type: ignore[assignment]
    import numba.np.arraymath  # noqa: F401

    del sys.modules["scipy.linalg"]
