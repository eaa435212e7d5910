"""Error messages name the place and the remedy; each kind of error has its exit code."""

import pytest

from recommender.base.errors import BadArtifact, BadInput, Misuse, NotEnoughData, PhasewiseError


def test_bad_input_names_file_row_column_and_remedy() -> None:
    error = BadInput("negative use", file="a.csv", row=7, column="cpu_cores", remedy="Remove the row.")
    assert str(error) == "a.csv, row 7, column 'cpu_cores': negative use. Remove the row."


def test_an_unknown_place_is_left_out_of_the_message() -> None:
    assert str(BadInput("no rows", remedy="Export again.")) == "no rows. Export again."


def test_a_cell_as_long_as_a_file_is_quoted_in_part() -> None:
    error = BadInput(f"{'x' * 1_000_000!r} is not a number", remedy="Write plain numbers.", file="a.csv", row=7)
    assert str(error).startswith("a.csv, row 7: 'xxx")
    assert str(error).endswith("xxx' is not a number. Write plain numbers.")
    assert len(str(error)) < 1000


@pytest.mark.parametrize(
    ("kind", "code"), [(PhasewiseError, 1), (Misuse, 2), (BadArtifact, 2), (NotEnoughData, 2)], ids=str
)
def test_each_kind_of_error_has_its_exit_code(kind: type[PhasewiseError], code: int) -> None:
    assert kind("x").exit_code == code
