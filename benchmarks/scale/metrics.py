"""metrics.k8s.io served from the bundled recordings, without kubelets."""

from __future__ import annotations

import contextlib
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.resources import as_file, files

import numpy as np
import orjson

from benchmarks.scale.objects import CONTAINERS
from recommender.base.records import CPU, MEMORY, FloatArray
from recommender.base.units import format_time
from recommender.sources.files import open_source
from tests.rig import played_http
from tests.rig.observing.metrics_server import GROUP, VERSION, register
from tests.rig.played_http import Asked, Reply
from tests.rig.rig import Rig
from tests.rig.waiting import wait_until

PREFIX = f"/apis/{GROUP}/{VERSION}"


class RecordedUsage:
    """Use of the containers of many pods: each replays a recorded run from its own offset.

    `pods`: Namespace and name of each.
    `every_s`: Interval of new samples; the answer stays the same in between.
    """

    def __init__(self, pods: Sequence[tuple[str, str]], every_s: float) -> None:
        self._pods, self._every_s = pods, every_s
        folder = files("recommender") / "data" / "recordings"
        with as_file(folder / "replay.parquet") as file, open_source([file]) as source:
            recorded = [run.usage[run.present][::15][:, [CPU, MEMORY]] for run in source if len(run) > 60]
        self._runs: list[FloatArray] = recorded
        """float64 (n, 2) each: every fifteenth second of a bundled recording."""
        rng = np.random.default_rng(0)
        shape = (len(pods), len(CONTAINERS))
        self._run_of = rng.integers(len(self._runs), size=shape).tolist()
        self._offset = rng.integers(10_000, size=shape).tolist()
        self._lock, self._tick, self._body = threading.Lock(), -1, b""

    def answer(self, now_s: float) -> bytes:
        tick = int(now_s // self._every_s)
        with self._lock:
            if tick != self._tick:
                self._tick, self._body = tick, self._list(tick)
            return self._body

    def _list(self, tick: int) -> bytes:
        at = format_time(tick * self._every_s)
        items = [
            {
                "metadata": {"namespace": namespace, "name": pod, "creationTimestamp": at},
                "timestamp": at,
                "window": "15s",
                "containers": [
                    {"name": name, "usage": self._usage(number, which, tick)} for which, name in enumerate(CONTAINERS)
                ],
            }
            for number, (namespace, pod) in enumerate(self._pods)
        ]
        return orjson.dumps(
            {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        )

    def _usage(self, number: int, which: int, tick: int) -> dict[str, str]:
        run = self._runs[self._run_of[number][which]]
        cpu_cores, memory_bytes = run[(self._offset[number][which] + tick) % len(run)].tolist()
        return {"cpu": f"{round(cpu_cores * 1e9)}n", "memory": f"{round(memory_bytes / 1024)}Ki"}


@contextlib.contextmanager
def metrics_api(rig: Rig, played: RecordedUsage) -> Iterator[None]:
    def answer(asked: Asked) -> Reply:
        body = played.answer(time.time()) if asked.path == f"{PREFIX}/pods" else _resources(asked.path)
        return Reply(200 if body else 404, body)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(rig.authority.folder / "serving.crt", rig.authority.folder / "serving.key")
    with played_http.played(answer, context) as served:
        register(rig, served.port)
        wait_until(lambda: rig.custom.list_cluster_custom_object(GROUP, VERSION, "pods"), "usage to be served")
        yield


def _resources(path: str) -> bytes:
    if path != PREFIX:
        return b""
    pods = {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": ["get", "list"]}
    return orjson.dumps(
        {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}", "resources": [pods]}
    )
