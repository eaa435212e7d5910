"""The options of the live recommender: flag, environment, file, default, in this order; and its logs."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import orjson
import pytest

from recommender.base.errors import Misuse
from recommender.cli.grouped import GroupedCommand, keys_of
from recommender.cli.logs import JsonLines
from recommender.cli.recommender import ENVIRONMENT, command
from recommender.engine.options import BandOptions, RailOptions
from recommender.live.service import Timing
from recommender.live.view.scope import Shard
from recommender.policies.constraints import SharedLimits
from tests.fakes.command_line import CommandResult

Phasewise = Callable[..., CommandResult]

OPTIONS = [option for option in command.params if isinstance(option, click.Option)]


def parsed(*arguments: object) -> dict[str, Any]:
    """The parameters that the command gets."""
    return dict(command.make_context("recommender", [str(one) for one in arguments]).params)


def config(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    return file


@pytest.mark.option("phasewise recommender", "--config")
def test_flags_override_the_environment_then_the_file_then_the_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert parsed()["rounds.interval_s"] == 15.0
    file = config(tmp_path, "interval: 10s\nmemory-margin: 0.2\n")
    assert parsed("--config", file)["rounds.interval_s"] == 10.0
    monkeypatch.setenv("PHASEWISE_RECOMMENDER_INTERVAL", "5s")
    assert parsed("--config", file)["rounds.interval_s"] == 5.0
    values = parsed("--config", file, "--interval", "2s")
    assert values["rounds.interval_s"] == 2.0
    assert values["rails.memory_margin"] == 0.2


def test_the_config_file_can_be_named_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHASEWISE_RECOMMENDER_CONFIG", str(config(tmp_path, "name: ours\n")))
    assert parsed()["scope.name"] == "ours"


EXAMPLES = {
    "auto": (False, "false"),
    "label": ("pod=p", "pod=p"),
    "request-label": ("pod=p", "pod=p"),
    "namespace-max-allowed": ("ns=cpu:1", "ns=cpu:1"),
    "shard": ("1/3", "1/3"),
    "model": ("m", "m"),
}


def example_of(option: click.Option) -> tuple[Any, str]:
    """A value other than the default, as in the file and as in the environment."""
    key = keys_of(option)[0]
    if key in EXAMPLES:
        return EXAMPLES[key]
    if option.is_flag:
        value = not option.default if isinstance(option.default, bool) else True
        return value, str(value).lower()
    if isinstance(option.type, click.Choice):
        other = next(choice for choice in option.type.choices if choice != option.default)
        return other, other
    if option.type.name in ("duration", "duration|none"):
        return "7m", "7m"
    if option.type.name == "quantity":
        return "3", "3"
    if isinstance(option.type, click.IntRange | click.types.IntParamType):
        return 7, "7"
    if isinstance(option.type, click.FloatRange | click.types.FloatParamType):
        maximum = getattr(option.type, "max", None)
        return (0.25, "0.25") if maximum is not None else (2.5, "2.5")
    return "text", "text"


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if o.name not in ("config", "help_all")], ids=lambda o: keys_of(o)[0]
)
def test_every_option_can_be_set_by_flag_environment_and_file(
    option: click.Option, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_file, in_environment = example_of(option)
    default = parsed()[option.name]
    for key in keys_of(option):
        by_file = parsed("--config", config(tmp_path, orjson.dumps({key: in_file}).decode()))[option.name]
        with monkeypatch.context() as environment:
            environment.setenv(f"{ENVIRONMENT}_{key.replace('-', '_').upper()}", in_environment)
            by_environment = parsed()[option.name]
        if option.is_flag:
            by_flag = parsed(option.opts[0] if in_file else option.secondary_opts[0])[option.name]
        else:
            by_flag = parsed(f"--{key}", in_environment)[option.name]
        assert by_file == by_environment == by_flag != default


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("intervall: 10s", "'intervall'. Did you mean 'interval'?"),
        ("frobnicate: 1", "'frobnicate'. See `"),
        ("interval: soon", "interval: 'soon' is not a duration"),
        ("interval: 0", "interval: '0' is not a duration"),
        ("interval:", "interval: None does not fit"),
        ("interval: [1s, 2s]", "interval: ['1s', '2s'] does not fit"),
        ("interval: {s: 1}", "interval: {'s': 1} does not fit"),
        ("leader-elect: 1", "leader-elect: 1 does not fit. Write true or false"),
        ("kube-api-burst: true", "kube-api-burst: True does not fit"),
        ("memory-margin: a lot", "memory-margin: 'a lot' is not a valid float"),
        ("publish: everything", "publish: 'everything' is not one of"),
        ("shard: 3/3", "shard: '3/3' is not a shard"),
        ("interval: 1s\nrecommender-interval: 2s", "given twice"),
        ("interval: 1s\ninterval: 2s", "'interval' is given twice"),
        ("- interval", "not a mapping of names"),
        ("interval: 'open", "line 1: not YAML"),
        ("config: other.yaml", "no option 'config'"),
    ],
)
def test_an_invalid_file_is_refused_with_file_key_and_remedy(
    phasewise: Phasewise, tmp_path: Path, text: str, message: str
) -> None:
    file = config(tmp_path, text)
    ended = phasewise("recommender", "--config", file, "--check")
    assert ended.code == 2
    assert message in " ".join(ended.err.split())
    assert str(file) in ended.err.replace("\n", "")
    assert ended.err.rstrip().endswith((".", "?", "`"))


def test_a_missing_file_is_misuse(phasewise: Phasewise, tmp_path: Path) -> None:
    ended = phasewise("recommender", "--config", tmp_path / "none.yaml")
    assert ended.code == 2
    assert "no such file" in ended.err.replace("\n", " ")


def test_no_two_options_share_a_name() -> None:
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    keys = [key for option in OPTIONS for key in keys_of(option)]
    assert len(set(keys)) == len(keys)


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert parsed("--config", config(tmp_path, "# nothing yet\n")) == parsed()


def test_defaults_are_those_of_the_settings_classes() -> None:
    """Each default is defined once; those without a settings class are the default recommender's."""
    values = parsed()
    rails, band, timing, limits = RailOptions(), BandOptions(), Timing(), SharedLimits()
    assert (values["rails.memory_margin"], values["rails.shrink_step"]) == (rails.memory_margin, rails.shrink_step)
    assert values["rails.shrink_after_s"] == rails.shrink_after_s
    assert (values["rails.target_violation"],) * 2 == rails.target_violation
    assert values["band.half_width"] == band.half_width
    assert values["checkpoints.checkpoint_interval_s"] == timing.checkpoint_interval_s == 60.0
    assert values["checkpoints.clear_away_s"] == timing.clear_away_s == 600.0
    assert values["rounds.interval_s"] == timing.interval_s == 15.0
    assert values["limits.least_millicores"] / 1000 == limits.pod_minimum[0] == 0.025
    assert values["limits.least_mib"] * 2**20 == limits.pod_minimum[1] == 250 * 2**20
    assert (values["limits.oom_bump_up_ratio"], values["limits.oom_min_bump_up_bytes"]) == (1.2, 104857600)
    assert (values["api_server.qps"], values["api_server.burst"], values["address"]) == (50, 100, ":8942")
    times = [values[f"replicas.{name}"] for name in ("duration_s", "renew_deadline_s", "retry_s")]
    assert times == [15, 10, 2]
    assert values["replicas.shard"] == Shard(0, 1)


