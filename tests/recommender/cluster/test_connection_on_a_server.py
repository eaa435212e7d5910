"""What only a real API server can show: trust, identity and rights."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from local_cluster.cluster import Cluster
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import Conflict, Forbidden, NotFound, Unauthorized, Unreachable
from recommender.cluster.paths import PODS, path_of


def test_forbidden_says_verb_resource_and_who(cluster: Cluster, namespace: str) -> None:
    powerless = connect(cluster.service_account(namespace, "nobody"), user_agent="phasewise-tests")
    with pytest.raises(Forbidden) as told:
        powerless.get(path_of(PODS))
    for part in ("list", '"pods"', f"system:serviceaccount:{namespace}:nobody", "cluster scope"):
        assert part in str(told.value)


def test_a_server_of_another_authority_is_not_spoken_to(cluster: Cluster, tmp_path: Path) -> None:
    content = yaml.safe_load(cluster.kubeconfig("admin").read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    with pytest.raises(Unreachable, match="certificate cannot be trusted"):
        connect(tmp_path / "config", user_agent="phasewise-tests").get("/version")


def test_an_unknown_token_is_unauthorized(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    content = yaml.safe_load(cluster.service_account(namespace, "a").read_text())
    content["users"][0]["user"] = {"token": "nobody-knows-this"}
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    with pytest.raises(Unauthorized) as told:
        connect(tmp_path / "config", user_agent="phasewise-tests").get(path_of(PODS))
    assert "nobody-knows-this" not in str(told.value)


def test_the_servers_answers_have_the_errors_we_expect(api: Api, namespace: str) -> None:
    maps = path_of(("v1", "configmaps"), namespace)
    made = api.create(maps, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    with pytest.raises(Conflict):
        api.create(maps, {"metadata": {"name": "m"}})
    api.patch(f"{maps}/m", {"data": {"a": "c"}})
    with pytest.raises(Conflict):
        api.replace(f"{maps}/m", made)
    with pytest.raises(Conflict):
        api.delete(f"{maps}/m", uid="another")
    api.delete(f"{maps}/m", uid=made["metadata"]["uid"])
    with pytest.raises(NotFound):
        api.get(f"{maps}/m")
