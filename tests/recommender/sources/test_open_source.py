"""Recorded metrics give the same series in every format and order of rows; what is noted about them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.base.errors import BadInput, Misuse
from recommender.sources.files import ReadOptions, SeriesSource, open_source
from recommender.sources.mapping import parse_map
from tests.recommender.sources.writing import (
    HEADER,
    START_S,
    assert_same_series,
    csv_text,
    plain_rows,
    write,
    write_parquet,
)

Row = list[object]


def test_a_small_file_is_read(tmp_path: Path) -> None:
    """Rows out of order, a gap of one sample in b, an empty cell in a, with requests and labels."""
    text = csv_text(
        [
            [START_S + 30, "b", 3, 300, "n1", "etl", 4, ""],
            [START_S, "b", 1, 100, "n1", "etl", 4, ""],
            [START_S + 15, "a", "", 20, "n2", "", 2, 1000],
            [START_S, "a", 0.5, 10, "n2", "", 2, 1000],
            [START_S + 60, "b", 5, 500, "n1", "etl", 4, ""],
            [START_S + 30, "a", 0.7, 30, "n2", "", 2, 2000],
            [START_S + 15, "b", 2, 200, "n1", "etl", 4, ""],
        ],
        HEADER + ",node,workload,cpu_request_cores,memory_request_bytes",
    )
    with open_source([write(tmp_path / "use.csv", text)]) as source:
        a, b = source
        assert (source.containers, source.step_s, len(source)) == (("a", "b"), 15.0, 2)
    assert (a.node, a.workload, b.node, b.workload) == ("n2", None, "n1", "etl")
    assert b.timestamps.tolist() == [START_S + 15 * at for at in range(5)]
    np.testing.assert_array_equal(b.usage[:, 0], [1, 2, 3, np.nan, 5])
    np.testing.assert_array_equal(a.usage, [[0.5, 10], [np.nan, np.nan], [0.7, 30]])
    assert a.requests is not None and b.requests is not None
    np.testing.assert_array_equal(a.requests, [[2, 1000], [2, 1000], [2, 2000]])
    np.testing.assert_array_equal(b.requests[:, 0], [4, 4, 4, np.nan, 4])
    assert np.isnan(b.requests[:, 1]).all()


def test_a_request_or_limit_of_zero_is_none_as_for_kubernetes(tmp_path: Path) -> None:
    rows: list[Row] = [[START_S + 15 * at, "a", 0.5, 10, 0, 1000 * at, 0, 0] for at in range(3)]
    header = HEADER + ",cpu_request_cores,memory_request_bytes,cpu_limit_cores,memory_limit_bytes"
    with open_source([write(tmp_path / "use.csv", csv_text(rows, header))]) as source:
        (series,) = source
    np.testing.assert_array_equal(series.requests, [[np.nan, np.nan], [np.nan, 1000], [np.nan, 2000]])
    np.testing.assert_array_equal(series.facts.limits, [np.inf, np.inf])


def test_overlapping_exports_may_know_different_facts_of_a_run(tmp_path: Path) -> None:
    """The second one, made later, knows of another OOM kill, a larger limit, and the end."""
    header = HEADER + ",memory_limit_bytes,oom_killed_at,exit_code"
    earlier: list[Row] = [[START_S + 15 * at, "a", 0.5, 10, 1000, START_S, 137] for at in range(4)]
    later: list[Row] = [[START_S + 15 * at, "a", 0.5, 10, 2000, START_S + 45, 0] for at in range(2, 6)]
    files = [write(tmp_path / f"{name}.csv", csv_text(rows, header)) for name, rows in (("1", earlier), ("2", later))]
    for order in (files, files[::-1]):
        with open_source(order) as source:
            (series,) = source
        assert len(series) == 6
        facts = series.facts
        assert (facts.limits[1], facts.oom_killed_s, facts.exit_code) == (2000, START_S + 45, 0)


def table_of(rows: Sequence[Row]) -> dict[str, Any]:
    names = [*HEADER.split(","), "workload", "gpu"]
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    for name in ("cpu_cores", "memory_bytes", "gpu"):
        columns[name] = pa.array([None if cell == "" else cell for cell in columns[name]], pa.float64())
    return columns


@st.composite
def some_rows(draw: st.DrawFn) -> list[Row]:
    """Rows of a few containers, each time once, some cells empty."""
    rows: list[Row] = []
    cell = st.one_of(st.just(""), st.floats(0, 1e9).map(lambda value: round(value, 3)))
    for name in draw(st.sets(st.sampled_from(["a", "b/é", "c d", "z-1"]), min_size=1)):
        workload = draw(st.sampled_from(["", "etl", "train"]))
        for at in draw(st.sets(st.integers(0, 60), min_size=1, max_size=15)):
            memory = draw(st.floats(2e7, 1e11).map(lambda value: round(value, 3)))
            rows.append([START_S + 10 * at, name, round(draw(st.floats(0, 64)), 3), memory, workload, draw(cell)])
    return rows


OPTIONS = ReadOptions(features=("gpu",))
FULL_HEADER = HEADER + ",workload,gpu"


@pytest.mark.long
@settings(deadline=None, max_examples=15)
@given(rows=some_rows(), data=st.data())
def test_order_files_format_and_memory_change_nothing(rows: list[Row], data: Any) -> None:
    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        forms: dict[str, list[Path]] = {
            "plain": [write(folder / "use.csv", csv_text(rows, FULL_HEADER))],
            "shuffled": [write(folder / "shuffled.csv", csv_text(shuffled, FULL_HEADER))],
            "gzipped": [write(folder / "use.csv.gz", csv_text(rows, FULL_HEADER))],
            "parquet": [write_parquet(folder / "use.parquet", table_of(shuffled))],
            "split": [folder / "split"],
        }
        (folder / "split").mkdir()
        write(folder / "split" / "1.csv", csv_text(shuffled[:cut], FULL_HEADER))
        write_parquet(folder / "split" / "2.parquet", table_of(shuffled[cut:] or rows[:1]))
        expected = open_source(forms.pop("plain"), OPTIONS)
        for paths in forms.values():
            for budget_bytes in (None, 0):
                with open_source(paths, OPTIONS, memory_budget_bytes=budget_bytes) as source:
                    assert_same_series(list(source), list(expected))
                    assert (source.data_hash, source.step_s) == (expected.data_hash, expected.step_s)


def test_long_shuffled_series_are_sorted(tmp_path: Path) -> None:
    rows = [row for name in ("b", "a", "c") for row in plain_rows(300, name)]
    shuffled = [rows[at] for at in np.random.default_rng(0).permutation(len(rows)).tolist()]
    expected = open_source([write(tmp_path / "1.csv", csv_text(sorted(rows, key=lambda row: (row[1], row[0]))))])
    for budget_bytes in (None, 0):
        file = write(tmp_path / "2.csv", csv_text(shuffled))
        with open_source([file], memory_budget_bytes=budget_bytes) as source:
            assert_same_series(list(source), list(expected))
            assert source.data_hash == expected.data_hash


def test_a_changed_value_changes_the_hash(tmp_path: Path) -> None:
    one = open_source([write(tmp_path / "1.csv", csv_text(plain_rows()))])
    other = open_source([write(tmp_path / "2.csv", csv_text(plain_rows()).replace("0.75", "0.76"))])
    renamed = open_source([write(tmp_path / "3.csv", csv_text(plain_rows(container="b")))])
    assert len({one.data_hash, other.data_hash, renamed.data_hash}) == 3


def test_a_negative_zero_is_a_zero(tmp_path: Path) -> None:
    """Otherwise data that are equal would have another hash, and decisions of -0 cores."""
    negative, plain = (
        open_source([write(tmp_path / f"{zero}.csv", csv_text([[START_S, "a", zero, 1]]))]) for zero in ("-0.0", "0")
    )
    assert negative.data_hash == plain.data_hash
    assert not any(np.signbit(series.usage).any() for series in negative)


def test_csv_and_parquet_with_a_map_give_the_same_series(tmp_path: Path) -> None:
    """An index column without a name, foreign columns, and their names as features."""
    header = "timestamp,service,pod.id,cpu.usage.cores,mem.working.set"
    text = csv_text([[7, START_S, "s", "exec2", 1.5, 2**20], [8, START_S + 10, "s", "exec2", 2.5, 2**21]], header)
    maps = ("container=pod.id", "cpu_cores=cpu.usage.cores", "memory_bytes=mem.working.set:KiB")
    options = ReadOptions(columns=tuple(map(parse_map, maps)), features=("cpu.usage.cores", "mem.working.set"))
    source = open_source([write(tmp_path / "use.csv", text)], options)
    (series,) = source
    np.testing.assert_array_equal(series.usage, [[1.5, 2.0**30], [2.5, 2.0**31]])
    np.testing.assert_array_equal(series.features["mem.working.set"], [2.0**20, 2.0**21])
    assert series.container == "exec2"
    columns = {"timestamp": [START_S, START_S + 10], "pod.id": ["exec2"] * 2}
    columns |= {"cpu.usage.cores": [1.5, 2.5], "mem.working.set": [2**20, 2**21]}
    parquet = open_source([write_parquet(tmp_path / "use.parquet", columns)], options)
    assert_same_series(list(parquet), [series])


@pytest.mark.parametrize(
    ("mapped", "error", "message"),
    [
        ("cpu_cores=rate_5m", BadInput, "there is no column 'rate_5m'.*closest name is 'rate5m'"),
        ("workloads=job", Misuse, "'workloads' is neither a column.* workload"),
    ],
)
def test_a_map_without_effect_is_refused(tmp_path: Path, mapped: str, error: type[Exception], message: str) -> None:
    rows = [[*row, "nightly", 0.5] for row in plain_rows()]
    file = write(tmp_path / "use.csv", csv_text(rows, HEADER + ",job,rate5m"))
    with pytest.raises(error, match=message):
        open_source([file], ReadOptions(columns=(parse_map(mapped),)))


def test_a_map_may_apply_to_one_of_several_files(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", csv_text(plain_rows(container="a")))
    write(tmp_path / "2.csv", csv_text(plain_rows(container="b"), HEADER.replace("cpu_cores", "load")))
    a, b = open_source([tmp_path], ReadOptions(columns=(parse_map("cpu_cores=load"),)))
    np.testing.assert_array_equal(a.usage, b.usage)


@pytest.mark.parametrize("header", ["", '""'])
def test_an_index_column_with_an_empty_name_is_ignored(tmp_path: Path, header: str) -> None:
    rows = [[at, *row] for at, row in enumerate(plain_rows())]
    (series,) = open_source([write(tmp_path / "use.csv", csv_text(rows, f"{header},{HEADER}"))])
    assert len(series) == 6


def test_namespace_pod_and_container_make_the_name(tmp_path: Path) -> None:
    rows = [[START_S, "ml", f"train-{pod}", "main", 1, 2**30] for pod in (2, 1)]
    header = "timestamp,namespace,pod,container,cpu_cores,memory_bytes"
    source = open_source([write(tmp_path / "use.csv", csv_text(rows, header))])
    assert source.containers == ("ml/train-1/main", "ml/train-2/main")


@pytest.mark.parametrize(
    ("header", "maps", "containers"),
    [
        ("pod,container", (), ("train-1/main", "train-2/main")),
        ("pod,image", ("container=pod",), ("train-1", "train-2")),
        ("instance,container", ("pod=instance",), ("train-1/main", "train-2/main")),
    ],
)
def test_pods_without_a_namespace_are_told_apart(
    tmp_path: Path, header: str, maps: tuple[str, ...], containers: tuple[str, ...]
) -> None:
    rows = [[START_S + 15 * pod, f"train-{pod}", "main", 1, 2**30] for pod in (1, 2)]
    file = write(tmp_path / "use.csv", csv_text(rows, f"timestamp,{header},cpu_cores,memory_bytes"))
    assert open_source([file], ReadOptions(columns=tuple(map(parse_map, maps)))).containers == containers


REST = {"container": ["a"] * 2, "cpu_cores": [1] * 2, "memory_bytes": [1e9] * 2}
TIMESTAMPS: list[tuple[str, Any, str | None]] = [
    ("unix seconds as floats", [float(START_S), START_S + 15.0], None),
    ("RFC 3339", ["2023-11-14T22:13:20Z", "2023-11-14T22:13:35Z"], None),
    ("other zones and fractions", ["2023-11-14T23:13:20.000+01:00", "2023-11-14T22:13:35.000000000Z"], None),
    ("lower case and a blank", ["2023-11-14t22:13:20z", "2023-11-14 22:13:35Z"], None),
    ("no zone counts as UTC", ["2023-11-14 22:13:20", "2023-11-14 22:13:35"], None),
    ("milliseconds, mapped", [START_S * 1000, START_S * 1000 + 15000], "timestamp=timestamp:ms"),
    ("nanoseconds, mapped", [START_S * 10**9, (START_S + 15) * 10**9], "timestamp=timestamp:ns"),
]


@pytest.mark.parametrize(
    ("timestamps", "mapping"), [case[1:] for case in TIMESTAMPS], ids=[case[0] for case in TIMESTAMPS]
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_timestamps_may_have_several_formats(
    tmp_path: Path, timestamps: list[Any], mapping: str | None, suffix: str
) -> None:
    options = ReadOptions(columns=(parse_map(mapping),) if mapping else ())
    file = tmp_path / f"use{suffix}"
    if suffix == ".csv":
        write(file, csv_text([[timestamp, "a", 1, 1e9] for timestamp in timestamps]))
    else:
        write_parquet(file, {"timestamp": timestamps, **REST})
    (series,) = open_source([file], options)
    assert series.timestamps.tolist() == [START_S, START_S + 15]


@pytest.mark.parametrize(
    "timestamps",
    [
        pa.array([START_S, START_S + 15], pa.timestamp("s")),
        pa.array([START_S * 1000, (START_S + 15) * 1000], pa.timestamp("ms", "Europe/Berlin")),
        pa.array([START_S * 10**9 + 123_456_789, (START_S + 15) * 10**9 + 1], pa.timestamp("ns")),
    ],
    ids=lambda timestamps: str(timestamps.type),
)
def test_parquet_timestamps_may_have_any_unit_zone_and_fraction(tmp_path: Path, timestamps: pa.Array) -> None:
    (series,) = open_source([write_parquet(tmp_path / "use.parquet", {"timestamp": timestamps, **REST})])
    assert series.timestamps.tolist() == [START_S, START_S + 15]


def test_times_in_an_unnamed_index_of_pandas_can_be_mapped(tmp_path: Path) -> None:
    index = pd.DatetimeIndex(["2024-05-01T12:00:00", "2024-05-01T12:00:15"])
    frame = pd.DataFrame({"container": "a", "cpu_cores": 1.0, "memory_bytes": 1e9}, index)
    frame.to_parquet(tmp_path / "use.parquet")
    with pytest.raises(BadInput, match=r"no column .timestamp. among .*__index_level_0__"):
        open_source([tmp_path])
    (series,) = open_source([tmp_path], ReadOptions(columns=(parse_map("timestamp=__index_level_0__"),)))
    assert series.timestamps.tolist() == [1_714_564_800, 1_714_564_815]


def test_equal_rows_count_once_and_are_noted(tmp_path: Path) -> None:
    source = open_source([write(tmp_path / "use.csv", csv_text([*plain_rows(), *plain_rows(2)]))])
    (series,) = source
    assert len(series) == 6
    assert source.notes == ("2 rows with a repeated timestamp; each timestamp of a container counts once",)


@pytest.mark.parametrize("budget_bytes", [None, 0])
def test_containers_sampled_less_often_than_the_grid_are_noted(tmp_path: Path, budget_bytes: int | None) -> None:
    rows = [*plain_rows(20, "fast"), *plain_rows(5, "slow", 60)]
    file = write(tmp_path / "use.csv", csv_text(rows))
    with open_source([file], memory_budget_bytes=budget_bytes) as source:
        (note,) = source.notes
    assert "1 of 2 containers (slow)" in note and "`--step`" in note and "1m" in note
    assert open_source([file], ReadOptions(step_s=60.0)).notes == ()
    assert open_source([file], ReadOptions(step_s=0.0)).notes == ()


def test_cpu_and_memory_of_one_time_may_be_in_different_rows(tmp_path: Path) -> None:
    rows: list[Row] = [[START_S, "a", 1, ""], [START_S, "a", "", 2**30], [START_S + 15, "a", 2, 2**30]]
    (series,) = open_source([write(tmp_path / "use.csv", csv_text(rows))])
    np.testing.assert_array_equal(series.usage, [[1, 2**30], [2, 2**30]])


def test_samples_with_only_cpu_or_memory_are_noted(tmp_path: Path) -> None:
    rows: list[Row] = [[START_S + 15 * at, "a", 1, 2**30 if at % 4 == 0 else ""] for at in range(8)]
    (note,) = open_source([write(tmp_path / "use.csv", csv_text(rows))]).notes
    assert note.startswith("only one of CPU and memory, thus a gap: 6 samples")


def test_the_last_line_break_may_be_missing(tmp_path: Path) -> None:
    (series,) = open_source([write(tmp_path / "use.csv", csv_text(plain_rows()).rstrip())])
    assert len(series) == 6


def test_a_byte_order_mark_blank_lines_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    text = "\ufeff" + csv_text(plain_rows()).replace("\n", "\r\n") + "\r\n\r\n"
    (series,) = open_source([write(tmp_path / "use.csv", text)])
    assert len(series) == 6


def test_of_a_label_that_changes_the_most_common_value_is_used_and_noted(tmp_path: Path) -> None:
    rows = [[*row, "n2" if at == 1 else "n1"] for at, row in enumerate(plain_rows())]
    source = open_source([write(tmp_path / "use.csv", csv_text(rows, HEADER + ",node"))])
    (series,) = source
    assert series.node == "n1"
    assert source.notes == ("node changes within a container (a); the most common one is taken",)


def test_a_phase_column_is_read_like_any_other(tmp_path: Path) -> None:
    rows = [[*row, at % 2] for at, row in enumerate(plain_rows())]
    file = write(tmp_path / "use.csv", csv_text(rows, HEADER + ",phase"))
    (without,) = open_source([file])
    (named,) = open_source([file], ReadOptions(features=("phase",)))
    assert without.features == {}
    np.testing.assert_array_equal(named.features["phase"], [0, 1, 0, 1, 0, 1])


def test_folders_and_globs_are_read_once_and_other_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    write(tmp_path / "1.csv", csv_text(plain_rows(2, "a")))
    write(tmp_path / "deep" / "2.csv.gz", csv_text(plain_rows(2, "b")))
    write(tmp_path / "origin.json", '{"machine": "x"}')
    write(tmp_path / "README.md", "no metrics")
    write(tmp_path / ".hidden.csv", "no metrics")
    source = open_source([tmp_path, str(tmp_path / "*.csv"), tmp_path / "1.csv"])
    assert source.containers == ("a", "b")
    assert source.notes == (f"{tmp_path / 'origin.json'} was skipped: not an answer of the Prometheus API",)


def test_parts_of_an_unfinished_export_are_skipped_unless_named(tmp_path: Path) -> None:
    parts = tmp_path / "week.csv.parts"
    parts.mkdir()
    write(tmp_path / "1.csv", csv_text(plain_rows(2, "a")))
    write(parts / "000000.csv", csv_text(plain_rows(2, "b")))
    for place in (tmp_path, tmp_path / "*"):
        source = open_source([place])
        assert (source.containers, source.notes) == (
            ("a",),
            (f"{parts} was skipped: an unfinished export",),
        )
    assert open_source([parts]).containers == ("b",)


def test_a_file_without_rows_among_others_is_noted(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", csv_text(plain_rows(2, "a")))
    write(tmp_path / "2.csv", HEADER + "\n")
    assert open_source([tmp_path]).notes == (f"{tmp_path / '2.csv'} has no rows",)


def test_columns_of_a_parquet_file_without_rows_may_have_any_type(tmp_path: Path) -> None:
    write(tmp_path / "1.csv", csv_text(plain_rows(2, "a")))
    empty = dict.fromkeys(("timestamp", "container", "cpu_cores", "memory_bytes"), pa.array([], pa.list_(pa.int64())))
    write_parquet(tmp_path / "2.parquet", empty)
    assert open_source([tmp_path]).notes == (f"{tmp_path / '2.parquet'} has no rows",)


def test_values_that_look_like_another_unit_are_noted_but_accepted(tmp_path: Path) -> None:
    mib = open_source([write(tmp_path / "1.csv", csv_text([[START_S + at, "a", 0.5, 512 + at] for at in range(9)]))])
    milli = open_source([write(tmp_path / "2.csv", csv_text([[START_S + at, "a", 500 + at, 1e9] for at in range(9)]))])
    assert "memory_bytes=memory_bytes:MiB" in mib.notes[0]
    assert "cpu_cores=cpu_cores:m" in milli.notes[0]


def test_the_hint_at_another_unit_names_the_column_of_the_file_and_its_other_units(tmp_path: Path) -> None:
    rows: list[Row] = [[START_S + at, "a", 250_000_000 + at, 500_000 + at] for at in range(9)]
    file = write(tmp_path / "use.csv", csv_text(rows, "timestamp,container,usage,rss"))
    mapped = ReadOptions(columns=(parse_map("cpu_cores=usage"), parse_map("memory_bytes=rss")))
    memory, cpu = open_source([file], mapped).notes
    assert "memory_bytes=rss:MiB" in memory and "`:KiB`" in memory
    assert "cpu_cores=usage:m" in cpu and "`:n`" in cpu


def test_a_counter_in_place_of_cpu_is_noted(tmp_path: Path) -> None:
    """It starts anew once in each of two containers."""
    rows: list[Row] = [[START_S + 15 * at, name, 9.5 * (at % 40), 1e9] for name in ("a", "b") for at in range(60)]
    (note,) = open_source([write(tmp_path / "use.csv", csv_text(rows))]).notes
    assert "if it counts CPU seconds" in note


def plausible_sources() -> dict[str, list[Row]]:
    """Data that look odd but are correct."""
    rng = np.random.default_rng(5)
    rise = [[START_S + 15 * at, "a", 0.1, 10_000 * 2**at] for at in range(20)]
    start = [[START_S + 15 * at, "a", 0.1, 8192 * (at + 1) if at < 4 else 5e8 + at] for at in range(40)]
    sidecar = [[START_S + 15 * at, "tiny", 0.001, 300_000 + 4096 * at] for at in range(40)]
    large = [[START_S + 15 * at, "hpc", round(float(rng.uniform(80, 127)), 3), 9e11] for at in range(40)]
    idle = [[START_S + 15 * at, "idle", 0, 0] for at in range(40)]
    full = [[START_S + 15 * at, "full", 128, 9e11] for at in range(40)]
    mixed = [*plain_rows(), *sidecar, *large, *idle, *full]
    return {"a steep rise": rise, "a slow start": start, "small and large": mixed}


@pytest.mark.parametrize("name", plausible_sources())
def test_correct_data_give_no_note_about_units(tmp_path: Path, name: str) -> None:
    source = open_source([write(tmp_path / "use.csv", csv_text(plausible_sources()[name]))])
    assert source.notes == ()


def test_progress_reaches_its_total(tmp_path: Path) -> None:
    reports: list[tuple[str, int, int]] = []
    for at in range(3):
        write(tmp_path / f"{at}.csv", csv_text(plain_rows(5, f"c{at}")))
    open_source([tmp_path], progress=lambda *report: reports.append(report))
    assert reports == sorted(reports) and reports[-1] == ("reading (MiB)", 1, 1)


def test_temporary_files_are_removed_on_close_and_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    file = write(tmp_path / "use.csv", csv_text([*plain_rows(), *plain_rows(3, "b")]))
    source = open_source([file], memory_budget_bytes=0)
    assert list(temporary.iterdir()) and [len(series) for series in source] == [6, 3]
    source.close()
    assert not list(temporary.iterdir())

    def interrupt(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_source([file], memory_budget_bytes=0, progress=interrupt)
    assert not list(temporary.iterdir())


def test_samples_without_a_grid_have_no_step(tmp_path: Path) -> None:
    file = write(tmp_path / "use.csv", csv_text([*plain_rows(2), [START_S + 999, "a", 1, 2e8]]))
    source: SeriesSource = open_source([file], ReadOptions(step_s=0.0))
    (series,) = source
    assert (source.step_s, series.step_s, series.timestamps.tolist()) == (
        0.0,
        0.0,
        [START_S, START_S + 15, START_S + 999],
    )
