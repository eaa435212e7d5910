"""The door of the whole program: the recommender's commands, and the extender's beside them.

It stands here, in the upper of the two packages: the recommender cannot know that there is an extender.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from recommender.cli.common import run
from recommender.cli.main import LateGroup, cli

COMMANDS = {
    "serve": ("extender.cli.serve", "Answer a kube-scheduler: which nodes suit a pod, and why."),
    "explain": ("extender.cli.explain", "Answer one request without a server, and say why."),
}

cli.add_command(LateGroup("extender", late=COMMANDS, help="The kube-scheduler extender: which node suits which job."))


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; ends the process with the command's exit code."""
    sys.exit(run(cli, arguments))
