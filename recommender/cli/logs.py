"""Logging of long-running commands: text for people, or JSON for log collectors."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click
import orjson

from recommender.cli.grouped import grouped

LEVELS = ("debug", "info", "warning", "error")

_OF_EVERY_RECORD = {*vars(logging.makeLogRecord({})), "message", "asctime"}


class JsonLines(logging.Formatter):
    """One JSON object per line: time, level, logger, message, `extra` as fields, and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if fields:
            line["fields"] = fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS).decode()


def set_up_logging(log_format: str, log_level: str) -> None:
    """Log to stderr; `log_format` is `text` or `json`, `log_level` one of `LEVELS`."""
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else text)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(log_level.upper())
    # Below warnings, the logs of libraries are about their internals.
    for library in ("numba", "urllib3", "matplotlib"):
        logging.getLogger(library).setLevel(logging.WARNING)


_operation = grouped("Operation")


def with_log_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--log-format` and `--log-level` to a long-running command, and set up its log before it runs."""

    @_operation(
        "--log-format",
        click.Choice(["text", "json"]),
        "`json`: one object per line with time, level, logger, message and fields.",
        default="text",
    )
    @_operation(
        "--log-level", click.Choice(LEVELS, case_sensitive=False), "Lowest level that is logged.", default="info"
    )
    @wraps(command)
    def logged(*arguments: Any, log_format: str, log_level: str, **options: Any) -> Any:
        set_up_logging(log_format, log_level)
        return command(*arguments, **options)

    return logged
