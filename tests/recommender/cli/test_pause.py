"""`phasewise pause`, `undo` and `resume`: which VPAs get which annotation.

The API server is a fake of what we ask of it: it lists VPAs and keeps patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from tests.fakes.api_server import kubeconfig
from tests.fakes.command_line import CommandResult
from tests.rig.played_http import Asked, Played, Reply, played

Phasewise = Callable[..., CommandResult]

VPAS = [
    ("ml", "bert", "phasewise"),
    ("ml", "web", None),
    ("ml", "other", "other"),
    ("lab", "gnn", "phasewise"),
]


class Vpas:
    """Answers lists of VPAs, and keeps the annotation that each patch writes, by path."""

    def __init__(self) -> None:
        self.patched: dict[str, object] = {}

    def __call__(self, request: Asked) -> Reply:
        parts = request.path.removeprefix("/apis/autoscaling.k8s.io/v1/").split("/")
        if request.method == "PATCH":
            annotations = orjson.loads(request.body)["metadata"]["annotations"]
            self.patched[f"{parts[1]}/{parts[3]}"] = annotations["phasewise.dev/pause"]
            return Reply(body=b"{}")
        found = [
            {
                "metadata": {"namespace": namespace, "name": name},
                "spec": {"recommenders": [{"name": recommender}]} if recommender else {},
            }
            for namespace, name, recommender in VPAS
            if parts[0] != "namespaces" or parts[1] == namespace
        ]
        return Reply(body=orjson.dumps({"items": found}))


@pytest.fixture
def vpas() -> Vpas:
    return Vpas()


@pytest.fixture
def server(vpas: Vpas) -> Iterator[Played]:
    with played(vpas) as found:
        yield found


@pytest.fixture
def config(server: Played, tmp_path: Path) -> Path:
    return kubeconfig(tmp_path / "config", server.url)


@pytest.mark.parametrize(("command", "value"), [("pause", "keep"), ("undo", "declared"), ("resume", None)])
def test_one_vpa_is_named_by_namespace_and_name(
    phasewise: Phasewise, config: Path, vpas: Vpas, command: str, value: str | None
) -> None:
    ended = phasewise(command, "ml/bert", "--kubeconfig", config)
    assert (ended.code, vpas.patched) == (0, {"ml/bert": value})
    assert "ml/bert: " in ended.err


@pytest.mark.option("phasewise pause", "--recommender-name", "-A")
@pytest.mark.option("phasewise undo", "--recommender-name", "-A")
@pytest.mark.option("phasewise resume", "--recommender-name", "-A")
@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (("ml",), {"ml/bert"}),
        (("ml", "lab/gnn"), {"ml/bert", "lab/gnn"}),
        (("-A",), {"ml/bert", "lab/gnn"}),
        (("-A", "--recommender-name", "other"), {"ml/other"}),
    ],
)
@pytest.mark.parametrize("command", ["pause", "undo", "resume"])
def test_of_a_namespace_or_a_cluster_those_that_name_the_recommender_are_taken(
    phasewise: Phasewise, config: Path, vpas: Vpas, command: str, arguments: tuple[str, ...], changed: set[str]
) -> None:
    assert phasewise(command, *arguments, "--kubeconfig", config).code == 0
    assert set(vpas.patched) == changed


@pytest.mark.parametrize("arguments", [(), ("ml", "-A")])
def test_nothing_or_both_is_misuse(phasewise: Phasewise, config: Path, vpas: Vpas, arguments: tuple[str, ...]) -> None:
    ended = phasewise("undo", *arguments, "--kubeconfig", config)
    assert (ended.code, vpas.patched) == (2, {})
    assert "NAMESPACE/VPA" in ended.err


def test_a_namespace_without_such_a_vpa_is_misuse(phasewise: Phasewise, config: Path) -> None:
    ended = phasewise("pause", "empty", "--kubeconfig", config)
    assert ended.code == 2
    assert "no VPA there names the recommender 'phasewise'" in ended.err


@pytest.mark.option("phasewise pause", "--kubeconfig", "--context")
@pytest.mark.option("phasewise undo", "--kubeconfig", "--context")
@pytest.mark.option("phasewise resume", "--kubeconfig", "--context")
@pytest.mark.parametrize("command", ["pause", "undo", "resume"])
def test_the_cluster_is_that_of_the_kubeconfig_and_its_context(
    phasewise: Phasewise, config: Path, vpas: Vpas, command: str
) -> None:
    assert "name prod" in phasewise(command, "ml/bert", "--kubeconfig", config, "--context", "prod").err
    assert vpas.patched == {}
