"""Our error tree. Callers catch these; the errors of the libraries below are translated where they enter.

PhasewiseError                      anything we raise on purpose; its text is fit for a user
├── Misuse                          options that do not fit together, an unknown name          exit code 2
├── BadInput                        a file, row or column that cannot be used; names the place exit code 2
├── BadArtifact                     a model that is damaged, truncated, newer or unfitting     exit code 2
└── NotEnoughData                   sound input, but too little of it for what was asked       exit code 2
"""

from __future__ import annotations


class PhasewiseError(Exception):
    """Base of everything we raise on purpose. `exit_code` is what the command line ends with."""

    exit_code = 1


class Misuse(PhasewiseError):
    """The caller's words are off: an unknown policy, options that exclude each other."""

    exit_code = 2


class BadInput(PhasewiseError):
    """Data that cannot be used. The message is built so that file, row, column and remedy are never forgotten.

    Parameters
    ----------
    problem
        What is wrong, in one clause.
    remedy
        What the reader can do about it, as an imperative sentence.
    file, row, column
        Where; `row` counts data rows from 1 below the header, as an editor without the header line would.
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
        self.problem, self.remedy, self.file, self.row, self.column = problem, remedy, file, row, column
        place = [str(file)] if file is not None else []
        if row is not None:
            place.append(f"row {row}")
        if column is not None:
            place.append(f"column {column!r}")
        where = ", ".join(place)
        super().__init__(f"{where + ': ' if where else ''}{problem}. {remedy}")


class BadArtifact(PhasewiseError):
    """A model folder that is damaged, truncated, written by a newer version, or does not fit the data."""

    exit_code = 2


class NotEnoughData(PhasewiseError):
    """The input is sound but too small: no container long enough, fewer windows than phases."""

    exit_code = 2
