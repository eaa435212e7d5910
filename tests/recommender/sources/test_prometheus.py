"""Saved query_range answers: recognised metrics, rates, joins and refusals."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from recommender.base.errors import BadInput
from recommender.sources.files import ReadOptions, SeriesSource, open_source
from recommender.sources.mapping import parse_map
from recommender.sources.prometheus import rate

START_S = 1_700_000_000
A = {"namespace": "ml", "pod": "train-1", "container": "main"}
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
REQUESTS = "kube_pod_container_resource_requests"


def series(
    labels: Mapping[str, str], values: Sequence[object], *, name: str = "", start_s: float = START_S, step_s: float = 15
) -> dict[str, Any]:
    metric = {"__name__": name, **labels} if name else dict(labels)
    return {"metric": metric, "values": [[start_s + at * step_s, str(value)] for at, value in enumerate(values)]}


def save(file: Path, result: object, kind: str = "matrix") -> Path:
    content = orjson.dumps({"status": "success", "data": {"resultType": kind, "result": result}})
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def read(folder: Path, *maps: str, features: tuple[str, ...] = ()) -> SeriesSource:
    return open_source([folder], ReadOptions(columns=tuple(map(parse_map, maps)), features=features))


def test_a_raw_counter_and_a_gauge_become_one_series(tmp_path: Path) -> None:
    """30 core-seconds in 15 s are 2 cores; a reset to 15 is one core; the first sample has no rate."""
    save(tmp_path / "c.json", [series(A, [0, 30, 15, 45], name=CPU)])
    save(tmp_path / "m.json.gz", [series(A, [1e8, 2e8, 3e8, 4e8], name=MEMORY)])
    source = read(tmp_path)
    (one,) = source
    assert (one.container, one.step_s) == ("ml/train-1/main", 15.0)
    assert one.timestamps.tolist() == [START_S + 15, START_S + 30, START_S + 45]
    np.testing.assert_allclose(one.usage, [[2, 2e8], [1, 3e8], [2, 4e8]])
    assert one.requests is None


def test_a_metric_without_a_name_is_recognised_by_its_file_and_nan_is_a_gap(tmp_path: Path) -> None:
    save(tmp_path / "cpu.json", [series(A, [0.5, "NaN", 0.7])])
    save(tmp_path / "Memory-week-1.json", [series(A, [1e8, 2e8, 3e8])])
    (one,) = read(tmp_path)
    np.testing.assert_array_equal(one.usage, [[0.5, 1e8], [np.nan, np.nan], [0.7, 3e8]])


def test_a_recording_rule_is_in_cores(tmp_path: Path) -> None:
    rule = f"node_namespace_pod_container:{CPU}:sum_irate"
    save(tmp_path / "all.json", [series(A, [0.5, 0.6], name=rule), series(A, [1e8, 2e8], name=MEMORY)])
    (one,) = read(tmp_path)
    np.testing.assert_array_equal(one.usage[:, 0], [0.5, 0.6])


def test_the_map_names_metrics_files_units_and_labels(tmp_path: Path) -> None:
    labels = {"job_id": "j7", "kubernetes_node": "n1"}
    save(tmp_path / "load.json", [series(labels, [500, 600])])
    save(tmp_path / "rest.json", [series(labels, [64, 65], name="rss:mib"), series(labels, [1, 2], name="gpu_util")])
    maps = ("cpu_cores=load:m", "memory_bytes=rss:mib:MiB", "container=job_id", "node=kubernetes_node")
    (one,) = read(tmp_path, *maps, features=("gpu_util",))
    assert (one.container, one.node) == ("j7", "n1")
    np.testing.assert_allclose(one.usage, [[0.5, 2.0**26], [0.6, 65 * 2.0**20]])
    np.testing.assert_array_equal(one.features["gpu_util"], [1, 2])


def test_requests_last_until_they_are_scraped_again(tmp_path: Path) -> None:
    save(tmp_path / "cpu.json", [series(A, [1] * 5)])
    save(tmp_path / "memory.json", [series(A, [1e8] * 5)])
    requests = [
        series(A | {"resource": "cpu", "unit": "core"}, [2, 4], name=REQUESTS, step_s=30),
        series(A | {"resource": "memory"}, [1e9, 2e9], name=REQUESTS, step_s=30),
        series(A | {"resource": "nvidia_com_gpu"}, [1, 1], name=REQUESTS, step_s=30),
    ]
    save(tmp_path / "requests.json", requests)
    (one,) = read(tmp_path)
    assert one.requests is not None
    np.testing.assert_array_equal(one.requests[:, 0], [2, 2, 4, 4, 4])
    np.testing.assert_array_equal(one.requests[:, 1], [1e9, 1e9, 2e9, 2e9, 2e9])


def test_pod_cgroups_and_pause_containers_are_left_out(tmp_path: Path) -> None:
    pod = {"namespace": "ml", "pod": "train-1"}
    others = [pod, pod | {"container": ""}, pod | {"container": "POD"}]
    for file, value in (("cpu.json", 1), ("memory.json", 1e8)):
        save(tmp_path / file, [series(labels, [value] * 3) for labels in (A, *others)])
    assert read(tmp_path).containers == ("ml/train-1/main",)


def test_sums_by_pod_are_named_by_pod(tmp_path: Path) -> None:
    for file, value in (("cpu.json", 1), ("memory.json", 1e8)):
        save(tmp_path / file, [series({"namespace": "ml", "pod": "train-1"}, [value] * 3)])
    assert read(tmp_path).containers == ("ml/train-1",)


def test_answers_with_shifted_timestamps_are_aligned(tmp_path: Path) -> None:
    save(tmp_path / "cpu.json", [series(A, [1, 2, 3, 4])])
    save(tmp_path / "memory.json", [series(A, [1e8, 2e8, 3e8, 4e8], start_s=START_S + 4)])
    (one,) = read(tmp_path)
    np.testing.assert_array_equal(one.usage, [[1, 1e8], [2, 2e8], [3, 3e8], [4, 4e8]])


def test_a_range_saved_in_parts_is_joined_before_the_rate(tmp_path: Path) -> None:
    save(tmp_path / "cpu-1.json", [series(A, [0, 15, 30], name=CPU)])
    save(tmp_path / "cpu-2.json", [series(A, [30, 60, 90], name=CPU, start_s=START_S + 30)])
    save(tmp_path / "memory.json", [series(A, [1e8] * 5, name=MEMORY)])
    (one,) = read(tmp_path)
    np.testing.assert_allclose(one.usage[:, 0], [1, 1, 2, 2])


def test_the_series_of_a_restarted_container_continues_the_old_one(tmp_path: Path) -> None:
    old, new = A | {"id": "/kubepods/1"}, A | {"id": "/kubepods/2"}
    save(tmp_path / "cpu.json", [series(old, [1] * 20), series(new, [2] * 20, start_s=START_S + 17 * 15)])
    save(tmp_path / "memory.json", [series(A, [1e8] * 37)])
    (one,) = read(tmp_path)
    np.testing.assert_array_equal(one.usage[:, 0], [1] * 17 + [2] * 20)


def test_missing_samples_of_a_counter_stay_a_gap() -> None:
    times_s, rates = rate(np.array([0.0, 15, 30, 90, 105]), np.array([0.0, 15, 30, 90, 120]))
    assert times_s.tolist() == [15, 30, 90, 105]
    np.testing.assert_array_equal(rates, [1, 1, np.nan, 2])


def good_memory(folder: Path) -> None:
    save(folder / "memory.json", [series(A, [1e8] * 3)])


def save_json(file: Path, content: object) -> None:
    file.write_bytes(orjson.dumps(content))


REFUSED: dict[str, tuple[Any, int | None, str | None, str, str]] = {
    "an infinite value": (
        lambda file: save(file, [series(A, [1, "+Inf", 1])]), 2, "values", "'+Inf' is not a finite", "division by zero"
    ),
    "text in a value": (
        lambda file: save(file, [series(A, [1, 1, "much"])]), 3, "values", "'much' is not a number", "query_range"
    ),
    "a negative value": (
        lambda file: save(file, [series(A, [-1, 1, 1])]), 1, "cpu_cores", "-1 is negative", "Correct the query"
    ),
    "an instant query": (
        lambda file: save(file, [{"metric": A, "value": [START_S, "1"]}], "vector"),
        None, "resultType", "the result is a vector", "query_range",
    ),
    "an error answer": (
        lambda file: save_json(file, {"status": "error", "errorType": "bad_data", "error": "parse error"}),
        None, None, "parse error", "Correct the query",
    ),
    "other JSON": (lambda file: save_json(file, {"status": 5}), None, None, "answered with an error", "Correct"),
    "a result without values": (
        lambda file: save(file, [{"metric": A}]), None, "values", "result 1 lacks metric or values", "query_range"
    ),
    "labels that are not an object": (
        lambda file: save(file, [{"metric": ["cpu"], "values": []}]),
        None, "values", "result 1 lacks metric", "query_range",
    ),
    "a truncated file": (
        lambda file: file.write_bytes(save(file, [series(A, [1] * 9)]).read_bytes()[:-30]),
        1, None, "not valid JSON", "truncated",
    ),
    "overlapping series": (
        lambda file: save(file, [series(A | {"cpu": "0"}, [1] * 9), series(A | {"cpu": "1"}, [2] * 9)]),
        1, "cpu_cores", "several overlapping series, different at 9 of 9", "sum by (namespace, pod, container)",
    ),
    "the same container measured by two Prometheus": (
        lambda file: save(file, [series(A | {"replica": "0"}, [1] * 9), series(A | {"replica": "1"}, [1.1] * 9)]),
        1, "cpu_cores", "several overlapping series, different at 9 of 9", "take the largest: `max by`",
    ),
    "no label with a name": (
        lambda file: save(file, [series({"instance": "x"}, [1] * 3)]), None, "container", "no label", "container=LABEL"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_unusable_answer_is_refused_with_place_and_remedy(tmp_path: Path, name: str) -> None:
    make, row, column, problem, remedy = REFUSED[name]
    good_memory(tmp_path)
    make(tmp_path / "cpu.json")
    with pytest.raises(BadInput) as caught:
        read(tmp_path)
    error = caught.value
    assert (Path(str(error.file)).name, error.row, error.column) == ("cpu.json", row, column)
    assert problem in error.problem
    assert remedy in error.remedy


def test_answers_with_different_values_for_one_time_are_refused(tmp_path: Path) -> None:
    good_memory(tmp_path)
    save(tmp_path / "cpu-1m.json", [series(A, [1, "NaN", 1])])
    save(tmp_path / "cpu-5m.json", [series(A, [1, 2, 3, 4])])
    with pytest.raises(BadInput, match=r"result 1: two different values for one time: 3 here, 1 in .*cpu-1m") as caught:
        read(tmp_path)
    error = caught.value
    assert (Path(str(error.file)).name, error.row, error.column) == ("cpu-5m.json", 3, "cpu_cores")


@pytest.mark.parametrize(("value", "problem"), [(-1, "-1 is negative"), (1e31, "larger than anything measured")])
def test_an_impossible_value_is_refused_with_the_answer_that_has_it(tmp_path: Path, value: float, problem: str) -> None:
    """Of a range that is saved in two parts, the second one."""
    good_memory(tmp_path)
    save(tmp_path / "cpu-1.json", [series(A, [1, 1])])
    save(tmp_path / "cpu-2.json", [series(A, [1, value], start_s=START_S + 30)])
    with pytest.raises(BadInput, match=problem) as caught:
        read(tmp_path)
    assert (Path(str(caught.value.file)).name, caught.value.row) == ("cpu-2.json", 2)


def test_what_only_the_joined_answers_show_is_refused_with_their_folder(tmp_path: Path) -> None:
    others = {**A, "pod": "train-2"}
    save(tmp_path / "cpu.json", [series(labels, [1, 1, 1, 1]) for labels in (A, others)])
    save(tmp_path / "memory.json", [series(A, [1e9, 2e9, 3e9, 4e9]), series(others, [1000, 2000, 3000, 4000])])
    with pytest.raises(BadInput, match="mixed units: container 'ml/train-2/main'") as caught:
        list(read(tmp_path))
    assert caught.value.file == tmp_path


def test_a_loss_may_be_negative_as_in_files(tmp_path: Path) -> None:
    good_memory(tmp_path)
    save(tmp_path / "cpu.json", [series(A, [1, 1])])
    save(tmp_path / "loss.json", [series(A, [0.5, -0.5], name="loss")])
    (one,) = read(tmp_path, features=("loss",))
    np.testing.assert_array_equal(one.features["loss"], [0.5, -0.5])


@pytest.mark.parametrize("name", ["cpu_limits", "cpu-quota", "CPU_throttled"])
def test_limits_and_throttling_are_not_taken_for_usage(tmp_path: Path, name: str) -> None:
    good_memory(tmp_path)
    save(tmp_path / "cpu.json", [series(A, [1, 2])])
    save(tmp_path / f"{name}.json", [series(A, [8, 8, 8])])
    (one,) = read(tmp_path)
    np.testing.assert_array_equal(one.usage[:, 0], [1, 2])


def test_without_cpu_usage_the_available_metrics_are_listed(tmp_path: Path) -> None:
    save(tmp_path / "rest.json", [series(A, [1], name="up"), series(A, [1], name=MEMORY)])
    with pytest.raises(
        BadInput, match=rf"no series was recognised as cpu_cores; metrics here: {MEMORY}, up.*--map cpu_cores="
    ):
        read(tmp_path)


def test_answers_without_series_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "cpu.json", [])
    save(tmp_path / "memory.json", [])
    with pytest.raises(BadInput, match=r"no series was recognised as cpu_cores.*none with a name"):
        read(tmp_path)
