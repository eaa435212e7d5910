"""`phasewise extender explain`: one request, no server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli.main import cli
from placement_bench.worlds import Json, class_json, node_json, pod_json, profile_json
from recommender.cli.common import run
from tests.fakes.served_commands import fake_api, kubeconfig

EARLY, LATE = [6.0] * 12 + [1.0] * 12, [1.0] * 12 + [6.0] * 12


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A cluster of two nodes, as kubectl lists it."""
    items = [
        node_json("early"),
        node_json("late"),
        class_json("early", EARLY, [1.0] * 24),
        class_json("late", LATE, [1.0] * 24),
        profile_json("vpa", {"uid-a": "converged"}),
        pod_json("a", node="early", workload="early"),
        pod_json("b", node="late", workload="late"),
        {"kind": "Service", "metadata": {"name": "x"}},
        {"kind": "Pod", "metadata": {"name": "broken", "uid": 7}},
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"kind": "List", "items": items}))
    return file


def explain(tmp_path: Path, request: Json, *options: object) -> str:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(request))
    done = CliRunner().invoke(cli, ["extender", "explain", str(file), *map(str, options)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.option("phasewise extender explain", "--cluster", "--nodes", "--json")
def test_what_is_told_is_of_the_dump_of_so_many_nodes_and_in_words_or_json(dump: Path, tmp_path: Path) -> None:
    asked = {"Pod": pod_json("new", workload="late"), "NodeNames": ["late", "early"]}
    in_words, as_json = (explain(tmp_path, asked, "--cluster", dump, *more) for more in ((), ("--json",)))
    assert (in_words.startswith("{"), '"nodes"' in as_json) == (False, True)
    both, one = (explain(tmp_path, asked, "--cluster", dump, "--nodes", most) for most in (2, 1))
    assert len(one.splitlines()) < len(both.splitlines())


@pytest.mark.option("phasewise extender explain", "--kubeconfig", "--context")
def test_which_api_server_is_asked_without_a_dump(tmp_path: Path) -> None:
    asked = {"Pod": pod_json("new"), "NodeNames": ["one", "two"]}
    with fake_api(nodes=[node_json("one")]) as one, fake_api(nodes=[node_json("two")]) as two:
        file = kubeconfig(tmp_path, one=one, two=two)
        explain(tmp_path, asked, "--kubeconfig", file)
        assert one.requests and not two.requests
        explain(tmp_path, asked, "--kubeconfig", file, "--context", "two")
        assert two.requests


def test_it_says_of_each_node_how_it_scores_and_why(dump: Path, tmp_path: Path) -> None:
    asked = {"Pod": pod_json("new", workload="late"), "NodeNames": ["late", "early"]}
    said = explain(tmp_path, asked, "--cluster", dump)
    assert "team/new: workload late, expected use from history" in said
    assert said.index("early") < said.index("peaks at 150% CPU")
    assert "S = 1: 0 progressing, 0 watching, 1 converged" in said
    assert "ignored: Pod broken: metadata.uid is not a string" in said


def test_a_pod_as_kubectl_prints_it_is_judged_on_all_nodes_even_when_it_is_bound(dump: Path, tmp_path: Path) -> None:
    bound = pod_json("b", node="late", workload="late")
    told = json.loads(explain(tmp_path, bound, "--cluster", dump, "--json").partition("{")[2].join(["{", ""]))
    assert told["advised"] == "late", "without itself nothing is there"
    assert len(told["nodes"]) == 2


def test_weights_and_limits_are_those_of_the_server(dump: Path, tmp_path: Path) -> None:
    asked = {"Pod": pod_json("new", workload="late"), "NodeNames": ["late", "early"]}
    said = explain(tmp_path, asked, "--cluster", dump, "--cpu-overload", "0.01", "--cycle", "1h")
    assert "forecast CPU shortage exceeds the limit" in said
    assert "0.079 to 0.57 of the pod's demand, 0.01 tolerated by now" in said, (
        "12 cells of 4 cores of 84, beside its like"
    )
    assert "weights: complement 9" in explain(tmp_path, asked, "--cluster", dump, "--weights", "complement=9")
    theirs = {"Pod": pod_json("new", scheduler="x"), "NodeNames": ["late", "early"]}
    assert "not a pod of ours" in explain(tmp_path, theirs, "--cluster", dump)


@pytest.mark.parametrize(
    ("text", "words"), [("{", "not JSON"), ("[]", "not a JSON object"), ('{"Pod": {}}', "NodeNames")]
)
def test_what_is_no_request_ends_with_2_and_says_why(
    dump: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    words: str,
) -> None:
    monkeypatch.setattr("recommender.cli.common._end_on_sigterm", lambda: None)  # a handler outlives the test
    file = tmp_path / "request.json"
    file.write_text(text)
    assert run(cli, ["extender", "explain", str(file), "--cluster", str(dump)]) == 2
    assert words in capsys.readouterr().err


def test_it_is_a_program() -> None:
    command = [sys.executable, "-m", "extender", "extender", "explain", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "--weights" in done.stdout


def test_sizes_may_be_given(dump: Path, tmp_path: Path) -> None:
    sizes = tmp_path / "sizes.json"
    sizes.write_text('{"1-H100": {"cpu": "6", "memory": "20Gi"}}')
    pod = pod_json("new", cpu=None, memory=None, limits={"nvidia.com/gpu": "1"})
    said = explain(tmp_path, pod, "--cluster", dump, "--sizes", sizes)
    assert "expected use from T-shirt size" in said
