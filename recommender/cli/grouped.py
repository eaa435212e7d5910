"""Commands with many options: grouped in --help, and settable by flag, environment variable and file, in that order."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from dataclasses import field, fields
from pathlib import Path
from typing import Any

import click

from recommender.base.errors import Misuse
from recommender.base.files import read_mapping
from recommender.base.units import format_duration
from recommender.cli.common import FILE

Decorate = Callable[[Callable[..., Any]], Callable[..., Any]]


class GroupedOption(click.Option):
    """An option listed under the heading `group`."""

    def __init__(self, *arguments: Any, group: str = "Options", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose options are listed in groups, those without one under the heading `others`.

    `environment` is the prefix of the options' environment variables: `--log-level` is `PREFIX_LOG_LEVEL`.
    """

    def __init__(self, *arguments: Any, environment: str, others: str = "Options", **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.context_settings["show_default"] = True
        self.others = others
        for option in self.params:
            if isinstance(option, click.Option):
                own = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
                option.envvar = [f"{environment}_{key.replace('-', '_').upper()}" for key in keys_of(option)] + own
                option.show_envvar = False  # the command's help explains the rule once

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        helps: list[tuple[str, str]] = []  # --help and --help-all stand last, in the last group that is shown
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is None:
                continue
            of_group = groups.setdefault(getattr(parameter, "group", self.others), [])
            (helps if {"--help", "--help-all"} & {*parameter.opts} else of_group).append(record)
        groups = {heading: records for heading, records in groups.items() if records}
        groups.setdefault(next(reversed(groups), self.others), []).extend(helps)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def keys_of(option: click.Option) -> list[str]:
    """The long names of an option without dashes; the negative name of a flag is not among them."""
    return [name.removeprefix("--") for name in option.opts if name.startswith("--")]


def grouped(group: str = "", defaults: object = None) -> Callable[..., Decorate]:
    """A short `click.option`, under a heading if there is one: `option("--step step_s", DURATION, "Grid step.")`.

    Its default, unless given, is the field of `defaults` with its name, where that of a duration ends in `_s`.
    """
    grouping: dict[str, Any] = {"cls": GroupedOption, "group": group} if group else {}

    def option(names: str, kind: Any, text: str, **more: Any) -> Decorate:
        words = names.split()
        name = words[-1].removeprefix("--").replace("-", "_")
        name = name if hasattr(defaults, name) else f"{name}_s"
        if "default" not in more and hasattr(defaults, name):
            value = getattr(defaults, name)
            more["default"] = format_duration(value) if name.endswith("_s") else value
            words = [*(word for word in words if word.startswith("--")), name]
        typed = {"is_flag": True} if kind is bool else {"type": kind}
        return click.option(*words, help=text, **typed, **grouping, **more)

    return option


def settings_of(name: str, options: tuple[Decorate, ...], make: Callable[..., object]) -> Decorate:
    """Pass a command one object, made from the values of several options, as the argument `name`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        names: dict[str, str] = {}

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            own = {short: given.pop(option) for option, short in names.items()}
            return command(**{name: make(**own)}, **given)

        first_own = len(getattr(called, "__click_params__", ()))
        decorated: Callable[..., Any] = called
        for add in reversed(options):
            decorated = add(decorated)
        for option in decorated.__click_params__[first_own:]:  # type: ignore[attr-defined]
            short, option.name = option.name, f"{name}.{option.name}"  # names are unique only within an object
            names[option.name] = short
        return decorated

    return decorate


def setting(group: str = "", defaults: object = None) -> Callable[..., Any]:
    """Fields of a settings class, each declared by the option that sets it, as by `grouped`."""
    option = grouped(group, defaults)

    def declared(names: str, *arguments: Any, **more: Any) -> Any:
        return field(metadata={"option": lambda name: option(f"{names} {name}", *arguments, **more)})

    return declared


def settings_from(name: str, settings: type) -> Decorate:
    """Pass a command an object of a class whose fields are made by `setting`, as the argument `name`."""
    return settings_of(name, tuple(one.metadata["option"](one.name) for one in fields(settings)), settings)


def config_option(group: str) -> Decorate:
    """`--config FILE`: a YAML file of other options by their names."""
    text = "YAML file of options by name, without leading dashes: `interval: 10s`."
    return grouped(group)("--config", FILE, text, is_eager=True, expose_value=False, callback=_read_into_context)


def _read_into_context(ctx: click.Context, _: click.Parameter, file: Path | None) -> None:
    if file is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_config(file, ctx)}


def read_config(file: Path, ctx: click.Context) -> dict[str, Any]:
    """Read options from a YAML file, keyed by the name of the command's parameter; `Misuse` names key and value."""
    options = {
        key: option
        for option in ctx.command.params
        if isinstance(option, click.Option) and option.name not in ("config", "help")
        for key in keys_of(option)
    }
    values: dict[str, Any] = {}
    for key, value in read_mapping(file, "--config", "interval: 10s").items():
        option = options.get(key)
        if option is None:
            near = difflib.get_close_matches(key, options, n=1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"See `{ctx.command_path} --help` for the names."
            raise Misuse(f"{file}: there is no option {key!r}. {remedy}")
        assert option.name is not None  # noqa: S101  click names every option
        if option.name in values:
            raise Misuse(f"{file}: {key!r} is given twice, once under its other name. Leave one of them out.")
        values[option.name] = _validated(file, key, option, value, ctx)
    return values


def _validated(file: Path, key: str, option: click.Option, value: object, ctx: click.Context) -> Any:
    """Convert a value to command-line text and check that the option accepts it."""
    values = value if isinstance(value, list) and option.multiple else [value]
    if any(one is None or isinstance(one, dict | list) or isinstance(one, bool) != option.is_flag for one in values):
        wanted = "true or false" if option.is_flag else "a value, or a list of them" if option.multiple else "one value"
        raise Misuse(f"{file}: {key}: {value!r} does not fit. Write {wanted}.")
    texts = [one if option.is_flag else str(one) for one in values]
    given = texts if option.multiple else texts[0]
    try:
        option.type_cast_value(ctx, given)
    except click.BadParameter as error:
        raise Misuse(f"{file}: {key}: {error.message.rstrip('.')}. See `{ctx.command_path} --help`.") from error
    return given
