"""`phasewise extender explain FILE`: one request, without a running extender."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from extender.cli.main import cli
from recommender.cli.common import run
from tests.fakes.served_commands import fake_api, kubeconfig
from tests.worlds.placement import Json, class_json, node_json, pod_json, profile_json

EARLY, LATE = [6.0] * 12 + [1.0] * 12, [1.0] * 12 + [6.0] * 12


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """A cluster of two nodes, as listed by kubectl."""
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
def test_explain_reads_the_dump_and_shows_so_many_nodes_as_text_or_json(dump: Path, tmp_path: Path) -> None:
    request = {"Pod": pod_json("new", workload="late"), "NodeNames": ["late", "early"]}
    as_text, as_json = (explain(tmp_path, request, "--cluster", dump, *options) for options in ((), ("--json",)))
    assert (as_text.startswith("{"), '"nodes"' in as_json) == (False, True)
    both, one = (explain(tmp_path, request, "--cluster", dump, "--nodes", count) for count in (2, 1))
    assert len(one.splitlines()) < len(both.splitlines())


@pytest.mark.option("phasewise extender explain", "--kubeconfig", "--context")
def test_the_api_server_of_the_kubeconfig_context_is_asked_without_a_dump(tmp_path: Path) -> None:
    request = {"Pod": pod_json("new"), "NodeNames": ["one", "two"]}
    with fake_api(nodes=[node_json("one")]) as one, fake_api(nodes=[node_json("two")]) as two:
        file = kubeconfig(tmp_path, one=one, two=two)
        explain(tmp_path, request, "--kubeconfig", file)
        assert one.requests and not two.requests
        explain(tmp_path, request, "--kubeconfig", file, "--context", "two")
        assert two.requests


def test_explain_shows_how_each_node_scores_and_why(dump: Path, tmp_path: Path) -> None:
    request = {"Pod": pod_json("new", workload="late"), "NodeNames": ["late", "early"]}
    output = explain(tmp_path, request, "--cluster", dump)
    assert "team/new: workload late, expected use from history" in output
    assert output.index("early") < output.index("peaks at 150% CPU")
    assert "S = 1: 0 progressing, 0 watching, 1 converged" in output
    assert "ignored: Pod broken: metadata.uid is not a string" in output


def test_a_bound_pod_as_printed_by_kubectl_is_judged_on_all_nodes(dump: Path, tmp_path: Path) -> None:
    bound = pod_json("b", node="late", workload="late")
    decision = json.loads(explain(tmp_path, bound, "--cluster", dump, "--json").partition("{")[2].join(["{", ""]))
    assert decision["advised"] == "late", "the pod itself does not count there"
    assert len(decision["nodes"]) == 2


def test_the_order_of_several_dumps_does_not_matter_and_jobs_in_them_tell_the_class_of_their_pods(
    dump: Path, tmp_path: Path
) -> None:
    labels = {"phasewise.dev/workload": "late"}
    job = {"kind": "Job", "metadata": {"namespace": "team", "name": "run-17", "uid": "j", "labels": labels}}
    jobs = tmp_path / "jobs.json"
    jobs.write_text(json.dumps({"items": [job]}))
    new = pod_json("new")
    new["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "run-17", "uid": "j", "controller": True}]
    request = {"Pod": new, "NodeNames": ["late", "early"]}
    one, other = (
        explain(tmp_path, request, "--cluster", first, "--cluster", second)
        for first, second in ((jobs, dump), (dump, jobs))
    )
    assert one == other
    assert "team/new: workload late, expected use from history" in one


def test_explain_takes_the_weights_and_limits_of_the_server(dump: Path, tmp_path: Path) -> None:
    request = {"Pod": pod_json("new", workload="late"), "NodeNames": ["late", "early"]}
    output = explain(tmp_path, request, "--cluster", dump, "--cpu-overload", "0.01", "--cycle", "1h")
    assert "forecast CPU shortage exceeds the limit" in output
    assert "0.079 to 0.57 of the pod's demand, 0.01 tolerated by now" in output, (
        "with another late job: 4 cores in 12 cells, of 84"
    )
    assert "weights: complement 9" in explain(tmp_path, request, "--cluster", dump, "--weights", "complement=9")
    theirs = {"Pod": pod_json("new", scheduler="x"), "NodeNames": ["late", "early"]}
    assert "not a pod of ours" in explain(tmp_path, theirs, "--cluster", dump)


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "not JSON"), ("[]", "not a JSON object"), ('{"Pod": {}}', "NodeNames")]
)
def test_a_file_that_is_not_an_extender_request_exits_with_2_and_a_reason(
    dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    file = tmp_path / "request.json"
    file.write_text(text)
    assert run(cli, ["extender", "explain", str(file), "--cluster", str(dump)]) == 2
    assert reason in capsys.readouterr().err
