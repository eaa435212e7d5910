"""The door of the whole program: the recommender's commands, and the extender's beside them.

It stands here, in the upper of the two packages: the recommender cannot know that there is an extender.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from recommender.cli.common import run
from recommender.cli.main import LazyGroup, cli

COMMANDS = {
    "serve": ("extender.cli.serve", "Answer a kube-scheduler: which nodes suit a pod, and why."),
    "explain": ("extender.cli.explain", "Answer one request without a server, and say why."),
}

BESIDE = {
    "controller": ("extender.cli.controller", "Let gangs of pods in: all together, or not at all."),
    "web": ("extender.cli.web", "Show jobs, nodes and warnings on pages, read-only."),
    "webhook": ("extender.cli.webhook", "Set gate and scheduler of the pods of gangs, by namespace label."),
}

cli.offer(BESIDE)
cli.add_command(LazyGroup("extender", lazy=COMMANDS, help="The kube-scheduler extender: which node suits which job."))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; ends the process with the command's exit code."""
    sys.exit(run(cli, arguments))
