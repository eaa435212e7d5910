"""Trust, identity and rights on a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from recommender.cluster.access.connection import Api, connect
from recommender.cluster.errors import Conflict, NotFound, Unreachable
from recommender.cluster.paths import path_of
from tests.rig.cluster import Cluster


def test_a_server_of_another_certificate_authority_is_not_trusted(cluster: Cluster, tmp_path: Path) -> None:
    content = yaml.safe_load(cluster.kubeconfig("admin").read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    (tmp_path / "config").write_text(yaml.safe_dump(content))
    with pytest.raises(Unreachable, match="certificate cannot be trusted"):
        connect(tmp_path / "config", user_agent="phasewise-tests").get("/version")


def test_responses_of_the_server_raise_the_expected_errors(api: Api, namespace: str) -> None:
    maps = path_of(("v1", "configmaps"), namespace)
    created = api.create(maps, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    with pytest.raises(Conflict):
        api.create(maps, {"metadata": {"name": "m"}})
    api.patch(f"{maps}/m", {"data": {"a": "c"}})
    with pytest.raises(Conflict):
        api.replace(f"{maps}/m", created)
    with pytest.raises(Conflict):
        api.delete(f"{maps}/m", uid="another")
    api.delete(f"{maps}/m", uid=created["metadata"]["uid"])
    with pytest.raises(NotFound):
        api.get(f"{maps}/m")
