"""Entry point of the whole program: the commands of the recommender and of the extender.

It is in this package because the recommender must not import the extender.
"""

from __future__ import annotations

from collections.abc import Sequence

from recommender.cli.common import run_as_process
from recommender.cli.main import LazyGroup, cli

__all__ = ["cli", "main"]

COMMANDS = {
    "serve": ("extender.cli.serve", "Serve a kube-scheduler: filter and score nodes."),
    "explain": ("extender.cli.explain", "Explain a decision, or evaluate a request without a server."),
}

TOP_LEVEL_COMMANDS = {
    "controller": ("extender.cli.controller", "Admit gangs of pods: all together, or not at all."),
    "web": ("extender.cli.web", "Serve read-only pages on jobs, nodes and warnings."),
    "webhook": ("extender.cli.webhook", "Set gate and scheduler of gang pods, by namespace label."),
}

cli.offer(TOP_LEVEL_COMMANDS)
cli.add_command(LazyGroup("extender", lazy=COMMANDS, help="The kube-scheduler extender."))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script and exit with the command's exit code."""
    run_as_process(cli, arguments)
