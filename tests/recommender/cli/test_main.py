"""The `phasewise` command itself: help, completion, exit codes and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from recommender import __version__
from recommender.base.errors import BadInput
from recommender.cli.common import run
from recommender.cli.main import COMMANDS
from tests.fakes.command_line import CommandResult

Phasewise = Callable[..., CommandResult]


def test_without_arguments_it_shows_help(phasewise: Phasewise) -> None:
    ended = phasewise()
    assert ended.code == 0
    for command in ("dry-run", "train", "--map", "--help"):
        assert command in ended.out


@pytest.mark.option("phasewise", "--version")
def test_its_version_is_printed(phasewise: Phasewise) -> None:
    assert phasewise("--version").out == f"phasewise, version {__version__}\n"


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=lambda c: c[0] if c else "phasewise")
def test_every_command_has_a_help_page(phasewise: Phasewise, command: tuple[str, ...]) -> None:
    ended = phasewise(*command, "--help")
    assert ended.code == 0
    assert "Usage: phasewise" in ended.out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_exists_for_every_shell(phasewise: Phasewise, shell: str) -> None:
    assert "_PHASEWISE_COMPLETE" in phasewise("completion", shell).out


def test_an_unknown_command_is_misuse(phasewise: Phasewise) -> None:
    ended = phasewise("dryrun")
    assert ended.code == 2
    assert "dryrun" in ended.err


def raising(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BadInput("negative use", file="a.csv", row=3, column="cpu_cores", remedy="Remove it."), 2, "a.csv, row 3"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(13, "Permission denied", "x.csv"), 1, "x.csv: Permission denied"),
        (OSError(28, "No space left on device"), 1, "phasewise: No space left on device. Check"),
    ],
    ids=["bad input", "interrupted", "no permission", "standard output on a full disk"],
)
def test_exceptions_set_the_exit_code_and_a_message(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error), []) == code
    assert message in capsys.readouterr().err


HEAVY = ("sklearn", "pandas", "pyarrow", "matplotlib", "kubernetes")


@pytest.mark.parametrize(
    ("arguments", "modules"),
    [(("--help",), ("numba", *HEAVY)), (("recommender", "--help"), HEAVY)],
    ids=["all commands", "the recommender"],
)
def test_help_imports_no_heavy_library(arguments: tuple[str, ...], modules: tuple[str, ...]) -> None:
    code = f"import sys; from recommender.cli.main import cli; cli.main({arguments}, standalone_mode=False); "
    code += f"print(*(m for m in {modules} if m in sys.modules), file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stderr.split() == []


def test_ctrl_c_and_sigterm_leave_no_partial_file(tmp_path: Path) -> None:
    """A real process, stopped while it holds an unfinished file."""
    program = (
        "import sys, signal, click; from pathlib import Path; from recommender.cli.common import run_as_process; "
        "from recommender.base.files import atomic_write\n"
        "@click.command()\n"
        "def command():\n"
        "    with atomic_write(Path(sys.argv[1]) / 'out.json') as aside:\n"
        "        aside.write_text('half')\n"
        "        print('writing', flush=True)\n"
        "        signal.pause()\n"
        "run_as_process(command, [])"
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 130, err
        assert os.listdir(tmp_path) == []  # noqa: PTH208  hidden names count too


@pytest.mark.long
def test_a_reader_that_closes_the_pipe_early_is_not_an_error(runs_csv: Path) -> None:
    command = f"{sys.executable} -m recommender dry-run {runs_csv} --policies prev.step.max --json - | head -c 1"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ended.stdout == "{"
    assert "Traceback" not in ended.stderr
