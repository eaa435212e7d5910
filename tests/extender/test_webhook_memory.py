"""Memory of the webhook while anybody who can reach its port sends it bodies that take the most to parse."""

from __future__ import annotations

import re
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from pathlib import Path

import orjson
import psutil
import pytest

from recommender.cluster.objects.quantities import parse_quantity
from tests.extender.gangs.herds import pod_json
from tests.fakes.served_commands import running
from tests.rig.installing import documents
from tests.rig.waiting import wait_until

(WEBHOOK,) = (
    each for each in documents() if (each["kind"], each["metadata"]["name"]) == ("Deployment", "phasewise-webhook")
)
LIMIT_BYTES = parse_quantity(WEBHOOK["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"])
ATTACKERS = 20
REVIEW = orjson.dumps({"request": {"uid": "1", "operation": "CREATE", "object": pod_json("p", gang="g", size=2)}})


class Memory:
    """Most memory of a process and its children together (PSS) during a block."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        first = psutil.Process(process.pid)
        self._files = [Path(f"/proc/{each.pid}/smaps_rollup") for each in (first, *first.children(recursive=True))]
        self._ended, self._thread = threading.Event(), threading.Thread(target=self._watch)
        self.most_bytes = self.idle_bytes = self._bytes()

    def _bytes(self) -> int:
        return sum(int(re.findall(r"^Pss: +(\d+) kB", file.read_text(), re.MULTILINE)[0]) << 10 for file in self._files)

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.most_bytes = max(self.most_bytes, self._bytes())

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.mark.long
@pytest.mark.parametrize("size_bytes", [15_900_000, (4 << 20) - 5], ids=["16 MB", "4 MiB"])
def test_bodies_that_take_most_to_parse_leave_the_webhook_below_its_memory_limit(
    size_bytes: int, tmp_path: Path
) -> None:
    hostile = b"[" + b"[]," * (size_bytes // 3) + b"[]]"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def post(body: bytes) -> int:
        connection = HTTPSConnection(*address, timeout=60.0, context=context)
        try:
            connection.request("POST", "/mutate", body)
            return connection.getresponse().status
        except ConnectionError:  # it may close the connection before we have sent everything
            return 408
        finally:
            connection.close()

    with (
        running(tmp_path, "webhook", PROMETHEUS_MULTIPROC_DIR=str(tmp_path)) as (process, address),
        ThreadPoolExecutor(ATTACKERS) as clients,
    ):
        wait_until(lambda: len(psutil.Process(process.pid).children()) == 2, "both workers to start")
        assert {post(REVIEW) for _ in range(20)} == {200}
        with Memory(process) as memory:
            assert set(clients.map(post, [hostile] * ATTACKERS)) <= {400, 408, 413, 503}
        assert post(REVIEW) == 200
    figures = f"{memory.idle_bytes >> 20} MiB idle, {memory.most_bytes >> 20} MiB at most"
    print(f"{ATTACKERS} clients with {size_bytes:,} bytes each: {figures}")  # noqa: T201  a figure of SECURITY.md
    assert memory.most_bytes < 0.9 * LIMIT_BYTES
