"""The memory that reading takes, and sources larger than it, which are sorted on disk."""

from __future__ import annotations

import errno
import tempfile
from functools import partial
from pathlib import Path

import pytest

from recommender.base.errors import PhasewiseError
from recommender.sources import spill
from recommender.sources.base import Origins
from recommender.sources.columns import resolve
from recommender.sources.delimited import open_csv
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import parse_map
from recommender.sources.parquet import open_parquet
from tests.recommender.sources.writing import HEADER, csv_text, plain_rows, write, write_parquet


def test_available_memory_is_less_than_total_memory() -> None:
    total_kib = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    assert 0 < spill.available_memory_bytes() < total_kib * 1024


def test_columns_in_our_units_are_read_without_a_copy(tmp_path: Path) -> None:
    columns = {"timestamp": [1.0, 2.0], "container": ["a", "a"], "cpu_cores": [0.5, 0.75], "memory_bytes": [2.0, 3.0]}
    file = write_parquet(tmp_path / "use.parquet", columns)
    options = ReadOptions(columns=(parse_map("memory_bytes=memory_bytes:MiB"),))
    (rows,) = open_parquet(file, partial(resolve, options)).samples(Origins([file], [0]), False)
    arrays = {"time": rows.times_s, **rows.values}
    assert [name for name, array in arrays.items() if array.flags.owndata] == ["memory_bytes"]


def test_a_feature_may_have_the_name_of_an_internal_column(tmp_path: Path) -> None:
    rows = [[*row, at, at * 2] for at, row in enumerate(plain_rows())]
    file = write(tmp_path / "use.csv", csv_text(rows, HEADER + ",row,time_s"))
    options = ReadOptions(features=("row", "time_s", "cpu_cores"))
    with open_source([file], options, memory_budget_bytes=0) as source:
        (series,) = source
    assert series.features["row"].tolist() == [0, 1, 2, 3, 4, 5]
    assert series.features["time_s"].tolist() == [0, 2, 4, 6, 8, 10]
    assert series.features["cpu_cores"].tolist() == series.usage[:, 0].tolist()


@pytest.mark.parametrize("rows", [100, 200_000], ids=["all of it read", "its beginning read"])
def test_a_gzipped_file_counts_as_much_as_its_text_however_well_it_is_compressed(rows: int, tmp_path: Path) -> None:
    """A fleet of idle containers: compressed to less than a hundredth."""
    text = f"{HEADER}\n" + "1700000000,idle-container-of-a-long-name,0.0,1048576\n" * rows
    plain, gzipped = write(tmp_path / "use.csv", text), write(tmp_path / "use.csv.gz", text)
    estimates = [open_csv(file, partial(resolve, ReadOptions())).estimated_bytes for file in (plain, gzipped)]
    assert estimates[1] == pytest.approx(estimates[0], rel=0.1)


def test_a_full_disk_is_reported_and_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> list[Path]:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spill, "_part", full)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    with pytest.raises(PhasewiseError, match=r"the disk is full.*TMPDIR"):
        open_source([write(tmp_path / "use.csv", csv_text(plain_rows()))], memory_budget_bytes=0)
    assert not list((tmp_path / "temporary").iterdir())
