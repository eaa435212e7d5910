"""A program that starts a recommender for each line it reads, with the given arguments, and prints its process id.

Imports and compiled kernels, which take seconds, are ready beforehand, so that a test can kill one recommender after
another without waiting. Each is a process of its own, and shares nothing with the next.
"""

from __future__ import annotations

import os
import sys

import recommender.cli.recommender  # noqa: F401 - `main` would import it in each of them
from recommender.cli.main import main
from recommender.engine.warm_up import warm_up
from recommender.learning import model as models


def print_line(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run() -> None:
    warm_up(models.load(models.BUNDLED), 1.0, 4)
    print_line("ready")
    for _ in sys.stdin:
        if (pid := os.fork()) == 0:
            main(sys.argv[1:])
        print_line(str(pid))
        os.waitpid(pid, 0)


if __name__ == "__main__":
    run()
