"""Loops over all nodes, compiled. Plain arrays in and out; the slow twins are in `tests/reference/extender_kernels.py`.

Unlike the recommender's they keep the interpreter while they run: they take some microseconds, and to get it back from
a thread that reads a watch could take a hundred times as long.
"""
