"""`phasewise extender serve`: what is wrong with its options is said before anything is served."""

from __future__ import annotations

import pytest

from extender.cli.main import cli
from recommender.cli.common import run


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--address", "nowhere"], "host:port"),
        (["--address", "127.0.0.1:99999"], "host:port"),
        (["--client-authority", __file__], "--tls-certificate"),
        (["--weights", "nobody=1"], "scorer=number"),
        (["--kubeconfig", "/nowhere/at/all"], "no such kubeconfig"),
        (["--sizes", __file__], "no table of sizes"),
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
