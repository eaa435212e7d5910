"""A program: for each line that it reads it starts a recommender with the arguments given, and tells its process id.

What takes seconds, imports and compiled kernels, is done once, before; so a test can kill one recommender after the
other without waiting for that. Each is a process of its own, which shares nothing with the next one.
"""

from __future__ import annotations

import os
import sys

import recommender.cli.recommender  # noqa: F401 - `main` would import it late, in each of them
from recommender import model as models
from recommender.cli.main import main
from recommender.engine.warm_up import warm_up


def tell(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def run() -> None:
    """Until the standard input ends."""
    warm_up(models.load(models.BUNDLED), 1.0, 4)
    tell("ready")
    for _ in sys.stdin:
        if (pid := os.fork()) == 0:
            main(sys.argv[1:])
        tell(str(pid))
        os.waitpid(pid, 0)


if __name__ == "__main__":
    run()
