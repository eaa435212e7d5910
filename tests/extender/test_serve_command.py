"""`phasewise extender serve`: invalid options, help, and garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from extender.cli.main import cli
from extender.web.server import Server
from local_cluster.waiting import wait_until
from placement_bench.worlds import node_json
from recommender.cli.common import run
from tests.fakes.served_commands import fake_api, kubeconfig, run_until


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
def default_gc_threshold() -> Iterator[int]:
    """The number of new objects that start a collection in Python; restored afterwards, as are frozen objects."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield 700
    gc.set_threshold(*before)
    gc.unfreeze()


def test_parsing_a_large_pod_causes_few_garbage_collections(
    default_gc_threshold: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty thousand fields in a megabyte take four times as long with a collection every few hundred objects."""
    large = orjson.dumps({f"f:{number}": {} for number in range(60_000)})

    def collections(_: Server) -> None:
        wait_until(lambda: gc.get_threshold()[0] > default_gc_threshold, "the cluster to be known")
        before = sum(generation["collections"] for generation in gc.get_stats())
        orjson.loads(large)
        assert sum(generation["collections"] for generation in gc.get_stats()) - before < 10

    with fake_api(nodes=[node_json("a")]) as api:
        options = ("--address", "127.0.0.1:0", "--kubeconfig", kubeconfig(tmp_path, here=api))
        run_until(monkeypatch, collections, "extender", "serve", *options)
