"""Whether a cluster's VPA has mode `InPlace` is found out by trying, seldom, and without leaving anything behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Invalid, Unreachable
from recommender.cluster.vpas.auto_created import PROBE_TTL_S, InPlaceMode


class Server:
    """Takes VPAs, or refuses them."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.modes: list[str] = []

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> None:
        assert dry_run, "nothing may be stored"
        assert path == "/apis/autoscaling.k8s.io/v1/namespaces/team/verticalpodautoscalers"
        self.modes.append(body["spec"]["updatePolicy"]["updateMode"])
        if self.error is not None:
            raise self.error


def test_a_cluster_has_it_that_would_take_such_a_vpa_and_is_asked_again_after_minutes() -> None:
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
def test_a_server_that_does_not_answer_or_has_something_else_against_it_has_not_said_no(error: ApiError) -> None:
    server = Server()
    mode = InPlaceMode(cast(Api, server), lambda: 0.0)
    server.error = error
    with pytest.raises(type(error)):
        mode.available("team")
    server.error = None
    assert mode.available("team")
