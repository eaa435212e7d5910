"""Each option of every command is named by a test in which another value of it changes the result.

Such a test is marked `@pytest.mark.option("phasewise train", "--lag", "--hidden")`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from extender.cli.main import cli

ROOT = Path(__file__).parents[2]


@cache
def marked() -> set[tuple[str, str]]:
    """(command, option) of the marks of all tests."""
    found = set()
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        if file == Path(__file__) or "mark.option(" not in file.read_text():
            continue
        module = importlib.import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        tests = [value for name, value in vars(module).items() if name.startswith("test_")]
        marks = [mark for test in tests for mark in getattr(test, "pytestmark", []) if mark.name == "option"]
        found |= {(mark.args[0], option) for mark in marks for option in mark.args[1:]}
    return found


def commands_of(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """(path, command) of a command and those below it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands_of(below, f"{path} {name}")


ALL_COMMANDS = dict(commands_of(cli, "phasewise"))
OPTIONS = [
    (path, option)
    for path, command in ALL_COMMANDS.items()
    for option in command.params
    if isinstance(option, click.Option)
]
ALL = sorted((command, option.opts[0]) for command, option in OPTIONS)


@pytest.mark.parametrize(("command", "option"), ALL, ids=[f"{command} {option}" for command, option in ALL])
def test_each_option_is_named_by_a_test(command: str, option: str) -> None:
    assert (command, option) in marked(), f'no test is marked option("{command}", "{option}")'


def test_no_test_names_an_option_that_does_not_exist() -> None:
    assert marked() <= set(ALL)


@pytest.mark.parametrize("path", ALL_COMMANDS)
def test_every_command_and_option_has_help(path: str) -> None:
    assert ALL_COMMANDS[path].help
    assert [option.name for command, option in OPTIONS if command == path and not option.help] == []


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_no_option_takes_a_number_that_is_not_finite(text: str) -> None:
    numbers = [option for _, option in OPTIONS if isinstance(option.type, click.types.FloatParamType)]
    assert len(numbers) > 20
    for option in numbers:
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)
