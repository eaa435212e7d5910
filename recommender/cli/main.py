"""The door: `phasewise`, its help, and its commands, each loaded when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class

from recommender import __version__
from recommender.cli.common import run
from recommender.compiling import drop_outdated
from recommender.errors import Misuse

COMMANDS = {
    "dry-run": ("recommender.cli.dry_run", "Replay recorded metrics: what would each policy have saved and broken?"),
    "recommender": (
        "recommender.cli.recommender",
        "The live VPA recommender: requests for the phase that comes next.",
    ),
    "explain": (
        "recommender.cli.explain",
        "What the recommender sees of a VPA, what it expects, and why it says so.",
    ),
    "replay": (
        "recommender.cli.replay",
        "Run a recorded recommender again: does it say the same, and what with other options?",
    ),
    "export": ("recommender.cli.export", "Write a Prometheus' recorded usage to a file that the other commands read."),
    "train": ("recommender.cli.train", "Learn phases, their order and their demand from recorded metrics."),
    "phases": ("recommender.cli.phases", "Tell the phase of every sample."),
    "graph": ("recommender.cli.graph", "Fit, score and draw the graph of how phases follow one another."),
    "model": ("recommender.cli.model", "Show a model, split, import, or publish one to a cluster."),
}
"""Name -> (module, one line of help). A command's module is imported only when it is used: help stays instant."""

LESSON = f"""\
Phasewise {__version__} learns the phases of training jobs and sets CPU and memory before the next one comes.

  phasewise dry-run                       replay the bundled recordings, compare every policy
  phasewise dry-run --html report.html    the same as a page to look at
  phasewise dry-run my-metrics.csv        your own export: columns timestamp, container, cpu_cores, memory_bytes
                                          (other names: --map cpu_cores=your.column)
  phasewise train my-metrics/ -o model    learn from your own runs, then
  phasewise dry-run new.csv --model model judge that model on others

Every command explains itself: phasewise COMMAND --help
"""


class LazyGroup(click.Group):
    """A group whose commands are imported on first use.

    Parameters
    ----------
    lazy
        Name -> (module, one line of help), as `COMMANDS`.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, tuple[str, str]] = COMMANDS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy

    def offer(self, lazy: Mapping[str, tuple[str, str]]) -> None:
        """Commands besides, of a package above."""
        self._lazy = {**self._lazy, **lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        drop_outdated()
        try:
            command: click.Command = importlib.import_module(self._lazy[cmd_name][0]).command
        except ModuleNotFoundError as error:
            raise _left_out(cmd_name, error) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(name, command.get_short_help_str(80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*((name, line) for name, (_, line) in self._lazy.items()), *own])


def _left_out(command: str, error: ModuleNotFoundError) -> Exception:
    """What is said where a library is missing that the image for clusters does without."""
    library, *_ = (error.name or "").split(".")
    if library in ("", "recommender", "extender"):
        return error
    return Misuse(
        f"`{command}` needs {library}, which is not installed: only the image phasewise-offline and an installation of "
        "requirements.txt have it."
    )


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="phasewise")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Learns the phases of training jobs and sets CPU and memory before the next one comes.

    Exit codes: 0 done, 1 failed, 2 misuse or bad input, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(LESSON, nl=False)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell: eval "$(phasewise completion bash)"."""
    completer = get_completion_class(shell)
    if completer is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(completer(cli, {}, "phasewise", "_PHASEWISE_COMPLETE").source())


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; ends the process with the command's exit code."""
    sys.exit(run(cli, arguments))
