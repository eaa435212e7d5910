"""Exports of other tools are read as people have them: five messy ones, and what they are told where that fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recommender.base.errors import BadInput
from recommender.base.records import CPU, MEMORY
from recommender.sources.base import ReadOptions
from recommender.sources.files import open_source

MIB, GIB = 2.0**20, 2.0**30


def read(*files: Path) -> dict[str, np.ndarray]:
    """Usage by container."""
    with open_source(files, ReadOptions()) as source:
        return {one.container: one.usage for one in source}


def written(folder: Path, **files: str) -> list[Path]:
    paths = []
    for name, text in files.items():
        paths.append(folder / name.replace("__", "."))
        paths[-1].write_text(text)
    return paths


def test_two_wide_tables_of_grafana_are_joined(tmp_path: Path) -> None:
    """One panel of CPU and one of memory, with units, titles that are labels, and a hint for a spreadsheet."""
    pod = '"{namespace=""ml"", pod=""bert-0"", container=""main""}"'
    cpu = f'sep=,\n"Time",{pod},web\n2026-11-20 10:00:00,0.25,1.5\n2026-11-20 10:01:00,0.5,\n'
    memory = f'"Time",{pod},web\n2026-11-20 10:00:00,512 MiB,1.50 GiB\n2026-11-20 10:01:00,640 MiB,1.50 GiB\n'
    found = read(*written(tmp_path, cpu__csv=cpu, memory__csv=memory))
    assert found["ml/bert-0/main"].tolist() == [[0.25, 512 * MIB], [0.5, 640 * MIB]]
    assert found["web"][0].tolist() == [1.5, 1.5 * GIB]
    assert np.isnan(found["web"][1:]).all()


def test_a_wide_table_that_does_not_tell_is_read_once_the_advice_is_followed(tmp_path: Path) -> None:
    tables = {
        "a__csv": "Time,web\n1700000000,0.5\n1700000060,0.6\n",
        "b__csv": "Time,web\n1700000000,1e9\n1700000060,1e9\n",
    }
    files = written(tmp_path, **tables)
    with pytest.raises(BadInput, match=r"Name one file cpu\.csv and the other memory\.csv"):
        read(*files)
    renamed = [files[0].rename(tmp_path / "cpu.csv"), files[1].rename(tmp_path / "memory.csv")]
    assert read(*renamed)["web"].tolist() == [[0.5, 1e9], [0.6, 1e9]]


TOP = """\
2026-11-20T10:00:00+00:00
POD                    NAME    CPU(cores)   MEMORY(bytes)
web-7d4b9c8f6d-x2x4z   app     250m         512Mi
bert-0                 main    2            3Gi
2026-11-20T10:00:15+00:00
POD                    NAME    CPU(cores)   MEMORY(bytes)
web-7d4b9c8f6d-x2x4z   app     300m         520Mi
"""


@pytest.mark.parametrize("dates", [None, ("Fri Nov 20 10:00:00 UTC 2026", "Fri Nov 20 10:00:15 UTC 2026")])
def test_a_loop_of_kubectl_top_is_read_with_the_times_between_its_tables(
    tmp_path: Path, dates: tuple[str, str] | None
) -> None:
    text = TOP
    for old, new in zip(("2026-11-20T10:00:00+00:00", "2026-11-20T10:00:15+00:00"), dates or (), strict=False):
        text = text.replace(old, new)
    found = read(*written(tmp_path, top__txt=text))
    assert found["web-7d4b9c8f6d-x2x4z/app"].tolist() == [[0.25, 512 * MIB], [0.3, 520 * MIB]]
    assert found["bert-0/main"].tolist() == [[2.0, 3 * GIB]]


def test_tables_of_kubectl_top_without_times_say_how_to_get_them(tmp_path: Path) -> None:
    text = "\n".join(line for line in TOP.splitlines() if not line.startswith("2026"))
    with pytest.raises(BadInput, match="date -Is"):
        read(*written(tmp_path, top__txt=text))


def test_datadog_has_a_row_for_each_metric_and_cpu_in_nanocores(tmp_path: Path) -> None:
    rows = [
        "timestamp,metric,group,value",
        '2026-11-20T10:00:00Z,kubernetes.cpu.usage.total,"kube_namespace:ml,pod_name:bert-0,kube_container_name:main",250000000',
        '2026-11-20T10:00:00Z,kubernetes.memory.working_set,"kube_namespace:ml,pod_name:bert-0,kube_container_name:main",1000000',
    ]
    assert read(*written(tmp_path, datadog__csv="\n".join(rows)))["ml/bert-0/main"].tolist() == [[0.25, 1e6]]


def test_container_insights_of_cloudwatch_are_in_millicores(tmp_path: Path) -> None:
    text = (
        "@timestamp,kubernetes.namespace_name,kubernetes.pod_name,kubernetes.container_name,"
        "container_cpu_usage_total,container_memory_working_set\n"
        "2026-11-20 10:00:00.000,ml,bert-0,main,250.5,1000000\n"
        "2026-11-20 10:01:00.000,ml,bert-0,main,300,2000000\n"
    )
    found = read(*written(tmp_path, insights__csv=text))["ml/bert-0/main"]
    assert found.tolist() == [[0.2505, 1e6], [0.3, 2e6]]


def test_semicolons_with_decimal_commas_and_quantities_are_read(tmp_path: Path) -> None:
    text = "timestamp;container;cpu_cores;memory_bytes\n1700000000;web;0,25;1,5Gi\n1700000060;web;250m;512Mi\n"
    found = read(*written(tmp_path, spreadsheet__csv=text))["web"]
    assert found[:, CPU].tolist() == [0.25, 0.25]
    assert found[:, MEMORY].tolist() == [1.5 * GIB, 512 * MIB]


@pytest.mark.parametrize(
    ("cell", "cores"), [("1 cores", 1.0), ("250m", 0.25), ("25%", 0.25), ("3e8n", 0.3), ("2", 2.0)]
)
def test_a_cell_may_have_its_own_unit(tmp_path: Path, cell: str, cores: float) -> None:
    text = f"timestamp,container,cpu_cores,memory_bytes\n1700000000,web,0.1,1e9\n1700000060,web,{cell},1e9\n"
    assert read(*written(tmp_path, own__csv=text))["web"][:, CPU].tolist() == pytest.approx([0.1, cores])


def test_an_unknown_unit_is_refused_with_row_and_column(tmp_path: Path) -> None:
    text = "timestamp,container,cpu_cores,memory_bytes\n1700000000,web,0.1,1e9\n1700000060,web,3 gigs,1e9\n"
    with pytest.raises(BadInput, match=r"row 2, column 'cpu_cores': '3 gigs' is not a number.*250m and 1.5Gi"):
        read(*written(tmp_path, own__csv=text))
