"""`--map`: what is read, and what is refused."""

from __future__ import annotations

import pytest

from recommender.base.errors import Misuse
from recommender.sources.mapping import ColumnMap, parse_map


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu_cores=cpu.usage.cores", ColumnMap("cpu_cores", "cpu.usage.cores")),
        ("memory_bytes=mem:MiB", ColumnMap("memory_bytes", "mem", 2.0**20, "MiB")),
        ("node_memory_bytes=free:GiB", ColumnMap("node_memory_bytes", "free", 2.0**30, "GiB")),
        ("cpu_limit_cores=limit:m", ColumnMap("cpu_limit_cores", "limit", 1e-3, "m")),
        ("timestamp=time:ms", ColumnMap("timestamp", "time", 1e-3, "ms")),
        ("cpu_cores = load : percent", ColumnMap("cpu_cores", "load", 0.01, "percent")),
        ("cpu_cores=ns:cpu:rate5m:", ColumnMap("cpu_cores", "ns:cpu:rate5m")),
        ("cpu_cores=ns:cpu:rate5m:m", ColumnMap("cpu_cores", "ns:cpu:rate5m", 1e-3, "m")),
        ("anything=a=b", ColumnMap("anything", "a=b")),
    ],
)
def test_a_mapping_has_a_new_name_an_old_name_and_a_unit(text: str, expected: ColumnMap) -> None:
    assert parse_map(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory_bytes=mem:MiBs", "'MiBs' is not a unit of memory_bytes. Known: B, bytes, kB"),
        ("cpu_cores=cpu:ms", "Known: cores, m, millicores, n, nanocores, percent"),
        ("timestamp=time:h", "Known: s, ms, us, ns"),
        ("container=pod:MiB", "column 'container' has no unit"),
        ("cpu_cores", "Write `--map new=old`"),
        ("=cpu", "Write `--map new=old`"),
        ("cpu_cores=", "Write `--map new=old`"),
        ("cpu_cores=:m", "Write `--map new=old`"),
    ],
)
def test_an_invalid_mapping_is_refused_with_a_remedy(text: str, message: str) -> None:
    with pytest.raises(Misuse) as caught:
        parse_map(text)
    assert message in str(caught.value)
