"""Options of the serving commands may be set in the environment, by their names."""

from __future__ import annotations

import pytest

from tests.extender.options.stage import COMMANDS


@pytest.mark.parametrize(
    ("command", "variable", "text", "parameter", "value"),
    [
        ("serve", "PHASEWISE_EXTENDER_CPU_OVERLOAD", "0.01", "cpu_overload", 0.01),
        ("controller", "PHASEWISE_CONTROLLER_BIND_WITHIN", "1m", "bind_within_s", 60.0),
        ("web", "PHASEWISE_WEB_PERIOD", "30s", "period_s", 30.0),
        ("webhook", "PHASEWISE_WEBHOOK_SCHEDULER_NAME", "other", "scheduler", "other"),
    ],
)
def test_an_option_is_set_in_the_environment_by_its_name(
    command: str, variable: str, text: str, parameter: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    assert COMMANDS[command][0].make_context(command, []).params[parameter] == value
