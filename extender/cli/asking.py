"""A running extender asked why a pod went where it went: `GET /explain/NAMESPACE/POD`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import urllib3
from urllib3.exceptions import HTTPError

from extender.errors import NotAnswered

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Asking:
    """Where an extender answers.

    Attributes
    ----------
    server
        Its URL, `http://127.0.0.1:8943`.
    authority
        PEM file: its certificate is one of this authority; otherwise the system's are trusted.
    certificate, key
        PEM files: what we show where it asks for a client's certificate.
    """

    server: str
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def explain(self, namespace: str, pod: str, nodes: int) -> Mapping[str, Any]:
        """The decision on a pod as `Decision.told` tells it, with so many nodes at most.

        Raises
        ------
        NotAnswered
            Nobody answers there, or no decision is kept of this pod.
        """
        given = {"ca_certs": self.authority, "cert_file": self.certificate, "key_file": self.key}
        files: dict[str, Any] = {name: str(file) for name, file in given.items() if file is not None}
        pool = urllib3.PoolManager(**files)
        url = f"{self.server.rstrip('/')}/explain/{namespace}/{pod}?nodes={nodes}"
        try:
            answer = pool.request("GET", url, timeout=TIMEOUT_S, retries=False, redirect=False)
            told = orjson.loads(answer.data)
        except HTTPError as error:
            raise NotAnswered(f"no extender answers at {self.server} ({type(error).__name__}). {ELSEWHERE}") from error
        except orjson.JSONDecodeError as error:
            raise NotAnswered(f"what answers at {self.server} is no extender") from error
        if answer.status != 200 or not isinstance(told, dict) or "nodes" not in told:
            said = str(told.get("Error") if isinstance(told, dict) else told)[:200]
            raise NotAnswered(f"{said}. {UNKNOWN}" if answer.status == 404 else f"{self.server} answers: {said}")
        return told


ELSEWHERE = (
    "Name it by --server; one that listens in a pod is asked there: kubectl -n ITS-NAMESPACE exec "
    "deploy/phasewise-scheduler -c extender -- phasewise extender explain NAMESPACE/POD"
)
UNKNOWN = (
    "It judges pods of its scheduler and those with a label or annotation of phasewise.dev, and keeps what it said of "
    "the last few thousand since its start; of several replicas, the one beside the scheduler that leads keeps it."
)
