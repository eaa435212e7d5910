"""Support for the update mode `InPlace` is probed by a dry run that creates a VPA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Forbidden, Invalid, Unreachable
from recommender.cluster.vpas.auto_created import PROBE_RETRY_S, PROBE_TTL_S, InPlaceMode


class Server:
    """Accepts VPAs, or refuses those in the namespace `team` with `error`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.modes: list[str] = []

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> None:
        assert dry_run, "nothing may be stored"
        namespace = body["metadata"]["namespace"]
        assert path == f"/apis/autoscaling.k8s.io/v1/namespaces/{namespace}/verticalpodautoscalers"
        self.modes.append(body["spec"]["updatePolicy"]["updateMode"])
        if self.error is not None and namespace == "team":
            raise self.error


def test_an_unavailable_in_place_mode_is_probed_again_after_its_ttl() -> None:
    server, now_s = Server(), 0.0
    mode = InPlaceMode(cast(Api, server), lambda: now_s)
    server.error = Invalid("you must enable feature gate InPlace", status=422)
    assert not mode.available("team")
    server.error = None
    now_s = PROBE_TTL_S - 1.0
    assert not mode.available("team")
    now_s = PROBE_TTL_S
    assert mode.available("team")
    assert server.modes == ["InPlace", "InPlace"]


@pytest.mark.parametrize("error", [Unreachable("no connection"), Invalid("the label `cost-centre` is missing")])
def test_any_other_error_of_a_probe_is_raised_until_a_later_probe_succeeds(error: ApiError) -> None:
    server, now_s = Server(), 0.0
    mode = InPlaceMode(cast(Api, server), lambda: now_s)
    server.error = error
    with pytest.raises(type(error)):
        mode.available("team")
    server.error = None
    now_s = PROBE_RETRY_S
    assert mode.available("team")


QUOTA_USED_UP = Forbidden("exceeded quota: vpas, requested: 1, used: 5, limited: 5", status=403)


def test_many_workloads_in_a_namespace_whose_quota_is_used_up_cost_one_probe() -> None:
    server = Server()
    mode = InPlaceMode(cast(Api, server), lambda: 0.0)
    server.error = QUOTA_USED_UP
    for _ in range(100):
        with pytest.raises(ApiError, match="exceeded quota"):
            mode.available("team")
    assert len(server.modes) == 1
    assert mode.available("another"), "its quota is not used up"
    assert mode.available("team"), "what one namespace shows is true of the cluster"


def test_a_probe_that_fails_leaves_an_earlier_answer_in_use() -> None:
    server, now_s = Server(), 0.0
    mode = InPlaceMode(cast(Api, server), lambda: now_s)
    assert mode.available("team")
    server.error, now_s = QUOTA_USED_UP, PROBE_TTL_S
    assert [mode.available("team") for _ in range(100)] == [True] * 100
    assert len(server.modes) == 2
