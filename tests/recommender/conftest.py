"""The command line in this process: arguments in, exit code and both output streams out; and the bundled model."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from recommender.cli.common import run
from recommender.cli.main import cli
from recommender.learning import model as models
from tests.fakes.command_line import CommandResult


@pytest.fixture
def phasewise(capsys: pytest.CaptureFixture[str]) -> Callable[..., CommandResult]:
    def call(*arguments: object) -> CommandResult:
        capsys.readouterr()
        code = run(cli, [str(a) for a in arguments])
        return CommandResult(code, *capsys.readouterr())

    return call


@pytest.fixture(autouse=True, scope="session")
def bundled_model() -> Iterator[None]:
    """Read the bundled model once: each time takes a tenth of a second."""
    load, bundled = models.load, models.load(models.BUNDLED)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(models, "load", lambda name: bundled if str(name) == models.BUNDLED else load(name))
        yield
