"""Errors raised on purpose, with texts for users; errors of libraries are translated where they are first met."""

from __future__ import annotations

MAX_PROBLEM_CHARS = 600  # a problem may quote a cell, and a cell may be as long as its file


class PhasewiseError(Exception):
    """Base of everything raised on purpose; `exit_code` is the exit status of the command line."""

    exit_code = 1


class Misuse(PhasewiseError):
    """Wrong usage: an unknown policy, options that exclude each other."""

    exit_code = 2


class BadInput(PhasewiseError):
    """Data that cannot be used. The message always holds what is known of file, row and column, and a remedy.

    `problem`: one clause, whose middle is left out if it is very long. `remedy`: an imperative sentence.
    `row` counts data rows from 1, without the header.
    """

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        remedy: str,
        file: object = None,
        row: int | None = None,
        column: str | None = None,
    ) -> None:
        if len(problem) > MAX_PROBLEM_CHARS:
            half = MAX_PROBLEM_CHARS // 2
            problem = f"{problem[:half]} ... {problem[-half:]}"
        self.problem, self.remedy, self.file, self.row, self.column = problem, remedy, file, row, column
        place = (("{}", file), ("row {}", row), ("column {!r}", column))
        where = ", ".join(words.format(given) for words, given in place if given is not None)
        super().__init__(f"{where + ': ' if where else ''}{problem}. {remedy}")


class BadArtifact(PhasewiseError):
    """A model folder that is damaged, truncated, written by a newer version, or unfit for the data."""

    exit_code = 2


class NotEnoughData(PhasewiseError):
    """The input is valid but too small: no container is long enough, or there are fewer windows than phases."""

    exit_code = 2
