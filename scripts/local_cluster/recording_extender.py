"""A fake scheduler extender that answers as a test defines, and records calls."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_cluster.played_http import Asked, Reply, played

Json = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One request of a scheduler: the verb of its path, and its body as sent."""

    verb: str
    body: Json

    @property
    def pod(self) -> str:
        """The pod's name."""
        return str(self.body["Pod"]["metadata"]["name"])


@dataclass
class Answers:
    """Answers of the fake extender; by default all nodes pass with equal scores, and all victims are accepted.

    Attributes
    ----------
    refused
        Node -> reason why `filter` refuses it.
    scores
        Node -> points (0 to 10) in `prioritize`; 0 for nodes not named.
    victims
        Proposed victims by node -> answer of `preempt`.
    hangs
        Verbs that get no answer while they are in here.
    """

    refused: dict[str, str] = field(default_factory=dict)
    scores: dict[str, int] = field(default_factory=dict)
    victims: Callable[[Json], Json] = lambda proposed: proposed
    hangs: Collection[str] = ()

    def of(self, call: Call) -> Json | list[Json]:
        names = call.body.get("NodeNames") or []
        if call.verb == "filter":
            passed = [name for name in names if name not in self.refused]
            refused = {name: reason for name, reason in self.refused.items() if name in names}
            return {"NodeNames": passed, "FailedNodes": refused}
        if call.verb == "prioritize":
            return [{"Host": name, "Score": self.scores.get(name, 0)} for name in names]
        if call.verb == "preempt":
            return {"NodeNameToMetaVictims": self.victims(call.body["NodeNameToMetaVictims"])}
        raise ValueError(f"no such verb: {call.verb}")


class RecordingExtender:
    """Serves the protocol on a loopback port between `start` and `stop`; can be started again.

    Connections stay open, as a real extender's should: schedulers do not repeat a call on a broken one.

    `certificate`: certificate, key and authority files for https, which then requires client certificates of the
    authority.
    """

    def __init__(self, port: int, certificate: tuple[Path, Path, Path] | None = None) -> None:
        self.port = port
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{port}"
        self.calls: list[Call] = []
        self.answers = Answers()
        self._tls: ssl.SSLContext | None = None
        if certificate:
            own, key, authority = certificate
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority))
            self._tls.verify_mode = ssl.CERT_REQUIRED
            self._tls.load_cert_chain(own, key)
        self._serves = False
        self._serving = ExitStack()

    def start(self) -> RecordingExtender:
        self._serves = True
        self._serving.enter_context(played(self._answer, self._tls, self.port))
        return self

    def stop(self) -> None:
        """Close the port and all connections, as if the process had ended."""
        self._serves = False
        self._serving.close()

    def _hangs(self, call: Call) -> bool:
        return self._serves and call.verb in self.answers.hangs

    def _answer(self, asked: Asked) -> Reply | None:
        call = Call(asked.path.strip("/"), json.loads(asked.body))
        self.calls.append(call)
        if self._hangs(call):
            while self._hangs(call):
                time.sleep(0.02)
            return None  # the caller has given up
        return Reply(body=json.dumps(self.answers.of(call)).encode())

    def calls_for(self, pod: str, verb: str | None = None) -> list[Call]:
        """Calls about a pod, in order."""
        return [call for call in self.calls if call.pod == pod and verb in (None, call.verb)]
