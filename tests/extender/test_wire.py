"""The JSON of schedulers: strict parsing of every form that they send, and answers in their format."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.errors import BadRequest
from extender.protocol import wire
from extender.view.snapshot import NameTable

POD = {"metadata": {"name": "p", "uid": "u"}, "spec": {}}


def args_json(**fields: object) -> bytes:
    return json.dumps({"Pod": POD, "Nodes": None, "NodeNames": None, **fields}).encode()


def test_node_names_are_read_in_order_and_field_names_in_any_case() -> None:
    assert wire.read_args(args_json(NodeNames=["b", "a"])).names == ["b", "a"]
    lower = json.dumps({"pod": POD, "nodes": None, "nodenames": ["b"]}).encode()
    assert wire.read_args(lower).names == ["b"]
    assert wire.read_args(args_json(NodeNames=[])).names == []


def test_names_are_those_of_all_nodes_only_if_each_is_there_once() -> None:
    table = NameTable(("a", "b", "c"))
    assert table.find(["c", "a", "b"])[0] is table.everywhere
    for names, places, unknown in (("aab", [0, 1], []), ("abd", [0, 1], ["d"]), ("abcc", [0, 1, 2], [])):
        found = table.find(list(names))
        assert (found[0].tolist(), found[1]) == (places, unknown)


def test_all_names_are_recognised_in_any_order_whatever_was_asked_before() -> None:
    table = NameTable(("a", "b", "c", "d"))
    for names in ("cdab", "cdab", "dabc", "abcd", "acbd", "cbda", "dcba"):  # in turns rotated and in another order
        assert table.find(list(names))[0] is table.everywhere
        for others, places, unknown in (
            ("cdaa", [0, 2, 3], []),
            ("cdax", [0, 2, 3], ["x"]),
            ("xcda", [0, 2, 3], ["x"]),
        ):
            found = table.find(list(others))
            assert (found[0].tolist(), found[1]) == (places, unknown)
    assert NameTable(()).find([])[0].size == 0


def test_full_nodes_are_returned_unchanged() -> None:
    nodes = [{"metadata": {"name": name, "managedFields": [1]}, "status": {}} for name in ("a", "b")]
    args = wire.read_args(args_json(Nodes={"metadata": {}, "items": nodes}))
    assert args.names == ["a", "b"]
    answer = json.loads(wire.filter_answer(args, wire.FilterResult(["b"], {"a": "why"})))
    assert answer["Nodes"]["items"] == nodes[1:]
    assert answer["NodeNames"] is None
    assert wire.read_args(args_json(Nodes={"items": None})).names == []


def test_a_filter_answer_lists_the_nodes_that_passed_and_why_others_did_not() -> None:
    args = wire.read_args(args_json(NodeNames=["a", "b"]))
    answer = json.loads(wire.filter_answer(args, wire.FilterResult(["a"], {"b": "no memory"})))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["a"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"b": "no memory"},
        "Error": "",
    }


names = st.lists(st.text(min_size=1, max_size=30), unique=True, max_size=30)


@given(names, st.data())
def test_every_host_gets_one_integer_score(hosts: list[str], draw: st.DataObject) -> None:
    hosts = [host for host in hosts if host.isprintable()]
    judged = [place for place in range(len(hosts)) if draw.draw(st.booleans())]
    scores = [draw.draw(st.integers(0, 10)) for _ in judged]
    neutral = [f"{host}-new" for host in hosts if draw.draw(st.booleans())]
    scored = wire.HostPriorities(
        NameTable(hosts), np.array(judged, dtype=np.intp), np.array(scores, dtype=np.intp), neutral
    )
    answer = wire.priority_answer(scored)
    assert b"." not in answer.translate(None, delete=json.dumps(hosts + neutral, ensure_ascii=False).encode())
    entries = json.loads(answer)
    assert all(type(entry["Score"]) is int and entry.keys() == {"Host", "Score"} for entry in entries)
    assert len(entries) == len(judged) + len(neutral)
    assert {entry["Host"]: entry["Score"] for entry in entries} == dict.fromkeys(neutral, 5) | {
        hosts[place]: score for place, score in zip(judged, scores, strict=True)
    }


def test_a_priority_answer_has_exactly_these_bytes() -> None:
    scored = wire.HostPriorities(NameTable(("a", "node-b")), np.array([1, 0]), np.array([10, 7]), ["c", 'd","'])
    assert wire.priority_answer(scored) == (
        b'[{"Host":"node-b","Score":10},{"Host":"a","Score":      7},'
        b'{"Host":"c","Score":5},{"Host":"d\\",\\"","Score":5}]'
    )
    assert wire.priority_answer(wire.HostPriorities(NameTable(()), np.zeros(0, int), np.zeros(0, int))) == b"[]"
    odd = wire.HostPriorities(NameTable(("50%d",)), np.array([0]), np.array([3]))
    assert wire.priority_answer(odd) == b'[{"Host":"50%d","Score": 3}]'


@given(st.dictionaries(st.text(min_size=1, max_size=10), st.lists(st.text(min_size=1, max_size=10)), max_size=5))
def test_victims_are_returned_as_proposed_in_either_form(victims: dict[str, list[str]]) -> None:
    meta = {node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 2} for node, uids in victims.items()}
    full = {
        node: {"pods": [{"metadata": {"uid": uid}} for uid in uids], "numPDBViolations": 2}
        for node, uids in victims.items()
    }
    for form in (
        {"NodeNameToVictims": None, "NodeNameToMetaVictims": meta},
        {"NodeNameToVictims": full, "NodeNameToMetaVictims": None},
    ):
        args = wire.read_preemption_args(json.dumps({"Pod": POD, **form}).encode())
        assert json.loads(wire.preemption_answer(args, victims)) == {"NodeNameToMetaVictims": meta}


def test_missing_victims_may_be_null_or_an_empty_list() -> None:
    body = {"Pod": POD, "NodeNameToMetaVictims": {"a": {"Pods": None, "NumPDBViolations": 0}, "b": {"Pods": []}}}
    assert wire.read_preemption_args(json.dumps(body).encode()).victims == {"a": (), "b": ()}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"<html>",
        b'{"Pod"',
        b"\xef\xbb\xbf{}",
        b"\xff\xfe",
        b'{"Pod": null, "NodeNames": []}',
        b'{"Pod": {}}',
        b'{"Pod": {}, "NodeNames": "a"}',
        b'{"Pod": {}, "NodeNames": [1]}',
        b'{"Pod": {}, "NodeNames": [null]}',
        b'{"Pod": {}, "Nodes": {"items": {}}}',
        b'{"Pod": {}, "Nodes": {"items": [{"metadata": {}}]}}',
        b'{"Pod": {}, "Nodes": {"items": [7]}}',
        b'{"Pod": ' + b"[" * 100_000,
        b'{"Pod": {"x": NaN}, "NodeNames": []}',
    ],
)
def test_a_body_that_is_not_extender_args_is_refused_with_a_reason(body: bytes) -> None:
    with pytest.raises(BadRequest) as error:
        wire.read_args(body)
    assert 10 < len(str(error.value)) < 300


@pytest.mark.parametrize(
    "victims",
    [None, [], {"a": None}, {"a": []}, {"a": {"Pods": 1}}, {"a": {"Pods": [{}]}}, {"a": {"Pods": [{"UID": 1}]}},
     {"a": {"Pods": [], "NumPDBViolations": 1.5}}],
)  # fmt: skip
def test_malformed_victims_are_refused(victims: object) -> None:
    with pytest.raises(BadRequest):
        wire.read_preemption_args(json.dumps({"Pod": POD, "NodeNameToMetaVictims": victims}).encode())


VALID = {
    wire.read_args: args_json(NodeNames=["a", "b"]),
    wire.read_preemption_args: args_json(NodeNameToMetaVictims={"a": {"Pods": [{"UID": "u"}]}}),
}


@given(read=st.sampled_from(list(VALID)), data=st.data())
def test_a_valid_body_with_any_bytes_replaced_is_read_or_refused_with_a_reason(
    read: Callable[[bytes], object], data: st.DataObject
) -> None:
    body = bytearray(VALID[read])
    assert read(bytes(body))
    begin = data.draw(st.integers(0, len(body)))
    body[begin : begin + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
    try:
        assert read(bytes(body))
    except BadRequest as error:
        assert 10 < len(str(error)) < 300
