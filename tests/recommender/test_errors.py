"""A message names the place and the remedy, and the exit code follows the kind of error."""

import pytest

from recommender.errors import BadArtifact, BadInput, Misuse, NotEnoughData, PhasewiseError


def test_bad_input_names_file_row_column_and_remedy() -> None:
    error = BadInput("negative use", file="a.csv", row=7, column="cpu_cores", remedy="Remove the row.")
    assert str(error) == "a.csv, row 7, column 'cpu_cores': negative use. Remove the row."


def test_a_place_that_is_not_known_is_left_out() -> None:
    assert str(BadInput("no rows", remedy="Export again.")) == "no rows. Export again."


@pytest.mark.parametrize(
    ("kind", "code"), [(PhasewiseError, 1), (Misuse, 2), (BadArtifact, 2), (NotEnoughData, 2)], ids=str
)
def test_each_kind_ends_with_its_exit_code(kind: type[PhasewiseError], code: int) -> None:
    assert kind("x").exit_code == code
