"""Runs the command line in this process: arguments in, exit code and both output streams out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recommender.cli.common import run
from recommender.cli.main import cli
from tests.fakes.command_line import CommandResult


@pytest.fixture
def phasewise(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    def call(*arguments: object) -> CommandResult:
        capsys.readouterr()
        code = run(cli, [str(a) for a in arguments])
        return CommandResult(code, *capsys.readouterr())

    return call
