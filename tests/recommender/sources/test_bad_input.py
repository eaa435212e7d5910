"""Input that cannot be used is refused with a message that names file, row, column and remedy."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recommender.base.errors import BadInput, Misuse
from recommender.sources.files import ReadOptions, open_source
from recommender.sources.mapping import parse_map
from recommender.sources.paths import find_files
from recommender.sources.prometheus import read_answer
from tests.recommender.sources.writing import HEADER, START_S, csv_text, plain_rows, write, write_parquet


def changed(row: int, column: int, value: object) -> str:
    """Six valid rows with one cell changed (rows are counted from 1)."""
    rows = plain_rows()
    rows[row - 1][column] = value
    return csv_text(rows)


@dataclass(frozen=True)
class Bad:
    """An unusable CSV file, and what the message must say."""

    text: str
    row: int | None
    column: str | None
    problem: str
    remedy: str
    options: ReadOptions = ReadOptions()  # noqa: RUF009


CASES = {
    "text in cpu": Bad(changed(3, 2, "much"), 3, "cpu_cores", "'much' is not a number", "plain numbers"),
    "a unit of memory after cpu": Bad(changed(2, 2, "5Mi"), 2, "cpu_cores", "'5Mi'", "--map cpu_cores=cpu_cores:UNIT"),
    "a unit of cpu after memory": Bad(changed(6, 3, "95 cores"), 6, "memory_bytes", "'95 cores'", ":UNIT"),
    "an unknown unit in a column of another name": Bad(
        csv_text([[START_S, "a", "500q", 1e8]], HEADER.replace("cpu_cores", "usage")), 1, "usage", "'500q'",
        "`--map cpu_cores=usage:UNIT`", ReadOptions(columns=(parse_map("cpu_cores=usage"),)),
    ),
    "text in a request": Bad(
        csv_text([[*row, "lots"] for row in plain_rows()], HEADER + ",cpu_request_cores"), 1, "cpu_request_cores",
        "'lots'", "plain numbers",
    ),
    "text in a feature": Bad(
        csv_text([[*row, "x" if at == 4 else 1] for at, row in enumerate(plain_rows())], HEADER + ",gpu"), 5, "gpu",
        "'x' is not a number", "plain numbers", ReadOptions(features=("gpu",)),
    ),
    "negative cpu": Bad(changed(4, 2, -0.1), 4, "cpu_cores", "-0.1 is negative", "Leave the cell empty"),
    "negative memory": Bad(changed(4, 3, -1), 4, "memory_bytes", "-1 is negative", "Leave the cell empty"),
    "infinite cpu": Bad(changed(5, 2, "inf"), 5, "cpu_cores", "inf is not a finite number", "Leave the cell empty"),
    "infinite memory, with a sign": Bad(changed(5, 3, "+Inf"), 5, "memory_bytes", "finite", "Leave the cell empty"),
    "memory whose square overflows": Bad(
        changed(5, 3, "1e308"), 5, "memory_bytes", "1e+308 is larger than anything measured", "Leave the cell empty",
    ),
    "two cpu values for one time": Bad(
        csv_text([*plain_rows(), [START_S + 15, "a", 9.0, 100_004_096]]), 7, "cpu_cores",
        "two different values for one time: 9 here, 0.75 in row 2", "Keep one",
    ),
    "two memory values for one time": Bad(
        csv_text([[START_S, "a", 0.5, 1], *plain_rows()]), 2, "memory_bytes", "1e+08 here, 1 in row 1", "Keep one",
    ),
    "too few fields in the middle": Bad(
        csv_text([*plain_rows(2), [START_S + 99, "a"], *plain_rows(2, "b")]), 3, "cpu_cores",
        "2 fields under 4 columns", "Complete the row",
    ),
    "cut off in the last line": Bad(
        csv_text(plain_rows())[:-12], 6, "memory_bytes", "the last line is cut off", "copy it again",
    ),
    "cut off in the last number": Bad(
        csv_text(plain_rows())[:-4], 6, "memory_bytes", "the last line is cut off: it ends in 100020,", "copy it again",
    ),
    "digits of another script": Bad(changed(3, 2, "١"), 3, "cpu_cores", "'١' is not a number", "plain numbers"),
    "a surplus comma": Bad(
        csv_text([[*row, ""] for row in plain_rows(2)]), 1, "memory_bytes", "5 fields under 4", "surplus",
    ),
    "too many fields": Bad(
        csv_text([*plain_rows(3), [START_S + 99, "a", 1, 2, 3]]), 4, "memory_bytes", "5 fields under 4", "surplus",
    ),
    "too many fields at once": Bad(
        csv_text([[START_S + 99, "a", 1, 2, 3], *plain_rows(3)]), 1, "memory_bytes", "5 fields under 4", "surplus",
    ),
    "no rows": Bad(HEADER + "\n", 1, None, "no rows", "time range that has samples"),
    "a blank line first": Bad(
        f"\n{HEADER}\n", None, None, "first line is blank", "Begin the file with the column names",
    ),
    "an empty file": Bad("", None, None, "empty", "with a header line"),
    "a column twice": Bad("timestamp,container,cpu_cores,cpu_cores\n", None, "cpu_cores", "occurs twice", "Rename"),
    "a missing column": Bad(
        csv_text(plain_rows(), HEADER.replace("cpu_cores", "cpu.usage.cores")), None, "cpu_cores",
        "no column 'cpu_cores'", "`--map cpu_cores=COLUMN`. The closest name is 'cpu.usage.cores'",
    ),
    "a column per container": Bad(
        csv_text([[START_S, 0.5, 0.7]], "timestamp,job-a,job-b"), None, "job-a",
        "nothing tells whether 'job-a' is CPU or memory", "Name one file cpu.csv and the other memory.csv",
    ),
    "a missing mapped column": Bad(
        csv_text(plain_rows(), HEADER.replace("cpu_cores", "cpu")), None, "cpus", "no column 'cpus'",
        "`--map cpu_cores=cpus` names it. The closest name is 'cpu'",
        ReadOptions(columns=(parse_map("cpu_cores=cpus"),)),
    ),
    "a missing feature": Bad(
        csv_text([[*row, 1] for row in plain_rows()], HEADER + ",gpu_util"), None, "gpu.util", "no column 'gpu.util'",
        "The closest name is 'gpu_util'", ReadOptions(features=("gpu.util",)),
    ),
    "milliseconds as seconds": Bad(
        csv_text([[START_S * 1000 + 15_000 * at, "a", 1, 1] for at in range(3)]), 1, "timestamp", "after the year 2100",
        "`--map timestamp=timestamp:ms`",
    ),
    "nanoseconds as seconds": Bad(
        csv_text([[START_S * 10**9, "a", 1, 1]]), 1, "timestamp", "after the year 2100", "timestamp:ns`",
    ),
    "the end of a run in milliseconds": Bad(
        csv_text([[*row, (START_S + 90) * 1000] for row in plain_rows()], HEADER + ",finished_at"), 1, "finished_at",
        "after the year 2100", "`--map finished_at=finished_at:ms`",
    ),
    "a time before 1970": Bad(changed(2, 0, -5), 2, "timestamp", "before 1970", "unix seconds"),
    "no time": Bad(changed(2, 0, ""), 2, "timestamp", "not a time", "RFC 3339"),
    "an unreadable time": Bad(
        csv_text([["2024-05-01T12:00:00Z", "a", 1, 1], ["yesterday", "a", 1, 1]]), 2, "timestamp",
        "'yesterday' is not a time", "RFC 3339",
    ),
    "a date among unix seconds": Bad(
        changed(2, 0, "2024-05-01T12:00:00Z"), 2, "timestamp", "is not a number", "plain numbers",
    ),
    "unix seconds among dates": Bad(
        csv_text([["2024-05-01T12:00:00Z", "a", 1, 1], [START_S, "a", 1, 1]]), 1, "timestamp",
        "not a time like the others", "unix seconds",
    ),
    "an input without a size": Bad(
        csv_text([[*row, 40_000 * (at != 1)] for at, row in enumerate(plain_rows())], HEADER + ",input_size"), 2,
        "input_size", "0 is not a size", "Leave the cell empty",
    ),
    "cpu and memory at different times": Bad(
        csv_text([[START_S + at, "a", *((1, "") if at % 15 else ("", 1e9))] for at in range(0, 90, 5) if at % 15 < 10]),
        None, None, "no sample has both CPU and memory", "rows of the same time",
    ),
    "no container name": Bad(changed(2, 1, ""), 2, "container", "without a name", "Fill the cell"),
    "a step finer than the data": Bad(
        csv_text(plain_rows()), None, "timestamp", "--step 5s is finer", "useful step is 15s", ReadOptions(step_s=5.0),
    ),
    "a time decades away": Bad(
        csv_text([[0, "a", 1, 1], *plain_rows()]), None, "timestamp", "there are none between 0 and", "Correct",
    ),
    "memory in MiB and in bytes": Bad(
        csv_text([*plain_rows(), *([START_S + 15 * at, "b", 0.5, 95.5 + at] for at in range(4))]), 7, "memory_bytes",
        "mixed units: container 'b' has values from 95.5 to 98.5", "memory_bytes:MiB`",
    ),
    "memory in MiB and in bytes in a column of another name": Bad(
        csv_text(
            [*plain_rows(), *([START_S + 15 * at, "b", 0.5, 95.5 + at] for at in range(4))],
            HEADER.replace("memory_bytes", "rss"),
        ), 7, "rss", "mixed units", "`--map memory_bytes=rss:MiB`",
        ReadOptions(columns=(parse_map("memory_bytes=rss"),)),
    ),
    "memory in GiB and in bytes": Bad(
        csv_text([*plain_rows(), *([START_S + 15 * at, "b", 0.5, 0.11 + at / 100] for at in range(4))]), 7,
        "memory_bytes", "mixed units", "memory_bytes:GiB`",
    ),
    "memory in MiB and bytes in one container": Bad(
        csv_text([*plain_rows(), *([START_S + 900 + 15 * at, "a", 0.5, 95.5 + at] for at in range(4))]), 7,
        "memory_bytes", "others of the same container", "convert them",
    ),
    "a counter of cpu seconds beside a rate": Bad(
        csv_text([*plain_rows(), *([START_S + 15 * at, "b", 5000.5 + at, 1e8] for at in range(4))]), 7, "cpu_cores",
        "mixed units: container 'b' has values from 5000.5 to 5003.5",
        "if it counts CPU seconds, as container_cpu_usage_seconds_total does, export its rate",
    ),
    "cpu in millicores and in cores": Bad(
        csv_text([*plain_rows(), *([START_S + 15 * at, "b", 500 + at, 1e8] for at in range(4))]), 7, "cpu_cores",
        "mixed units: container 'b' has values from 500 to 503", "cpu_cores:m`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("suffix", "budget_bytes"), [(".csv", None), (".csv.gz", 0)], ids=["in memory", "on disk"])
def test_the_message_names_file_row_column_and_remedy(
    tmp_path: Path, name: str, suffix: str, budget_bytes: int | None
) -> None:
    case = CASES[name]
    file = write(tmp_path / f"use{suffix}", case.text)
    with pytest.raises(BadInput) as caught:
        open_source([file], case.options, memory_budget_bytes=budget_bytes)
    error = caught.value
    assert (error.exit_code, Path(str(error.file)), error.row, error.column) == (2, file, case.row, case.column)
    assert case.problem in error.problem
    assert case.remedy in error.remedy
    assert str(file) in str(error) and error.remedy in str(error)


def test_of_several_files_the_faulty_one_is_named(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", csv_text(plain_rows(4, "a")))
    write(tmp_path / "2.csv", csv_text(plain_rows(4, "b")))
    write(tmp_path / "3.csv", csv_text([*plain_rows(1, "c"), [START_S + 15, "b", 0.75, 7]]))
    with pytest.raises(BadInput) as caught:
        open_source([tmp_path])
    assert (Path(str(caught.value.file)), caught.value.row) == (tmp_path / "3.csv", 2)
    assert f"{tmp_path / '2.csv'}, row 2" in caught.value.problem


def cut_gzip(folder: Path) -> Path:
    content = gzip.compress(csv_text([[START_S + at, f"c{at * 7919 % 1000}", at, at] for at in range(5000)]).encode())
    (folder / "cut.csv.gz").write_bytes(content[: len(content) // 2])
    return folder / "cut.csv.gz"


def cut_parquet(folder: Path) -> Path:
    file = write_parquet(folder / "cut.parquet", {"timestamp": [1], "container": ["a"]})
    file.write_bytes(file.read_bytes()[:-8])
    return file


def damaged_name_in_parquet(folder: Path) -> Path:
    columns = {"timestamp": [1], "container": ["a"], "cpu_cores": [1.0], "memory_bytes": [1.0]}
    file = write_parquet(folder / "use.parquet", columns)
    file.write_bytes(file.read_bytes().replace(b"cpu_cores", b"cpu_c\xffres"))
    return file


def null_name(folder: Path) -> Path:
    columns = {"timestamp": [1, 2], "cpu_cores": [1.0, 1.0], "memory_bytes": [1.0, 1.0]}
    return write_parquet(folder / "use.parquet", columns | {"container": pa.array(["a", None])})


def latin(folder: Path) -> Path:
    return write(folder / "use.csv", csv_text(plain_rows(3, "Müller")), encoding="latin-1")


def utf16(folder: Path) -> Path:
    return write(folder / "use.csv", csv_text(plain_rows(3)), encoding="utf-16")


def image(folder: Path) -> Path:
    (folder / "use.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    return folder / "use.png"


def empty_folder(folder: Path) -> Path:
    (folder / "exports").mkdir()
    (folder / "exports" / "notes.txt").write_text("nothing here")
    return folder / "exports"


def foreign_json(folder: Path) -> Path:
    return write(folder / "use.json", '{"metrics": []}')


@pytest.mark.parametrize(
    ("make", "problem", "remedy"),
    [
        (cut_gzip, "truncated or damaged", "copy it again"),
        (cut_parquet, "not a valid Parquet file", "truncated or damaged"),
        (damaged_name_in_parquet, "not a valid Parquet file", "truncated or damaged"),
        (null_name, "a row without a name", "Fill the cell"),
        (latin, "not UTF-8", "Save it as UTF-8"),
        (utf16, "not UTF-8", "Save it as UTF-8"),
        (image, "neither CSV nor Parquet", "Export"),
        (foreign_json, "neither CSV nor Parquet", "Export"),
        (empty_folder, "no file that ends in .csv", "Name the folder that holds the export"),
        (lambda folder: folder / "missing.csv", "no such file", "Check the path"),
        (lambda folder: folder / "no" / "missing.csv", "no such file", "no folder"),
        (lambda folder: folder / "*.parquet", "no file matches", "Check the path"),
    ],
    ids=[
        "gzip cut off",
        "Parquet without footer",
        "a damaged column name in Parquet",
        "a null container",
        "Latin-1",
        "UTF-16",
        "an image",
        "other JSON",
        "empty folder",
        "missing file",
        "missing folder",
        "glob without match",
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, make: Callable[[Path], Path], problem: str, remedy: str
) -> None:
    file = make(tmp_path)
    with pytest.raises(BadInput) as caught:
        open_source([file])
    assert Path(str(caught.value.file)) == file
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy


def test_the_remedy_for_a_missing_file_lists_twelve_files_of_the_folder_and_counts_the_others(tmp_path: Path) -> None:
    write(tmp_path / "use.csv", csv_text(plain_rows()))
    with pytest.raises(BadInput, match=r"That folder has: use\.csv\."):
        open_source([tmp_path / "used.csv"])
    for number in range(14):
        (tmp_path / f"{number:02}.csv").touch()
    with pytest.raises(BadInput, match=r"That folder has: 00\.csv, .*, 11\.csv and 3 more\."):
        open_source([tmp_path / "used.csv"])


def test_a_file_without_read_permission_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "use.csv", csv_text(plain_rows()))
    file.chmod(0)
    as_root = os.geteuid() == 0
    if as_root:
        os.seteuid(65534)
    try:
        with pytest.raises(BadInput, match=r"no permission.*chmod \+r"):
            open_source([file])
    finally:
        if as_root:
            os.seteuid(0)


def test_a_step_below_a_second_is_misuse(tmp_path: Path) -> None:
    file = write(tmp_path / "use.csv", csv_text(plain_rows()))
    with pytest.raises(Misuse, match="500ms is finer than timestamps"):
        open_source([file], ReadOptions(step_s=0.5))


@pytest.mark.parametrize(
    ("column", "values", "row", "problem"),
    [
        ("cpu_cores", ["1", "many"], 2, "'many' is not a number"),
        ("memory_bytes", ["1", "many"], 2, "'many' is not a number"),
        ("cpu_cores", pa.array([[1], [2]]), 1, "list<"),
    ],
)
def test_a_parquet_column_of_another_type_is_refused_with_its_row(
    tmp_path: Path, column: str, values: object, row: int, problem: str
) -> None:
    columns = {"timestamp": [1, 2], "container": ["a", "a"], "cpu_cores": [1.0, 1.0], "memory_bytes": [1.0, 1.0]}
    file = write_parquet(tmp_path / "use.parquet", columns | {column: values})
    with pytest.raises(BadInput) as caught:
        open_source([file])
    assert (caught.value.row, caught.value.column) == (row, column)
    assert problem in caught.value.problem


def test_a_parquet_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    names = ["timestamp", "container", "cpu_cores", "memory_bytes", "cpu_cores"]
    pq.write_table(pa.table([[1], ["a"], [1.0], [1.0], [2.0]], names), tmp_path / "use.parquet")
    with pytest.raises(BadInput, match=r"the column name 'cpu_cores' occurs twice\. Rename one"):
        open_source([tmp_path / "use.parquet"])


@pytest.mark.parametrize("column", ["container", "workload"])
@pytest.mark.parametrize("values", [[b"\xff", b"\xfe"], [["a"], ["a"]], [{"a": 1}, {"a": 2}]])
def test_a_parquet_name_or_label_that_is_no_text_is_refused(tmp_path: Path, column: str, values: list[object]) -> None:
    columns = {"timestamp": [1, 2], "container": ["a", "a"], "cpu_cores": [1.0, 1.0], "memory_bytes": [1.0, 1.0]}
    file = write_parquet(tmp_path / "use.parquet", columns | {column: values})
    with pytest.raises(BadInput, match="is not text") as caught:
        open_source([file])
    assert (caught.value.file, caught.value.column) == (file, column)


@pytest.mark.parametrize("column", ["timestamp", "container", "cpu_cores", "workload"])
@pytest.mark.parametrize("budget_bytes", [None, 1])
def test_parquet_text_that_is_not_utf8_is_refused_with_its_row(
    tmp_path: Path, column: str, budget_bytes: int | None
) -> None:
    columns = {"timestamp": ["1", "2"], "container": ["a", "a"], "cpu_cores": ["1", "1"], "memory_bytes": ["1", "1"]}
    cells = pa.array([b"1", b"\xff"])
    not_utf8 = pa.StringArray.from_buffers(len(cells), *cells.buffers()[1:])
    file = write_parquet(tmp_path / "use.parquet", columns | {column: not_utf8})
    with pytest.raises(BadInput, match="not UTF-8 text") as caught:
        open_source([file], memory_budget_bytes=budget_bytes)
    assert (caught.value.file, caught.value.row, caught.value.column) == (file, 2, column)


def test_folders_that_link_to_one_another_are_read_once(tmp_path: Path) -> None:
    write(tmp_path / "use.csv", csv_text(plain_rows()))
    for name in ("again", "once-more"):
        (tmp_path / name).symlink_to(tmp_path)
    files, _ = find_files([tmp_path])
    assert list(files) == [tmp_path / "use.csv"]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_whose_name_is_not_utf8_is_refused(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"caf\udce9{suffix}"
    file.write_text("timestamp,container,cpu_cores,memory_bytes\n0,a,1,1\n")
    with pytest.raises(BadInput, match="its name is not UTF-8"):
        open_source([file])


@pytest.mark.parametrize("values", [[[0, "1"], [None, "1"]], [[[0], "1"]]], ids=["null", "list"])
def test_a_time_in_a_saved_answer_that_is_no_number_is_refused(tmp_path: Path, values: list[object]) -> None:
    series = {"metric": {"container": "a"}, "values": values}
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}))
    with pytest.raises(BadInput, match="a sample is not a pair of time and value"):
        list(read_answer(file))


def test_a_null_sample_in_a_saved_answer_is_a_gap(tmp_path: Path) -> None:
    series = {"metric": {"container": "a"}, "values": [[0, "1"], [15, None], [30, "NaN"]]}
    file = tmp_path / "answer.json"
    file.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": [series]}}))
    assert [np.isnan(one.values).tolist() for one in read_answer(file)] == [[False, True, True]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_unit_for_timestamps_that_are_times_already_is_refused(tmp_path: Path, suffix: str) -> None:
    times = ["2024-05-01T12:00:00Z", "2024-05-01T12:00:15Z"]
    if suffix == ".csv":
        file = write(tmp_path / "use.csv", csv_text([[time, "a", 1, 1] for time in times]))
    else:
        stamps = pa.array([START_S, START_S + 15]).cast(pa.timestamp("s"))
        columns = {"timestamp": stamps, "container": ["a"] * 2, "cpu_cores": [1.0] * 2, "memory_bytes": [1.0] * 2}
        file = write_parquet(tmp_path / "use.parquet", columns)
    with pytest.raises(BadInput, match=r"is a time already.*Leave out the unit in") as caught:
        open_source([file], ReadOptions(columns=(parse_map("timestamp=timestamp:ms"),)))
    assert (caught.value.row, caught.value.column) == (1, "timestamp")