def test_help_lists_every_option_in_one_group(phasewise: Phasewise) -> None:
    text = phasewise("recommender", "--help-all").out
    assert isinstance(command, GroupedCommand)
    headings = {getattr(option, "group", command.others) for option in OPTIONS}
    assert len(headings) >= 8
    for heading in headings:
        assert f"\n{heading}:\n" in text
    for option in OPTIONS:
        lines = [line for line in text.splitlines() if line.startswith(f"  {option.opts[0]}") and option.opts[0] in
                 line.replace(",", " ").split()]  # fmt: skip
        assert len(lines) == 1, option.opts[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cycle", "5s"], "--cycle 5s is shorter than --step 15s"),
        (["--publish", "observe", "--resize-waiting"], "--publish observe changes nothing"),
        (["--namespace-max-allowed", "ns=gpu:1"], "write NAMESPACE=cpu:4,memory:8Gi"),
        (["--container-recommendation-max-allowed-cpu", "lots"], "is not a quantity"),
        (["--leader-elect-renew-deadline", "20s"], "two replicas may lead at once"),
        (["--only-namespace", "a", "--ignore-namespace", "b"], "exclude each other"),
        (["--shard", "2/2"], "counted from 0"),
        (["--model", "configmap:lonely"], "Write NAMESPACE/NAME"),
        (["--model", "no-such-folder"], "no such model folder"),
    ],
)
def test_invalid_options_are_misuse(phasewise: Phasewise, arguments: list[str], message: str) -> None:
    ended = phasewise("recommender", "--check", *arguments)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())


@pytest.mark.option("phasewise recommender", "--check", "--model")
def test_check_validates_options_without_a_cluster(phasewise: Phasewise, model_folder: Path) -> None:
    ended = phasewise("recommender", "--check", "--cycle", "1m")
    assert ended.code == 0
    assert "bundled: 12 phases; options are valid" in ended.out
    assert "model: 5 phases" in phasewise("recommender", "--check", "--model", model_folder).out


# -- logs --------------------------------------------------------------------------------------------------------------


def logged(log: Callable[[logging.Logger], None]) -> list[dict[str, Any]]:
    """The lines that it logs."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger = logging.Logger("recommender.live.service")
    logger.addHandler(handler)
    log(logger)
    return [orjson.loads(line) for line in stream.getvalue().splitlines()]


def test_a_json_line_has_time_level_logger_message_and_fields() -> None:
    (line,) = logged(lambda log: log.warning("%s: %s", "ns/a", "broken\nin two", extra={"about": "ns/a"}))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "recommender.live.service",
        "message": "ns/a: broken\nin two",
        "fields": {"about": "ns/a"},
    }


def test_a_traceback_is_logged_in_one_line() -> None:
    def fail(log: logging.Logger) -> None:
        try:
            raise Misuse("no")
        except Misuse:
            log.exception("it failed", extra={"odd": {1, 2}})

    (line,) = logged(fail)
    assert "Misuse: no" in line["exception"]
    assert line["level"] == "error"
