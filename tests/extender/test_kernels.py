"""The compiled passes over all nodes: each says what its slow twin says."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kernels import crowding, fullness, lines, lookup, points, scores, sums
from extender.placing.rehearsal import rehearse
from extender.protocol.host_lines import HostLines
from extender.settings import Limits, Settings
from extender.view.names import AsCame, NameTable
from tests.extender.worlds import World, class_json, node_json, pod_json
from tests.reference import extender_kernels as twins

LETTERS = st.text('ab-.é"\\\n', min_size=1, max_size=4)
KNOWN = st.lists(LETTERS, unique=True, min_size=1, max_size=12)


@given(KNOWN, st.lists(st.lists(LETTERS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_names_are_found_as_json_would_have_read_them(known: list[str], asked: list[list[str]]) -> None:
    """Again and again on one table, which remembers what followed what."""
    table = NameTable(known)
    for names in asked:
        told = json.dumps(names, separators=(",", ":"), ensure_ascii=False).encode()[1:-1]
        found, wanted = table.find(AsCame(told)), twins.places(told, known)
        if found is not None:
            assert found.tolist() == wanted
        else:
            plain = all(name.isascii() and not set(name) & set('"\\\n') for name in names)
            assert wanted is None or not plain, "only names that JSON writes otherwise may be left to others"


@given(KNOWN, st.binary(max_size=30) | st.text('"ab,\\ []', max_size=30).map(str.encode))
def test_whatever_is_told_either_is_names_or_is_left_to_others(known: list[str], told: bytes) -> None:
    found = NameTable(known).find(AsCame(told))
    if found is not None:
        assert found.tolist() == twins.places(told, known)


def test_names_are_found_in_any_order_and_a_name_that_begins_like_another_is_another() -> None:
    names = [f"node-{number}" for number in range(300)]
    table, chance = NameTable(names), np.random.default_rng(0)
    for _ in range(5):
        asked = chance.permutation(300)[:200]
        found = table.find(AsCame(",".join(f'"node-{number}"' for number in asked).encode()))
        assert found is not None
        assert found.tolist() == sorted(asked.tolist())
    for told in (b'"node-1', b'"node-"', b'"node-1"x', b'"node-1",', b'"node-1""node-2"', b"", b'"node-300"'):
        assert table.find(AsCame(told)) is None, told


def test_a_table_without_names_knows_none() -> None:
    assert NameTable([]).find(AsCame(b'"a"')) is None
    assert lookup.NOWHERE == -1


@pytest.mark.parametrize("case", range(4))
def test_peaks_means_and_worth_are_those_of_the_slow_twins(case: int) -> None:
    chance = np.random.default_rng(case)
    load = chance.random((2, 6, 9)).astype(np.float32)
    demand = chance.random((2, 6)).astype(np.float32)
    per_unit = np.where(chance.random((2, 9)) < 0.2, 0.0, chance.random((2, 9))).astype(np.float32)
    peaks, means = np.empty((2, 2, 9), dtype=np.float32)
    for cells in (1, 4, 6):
        fullness.shares(load, demand, per_unit, cells, peaks, means)
        assert peaks == pytest.approx(np.array(twins.highest(load, demand, per_unit, cells)), rel=1e-6)
        assert means == pytest.approx(np.array(twins.average(load, demand[:, :cells], per_unit)), rel=1e-5)
        shares = np.array(twins.highest(load, np.zeros_like(demand), per_unit, cells))
        for places in (np.arange(9), np.array([4, 7])):
            most = fullness.fullest(load, per_unit, cells, places)
            assert most == pytest.approx(tuple(shares[:, places].max(axis=1)), rel=1e-6)
    held = chance.integers(0, 3, (3, 9)).astype(float)
    numbers, values = np.empty((2, 9))
    scores.learning(held, (2.0, 1.5, 1.0), load[0, 0], per_unit[0], 0.25, numbers, values)
    use = (load[0, 0] * per_unit[0]).tolist()
    assert values == pytest.approx(twins.learning(held.T.astype(int).tolist(), use, 0.25))
    scores.balance(means, values)
    assert values == pytest.approx(1.0 - np.abs(means[0].clip(0, 1) - means[1].clip(0, 1)))


@given(KNOWN, st.data())
def test_lines_are_what_json_would_have_written(names: list[str], draw: st.DataObject) -> None:
    asked = draw.draw(st.lists(st.sampled_from(range(len(names))), unique=True, min_size=1))
    said = [draw.draw(st.integers(0, 10)) for _ in asked]
    told = HostLines(names).of(np.array(asked), np.array(said))
    assert json.loads(b"[" + told[1:] + b"]") == twins.lines(names, asked, said)


def test_a_pod_that_is_added_and_taken_away_leaves_nothing_and_only_what_was_touched_is_refreshed() -> None:
    load, counts = np.zeros((2, 4, 3)), np.zeros((sums.ROWS, 3))
    use = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    sums.add(load, counts, 1, 1, use, (1.0, 2.0), (0.5, 0.25), 2)
    sums.add(load, counts, 2, 1, np.array([[9.0], [8.0]]), (1.0, 2.0), (0.0, 0.0), -1)
    assert load[:, :, 1].tolist() == use.tolist()
    assert load[:, :, 2].tolist() == [[9.0] * 4, [8.0] * 4]
    assert counts[:, 1].tolist() == [1.0, 2.0, 0.5, 0.25, 0.0, 0.0, 1.0, 1.0]
    assert counts[:, 2].tolist() == [1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    seen, counted = np.full((2, 2, 2), 7.0, dtype=np.float32), np.empty((sums.ROWS, 2))
    sums.refresh(load, counts, 2, np.array([1]), seen, counted)
    assert seen.tolist() == [[[7.0, 3.0], [7.0, 4.0]], [[7.0, 7.0], [7.0, 8.0]]]
    assert counted.tolist() == counts[:, :2].tolist()
    sums.add(load, counts, 1, -1, use, (1.0, 2.0), (0.5, 0.25), 2)
    assert not load[:, :, :2].any()
    assert not counts[:, :2].any()


def _compiled() -> dict[str, int]:
    """How many forms of each kernel are compiled."""
    kernels: dict[str, Any] = {}
    for module in (crowding, fullness, lines, lookup, points, scores, sums):
        kernels |= {
            f"{module.__name__}.{name}": one for name, one in vars(module).items() if hasattr(one, "signatures")
        }
    return {name: len(one.signatures) for name, one in kernels.items()}


def test_after_the_rehearsal_nothing_is_left_to_compile() -> None:
    rehearse()
    compiled = _compiled()
    waits = Settings(limits=Limits(cpu_overload=0.01))
    world = World(waits, *(node_json(name) for name in "abc"), class_json("eater", [1.0, 9.0], [30.0, 1.0]))
    for number, workload in enumerate(("eater", "", "eater")):
        world.place(pod_json(f"p{number}", workload=workload, memory="8Gi"))
        world.filter(pod_json(f"p{number}", workload=workload), ["a", "b"])
        world.prioritize(pod_json(f"p{number}", workload=workload), ["a", "b"])
    world.put(pod_json("p0", node="b", workload="eater"))
    world.clock.now_s += 3600.0
    world.place(pod_json("later", cpu="30"))
    assert _compiled() == compiled
