"""Which cluster a command connects to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any

import click

from recommender.cli.common import FILE
from recommender.cluster.access.connection import connect

KUBECONFIG_HELP = "[default: KUBECONFIG, else the pod's service account, else ~/.kube/config]"
CONTEXT_HELP = "Context of the kubeconfig.  [default: the current context]"


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--kubeconfig` and `--context`; the command gets `connect`, which connects to that cluster."""

    @click.option("--kubeconfig", type=FILE, help=KUBECONFIG_HELP)
    @click.option("--context", help=CONTEXT_HELP)
    @wraps(command)
    def with_connection(*arguments: Any, kubeconfig: Path | None, context: str | None, **options: Any) -> Any:
        return command(*arguments, connect=partial(connect, kubeconfig, context), **options)

    return with_connection
