"""Memory of the webhook while anybody who can reach its port sends it bodies that take the most to parse."""

from __future__ import annotations

import re
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from pathlib import Path

import orjson
import psutil
import pytest

from local_cluster.installing import documents
from recommender.cluster.objects.quantities import parse_quantity
from tests.extender.gangs.herds import pod_json
from tests.fakes.served_commands import running

(WEBHOOK,) = (
    each for each in documents() if (each["kind"], each["metadata"]["name"]) == ("Deployment", "phasewise-webhook")
)
LIMIT_BYTES = parse_quantity(WEBHOOK["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"])
ATTACKERS = 20
REVIEW = orjson.dumps({"request": {"uid": "1", "operation": "CREATE", "object": pod_json("p", gang="g", size=2)}})


def most_bytes(process: subprocess.Popen[bytes]) -> int:
    """Memory of a process and its children, each when it took most."""
    first = psutil.Process(process.pid)
    statuses = [Path(f"/proc/{each.pid}/status").read_text() for each in (first, *first.children(recursive=True))]
    return sum(int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10 for status in statuses)


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

    with running(tmp_path, "webhook") as (process, address), ThreadPoolExecutor(ATTACKERS) as clients:
        idle_bytes = most_bytes(process)
        assert set(clients.map(post, [hostile] * ATTACKERS)) <= {400, 408, 413, 503}
        assert post(REVIEW) == 200
        attacked_bytes = most_bytes(process)
    figures = f"{idle_bytes >> 20} MiB idle, {attacked_bytes >> 20} MiB at most"
    print(f"{ATTACKERS} clients with {size_bytes:,} bytes each: {figures}")  # noqa: T201  a figure of SECURITY.md
    assert attacked_bytes < 0.75 * LIMIT_BYTES
