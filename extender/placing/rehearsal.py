"""Everything that answers a scheduler done once on a cluster that is made up, so that no call waits for a compiler."""

from __future__ import annotations

import math
import time

import numpy as np

from extender.placing.decisions import Decisions
from extender.placing.placer import Placer
from extender.pods.curves import Curve
from extender.pods.pod import Container, Node, Pod, Profile
from extender.protocol import wire
from extender.settings import Limits, Settings
from extender.view.names import AsCame
from extender.view.state import ClusterState
from recommender.compiling import compile_apart

NAMESPACE, WORKLOAD = "rehearsal", "learned"


def rehearse() -> None:
    """Load what is compiled, or have it compiled where that was not done before: some seconds then.

    To be called before a server divides into processes, which then share it.
    """
    compile_apart(_play, __name__)


def _play() -> None:
    settings = Settings(limits=Limits(cpu_overload=0.01))
    state = ClusterState(settings, time.time, time.monotonic)
    placer = Placer(state, settings, Decisions(), lambda raw: _pod(raw["name"]), time.time)
    curve = Curve(np.ones((2, settings.grid.cells)), ends=True)
    state.put_profile(Profile(NAMESPACE, f"class.{WORKLOAD}", WORKLOAD, {"main": curve}, {}))
    for name in ("a", "b", "c"):
        state.put_node(Node(name, (8.0, 2.0**35), {}))
    for names in (b'"a","b","c"', b'"b","c"'):  # all nodes, and some of them
        asked = wire.Asked({"name": "asks"}, AsCame(names), None)
        wire.filter_answer(asked, placer.filter(asked))
        placer.expect(asked)
        wire.priority_answer(placer.prioritize(asked))


def _pod(name: str) -> Pod:
    container = Container("main", (1.0, 2.0**30), (math.nan, math.nan))
    return Pod(
        namespace=NAMESPACE,
        name=name,
        uid=name,
        node="",
        finished=False,
        job="",
        workload=WORKLOAD,
        requests=container.requests,
        containers=(container,),
        gpus=0.0,
        gpu_type="",
        words={},
        ours=True,
    )


if __name__ == "__main__":
    _play()
