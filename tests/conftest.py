"""Shared by all tests: seeds, the order of files, the root logger, and the number of random examples."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from recommender.base.compiling import drop_outdated
from tests.longest_first import LONGEST_FIRST


def pytest_configure() -> None:
    """Drop cached kernels of earlier versions, and let Ctrl-C end tests that a shell runs in the background."""
    drop_outdated()
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first; `--no-loadscope-reorder` keeps xdist from starting with the files of most tests."""
    rank = {file: number for number, file in enumerate(LONGEST_FIRST)}

    def place(item: pytest.Item) -> tuple[int, str]:
        file = item.nodeid.split("::")[0]
        return rank.get(file, len(rank)), file

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Exempt objects that exist before the first test from garbage collection: it took a tenth of all time.

    Every second worker of xdist begins with the last folder: of a fresh clone's test files, which pytest rewrites and
    caches, each then rewrites others.
    """
    if session.config.args == ["tests"] and os.environ.get("PYTEST_XDIST_WORKER", "gw0")[-1] in "13579":
        session.config.args = sorted((str(folder) for folder in Path("tests").glob("[!_]*/")), reverse=True)
    gc.disable()
    found = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(10_000)  # compiling creates many objects, and hardly any garbage in cycles
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One seed by default; `PHASEWISE_SEEDS=20` runs every test that has a `seed` with twenty."""
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(int(os.environ.get("PHASEWISE_SEEDS", "1"))))


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Restore the root logger: commands set up their own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def objects_of_earlier_tests() -> None:
    """Exempt them from garbage collection as well: they are mostly imported modules and compiled kernels."""
    gc.freeze()


hypothesis.settings.register_profile("project", deadline=None, max_examples=50)  # a busy machine must not fail a test
hypothesis.settings.register_profile("fast", deadline=None, max_examples=25)  # for scripts/test --fast
hypothesis.settings.load_profile("project")
