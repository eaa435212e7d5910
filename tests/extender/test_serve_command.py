"""`phasewise extender serve`: invalid options, help, and garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from extender.cli.main import cli
from extender.web.server import Server
from recommender.cli.common import run
from tests.fakes.served_commands import fake_api, kubeconfig, run_until
from tests.rig.waiting import wait_until


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--client-authority", __file__], "--tls-certificate"),
        (["--weights", "nobody=1"], "scorer=number"),
        (["--kubeconfig", "/nowhere/at/all"], "no such kubeconfig"),
        (["--sizes", __file__], "not a table of sizes"),
    ],
)
def test_invalid_options_exit_with_2_and_a_reason(
    options: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["extender", "serve", *options]) == 2
    assert reason in capfd.readouterr().err


def test_help_names_the_commands(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["extender", "--help"]) == 0
    output = capfd.readouterr().out
    assert "serve" in output
    assert "explain" in output
    assert run(cli, ["--help"]) == 0
    assert "extender" in capfd.readouterr().out


@pytest.fixture
def default_gc_threshold() -> Iterator[None]:
    """Collections as often as Python's default; restored afterwards, as are frozen objects."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("default_gc_threshold")
def test_listing_large_objects_causes_few_garbage_collections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred thousand fields take several times as long with a collection every few hundred objects."""
    large = {"metadata": {"name": "a", "managedFields": [{f"f:{number}": {} for number in range(200_000)}]}}
    import_module("recommender.cluster.access.credentials")  # causes collections of its own
    frozen, before = gc.get_freeze_count(), collections()

    def few_collections(_: Server) -> None:
        wait_until(lambda: gc.get_freeze_count() > frozen, "the cluster to be known")
        assert collections() - before < 50

    with fake_api(nodes=[large]) as api:
        options = ("--address", "127.0.0.1:0", "--kubeconfig", kubeconfig(tmp_path, here=api))
        run_until(monkeypatch, few_collections, "extender", "serve", *options)


def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())
