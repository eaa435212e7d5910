"""A stand-in for a scheduler extender: it speaks the protocol, answers as a test says, remembers what it was asked."""

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
    """What the stand-in answers: all nodes pass, all are equal, all victims are accepted, unless a test says otherwise.

    Attributes
    ----------
    refused
        Node -> reason why `filter` refuses it.
    scores
        Node -> points (0 to 10) in `prioritize`; 0 for nodes not named.
    victims
        What `preempt` makes of the proposed victims by node.
    hangs
        Verbs that get no answer, for as long as they are named here.
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
    """Serves on a loopback port between `start` and `stop`, and may be started again on the same port.

    It leaves out everything but the protocol: no knowledge of the cluster, no state between calls, no limits, no
    metrics. Connections stay open, as a real extender's should: schedulers do not repeat a call on a broken one.

    Parameters
    ----------
    certificate
        Certificate, key and authority files for https; callers without a certificate of the authority are refused then.
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
        """Close the port and every open connection, as the end of its process would."""
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
            return None  # who asked has given up long since
        return Reply(body=json.dumps(self.answers.of(call)).encode())

    def calls_for(self, pod: str, verb: str | None = None) -> list[Call]:
        """What was asked about a pod, in order."""
        return [call for call in self.calls if call.pod == pod and verb in (None, call.verb)]
