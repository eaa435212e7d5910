"""`phasewise extender serve`: what is wrong with its options is said before anything is served."""

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
    ("options", "words"),
    [
        (["--client-authority", __file__], "--tls-certificate"),
        (["--weights", "nobody=1"], "scorer=number"),
        (["--kubeconfig", "/nowhere/at/all"], "no such kubeconfig"),
        (["--sizes", __file__], "not a table of sizes"),
    ],
)
def test_options_that_cannot_be_meant_end_with_2_and_words(
    options: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(cli, ["extender", "serve", *options]) == 2
    assert words in capfd.readouterr().err


def test_help_names_both_commands_and_every_option(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(cli, ["extender", "--help"]) == 0
    told = capfd.readouterr().out
    assert "serve" in told
    assert "explain" in told
    assert run(cli, ["--help"]) == 0
    assert "extender" in capfd.readouterr().out


@pytest.fixture
def as_python_collects() -> Iterator[int]:
    """How many new objects set a collection off; put back, and what was left out is looked at again."""
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield 700
    gc.set_threshold(*before)
    gc.unfreeze()


def test_the_json_of_a_large_pod_does_not_pause_a_call_again_and_again_for_garbage(
    as_python_collects: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty thousand fields in a megabyte: four times as long to read with a collection for every few hundred."""
    large = orjson.dumps({f"f:{number}": {} for number in range(60_000)})

    def collections(_: Server) -> None:
        wait_until(lambda: gc.get_threshold()[0] > as_python_collects, "the cluster to be known")
        before = sum(generation["collections"] for generation in gc.get_stats())
        orjson.loads(large)
        assert sum(generation["collections"] for generation in gc.get_stats()) - before < 10

    with fake_api(nodes=[node_json("a")]) as api:
        given = ("--address", "127.0.0.1:0", "--kubeconfig", kubeconfig(tmp_path, here=api))
        run_until(monkeypatch, collections, "extender", "serve", *given)
