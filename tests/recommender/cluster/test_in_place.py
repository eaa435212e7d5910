"""Support for the update mode `InPlace` is probed by a dry run that creates a VPA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import ApiError, Invalid, Unreachable
from recommender.cluster.vpas.auto_created import PROBE_TTL_S, InPlaceMode


class Server:
    """Accepts VPAs, or refuses them with `error`."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.modes: list[str] = []

    def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> None:
        assert dry_run, "nothing may be stored"
        assert path == "/apis/autoscaling.k8s.io/v1/namespaces/team/verticalpodautoscalers"
        self.modes.append(body["spec"]["updatePolicy"]["updateMode"])
        if self.error is not None:
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
def test_any_other_error_of_a_probe_is_raised_and_not_cached(error: ApiError) -> None:
    server = Server()
    mode = InPlaceMode(cast(Api, server), lambda: 0.0)
    server.error = error
    with pytest.raises(type(error)):
        mode.available("team")
    server.error = None
    assert mode.available("team")
