"""Shared by all commands: option types, options of sources, progress on stderr, and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from recommender.base.errors import Misuse, PhasewiseError
from recommender.base.files import check_target
from recommender.base.units import MAX_NUMBER, parse_duration_s, parse_time_s
from recommender.sources.mapping import parse_map

Command = TypeVar("Command", bound=Callable[..., Any])


class Parsed(click.ParamType[Any, Any]):
    """A parameter type made of a parsing function; its `Misuse` becomes a usage error."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value) if isinstance(value, str) else value
        except Misuse as error:
            self.fail(str(error), param, ctx)


class _Bounded(click.ParamType[Any, Any]):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not abs(number) <= MAX_NUMBER:
            self.fail(f"{value:.40} is not a number up to {MAX_NUMBER}.", param, ctx)
        return number


class FiniteRange(_Bounded, click.FloatRange):
    """A range of numbers up to `MAX_NUMBER`, without NaN, which click takes to be in any range."""


class WholeRange(_Bounded, click.IntRange):
    """A range of whole numbers up to `MAX_NUMBER`."""


SEED = click.IntRange(0, 2**32 - 1)
"""The seeds of scikit-learn."""

FILE = click.Path(path_type=Path)
"""A file or folder, which need not exist."""

DURATION = Parsed("duration", parse_duration_s)
"""`15s`, `10m`, `1h30m`, or bare seconds; the value is seconds."""

STEP = Parsed("duration|none", lambda text: 0.0 if text == "none" else parse_duration_s(text))
"""A duration or `none`, as for samples without a grid; the value is seconds, 0 for `none`."""

MOMENT = Parsed("moment", parse_time_s)
"""RFC 3339 or unix seconds; the value is unix seconds."""


def comma_list(text: str | None) -> tuple[str, ...]:
    """Split a comma-separated list; empty items are dropped."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def source_argument(required: bool) -> Callable[[Command], Command]:
    return click.argument("source", nargs=-1, required=required, type=FILE)


map_option = click.option(
    "--map",
    "columns",
    type=Parsed("new=old[:unit]", parse_map),
    multiple=True,
    help="Read a column under another name: cpu_cores=cpu.usage.cores, memory_bytes=mem:MiB. Repeatable.",
)


def shows(*names: str) -> Callable[[click.Command], click.Command]:
    """Show only these options in --help: those that people set. --help-all shows all."""

    def decorate(command: click.Command) -> click.Command:
        options = [one for one in command.params if isinstance(one, click.Option)]
        assert set(names) <= {name for one in options for name in one.opts}, names  # noqa: S101  one was renamed
        hidden = [option for option in options if not set(names).intersection(option.opts)]
        for option in hidden:
            option.hidden = True

        def show_all(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
            if asked and not ctx.resilient_parsing:
                with all_shown(ctx.command):
                    click.echo(ctx.get_help())
                ctx.exit()

        text = f"Show all {len(options) + 2} options and exit."
        eager = {"is_flag": True, "is_eager": True, "expose_value": False}
        command.params.append(click.Option(["--help-all"], help=text, callback=show_all, **eager))
        return command

    return decorate


@contextmanager
def all_shown(command: click.Command) -> Iterator[None]:
    """Show all options of a command in its help, for the time of the block."""
    hidden = [option for option in command.params if isinstance(option, click.Option) and option.hidden]
    for option in hidden:
        option.hidden = False
    yield
    for option in hidden:
        option.hidden = True


def check_parquet_target(path: str | Path) -> None:
    """Refuse a file that cannot be written, or whose name promises another format than Parquet."""
    if str(path).endswith((".csv", ".csv.gz", ".json")):
        raise Misuse(f"{path}: this is written as Parquet. Name a .parquet file.")
    check_target(path)


def refuse_overwriting(outputs: Iterable[str | Path | None], inputs: Iterable[Path]) -> None:
    """Refuse a file to write, None for none, that is one of those read, or is to be written twice."""
    taken = {os.path.realpath(file) for file in inputs}
    for path in (output for output in outputs if output):
        if (target := os.path.realpath(path)) in taken:
            raise Misuse(f"{path}: this command reads it, or writes it twice. Name another file to write.")
        taken.add(target)


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a callback (task, done, total) that draws progress bars on stderr if that is a terminal."""
    from rich.console import Console  # noqa: PLC0415 - keeps rich out of the memory of long-running commands
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn  # noqa: PLC0415

    stderr = Console(stderr=True)
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)
    tasks: dict[str, Any] = {}

    def advance(task: str, done: int, total: int) -> None:
        if task not in tasks:
            tasks[task] = bar.add_task(task, total=total)
        bar.update(tasks[task], completed=done, total=total)

    with bar:
        yield advance


def say(line: str) -> None:
    """Print a message to stderr; stdout is for results."""
    click.echo(line, err=True)


def run_as_process(cli: click.Command, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its exit code."""
    # A Python file beside the data must not be imported by the processes that this one starts.
    os.environ["PYTHONSAFEPATH"] = "1"
    # Unwinds the stack as Ctrl-C does, so that temporary files are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(cli, arguments))


def run(cli: click.Command, arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 failed, 2 misuse or bad input, 130 interrupted."""
    try:
        given = None if arguments is None else list(arguments)
        result = cli.main(args=given, prog_name="phasewise", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return 2
    except PhasewiseError as error:
        say(f"phasewise: {error}")
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("phasewise: interrupted; unfinished files were removed")
        return 128 + signal.SIGINT  # as shells report it
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; without this, Python's flush at exit would fail again.
        sys.stdout = None
        return 1
    except OSError as error:
        place, reason = f"{error.filename}: " if error.filename else "", error.strerror or str(error)
        say(f"phasewise: {place}{reason}. Check the path, its permissions and the free disk space.")
        return 1
    return result if isinstance(result, int) else 0  # an int comes from `Context.exit`
