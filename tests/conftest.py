"""What all tests share: the seed, the order of files, and how often examples are drawn."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

import hypothesis
import pytest

from recommender.compiling import drop_outdated
from tests.longest_first import LONGEST_FIRST


def pytest_configure() -> None:
    """Kernels are those of this checkout.

    Ctrl-C ends what tests start, also when they run in the background of a shell, which ignores it.
    """
    drop_outdated()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first; xdist is kept from starting with those of the most tests (`--no-loadscope-reorder`)."""
    rank = {file: number for number, file in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.nodeid.split("::")[0], len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is there before the first test stays to the end: looking for garbage in it took a tenth of all time."""
    gc.disable()
    found = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One seed by default; `PHASEWISE_SEEDS=20` runs every test that asks for a seed with twenty."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(int(os.environ.get("PHASEWISE_SEEDS", "1"))))


hypothesis.settings.register_profile("project", deadline=None)  # a busy machine is no failure
hypothesis.settings.register_profile("fast", deadline=None, max_examples=25)  # of scripts/test --fast
hypothesis.settings.load_profile("project")
