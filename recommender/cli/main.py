"""The `phasewise` command group; each command is imported when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import get_completion_class

from recommender import __version__
from recommender.base.compiling import drop_outdated
from recommender.base.errors import Misuse
from recommender.cli.common import run_as_process

COMMANDS = {
    "recommend": ("recommender.cli.recommend", "Say what each workload should request, and what that saves."),
    "dry-run": ("recommender.cli.dry_run", "Replay recorded metrics: what would each policy have saved and violated?"),
    "recommender": ("recommender.cli.recommender", "Run the live VPA recommender."),
    "explain": ("recommender.cli.explain", "Show the phases and the forecast behind the recommendation of a VPA."),
    "pause": ("recommender.cli.pause:pause", "Leave VPAs as they are until `phasewise resume`."),
    "undo": ("recommender.cli.pause:undo", "Put back what owners declare, and pause."),
    "resume": ("recommender.cli.pause:resume", "Let the recommender go on with paused VPAs."),
    "replay": (
        "recommender.cli.replay",
        "Rerun a recorded recommender, to reproduce its targets or try other options.",
    ),
    "export": ("recommender.cli.export", "Export usage from Prometheus to a file for the other commands."),
    "train": ("recommender.cli.train", "Train a model of phases and their demand on recorded metrics."),
    "model": ("recommender.cli.model", "Show, split, import or publish a model."),
}
"""Name -> (module, line of help). Modules are imported on use, so that --help is fast."""

RESEARCH_COMMANDS = {
    "phases": ("recommender.cli.phases", "Detect the phase of each sample."),
    "graph": ("recommender.cli.graph", "Fit, score, explain and draw the graph of phase transitions."),
}

QUICK_START = f"""\
Phasewise {__version__} learns the phases of training jobs and sets CPU and memory requests before each phase.

  phasewise dry-run                       replay the bundled recordings and compare all policies
  phasewise dry-run --html report.html    the same, with an HTML report
  phasewise dry-run my-metrics.csv        your own data: columns timestamp, container, cpu_cores, memory_bytes
                                          (other names: --map cpu_cores=your.column)
  phasewise train my-metrics/ -o model    train a model on your own runs, then
  phasewise dry-run new.csv --model model test it on others

Help for each command: phasewise COMMAND --help
"""


class LazyGroup(click.Group):
    """A group whose commands are imported on first use: name -> (module, one line of help), as `COMMANDS`.

    The command is the module's `command`, or what a name after a colon says.
    """

    def __init__(self, *arguments: Any, lazy: Mapping[str, tuple[str, str]] = COMMANDS, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lazy = lazy

    def offer(self, lazy: Mapping[str, tuple[str, str]]) -> None:
        """Add commands of a package that imports this one."""
        self._lazy = {**self._lazy, **lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return super().get_command(ctx, cmd_name)
        drop_outdated()
        try:
            module, _, name = self._lazy[cmd_name][0].partition(":")
            command: click.Command = getattr(importlib.import_module(module), name or "command")
        except ModuleNotFoundError as error:
            raise _missing_library(cmd_name, error) from error
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = [(name, command.get_short_help_str(80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*((name, line) for name, (_, line) in self._lazy.items()), *own])


def _missing_library(command: str, error: ModuleNotFoundError) -> Exception:
    """Explain a missing library that the image for clusters leaves out."""
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
    """Learn the phases of training jobs, and set CPU and memory requests before each phase.

    Exit codes: 0 done, 1 failed, 2 misuse or bad input, 130 interrupted.
    """
    if ctx.invoked_subcommand is None:
        click.echo(QUICK_START, nl=False)


cli.add_command(LazyGroup("research", lazy=RESEARCH_COMMANDS, help="Look into phases and how they follow one another."))


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
    run_as_process(cli, arguments)
