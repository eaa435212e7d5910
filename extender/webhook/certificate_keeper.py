"""Keeps a webhook's certificate: in a Secret that its replicas share, in the webhook's configuration, in a file.

In this order, and each step only where something differs: so that the API server trusts a certificate before anyone
shows it, and replicas may do this at the same time (the Secret is written by the version it was read at). The Secret is
there already, empty at first: who may make one may make one that gets the token of any account of its namespace.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extender.errors import BadCertificate
from extender.repeating import Repeating
from extender.webhook.certificates import Papers, new_papers
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import Conflict
from recommender.cluster.paths import path_of

log = logging.getLogger(__name__)

SECRETS = ("v1", "secrets")
CONFIGURATIONS = ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations")
PERIOD_S = 60.0

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the certificate is kept.

    Attributes
    ----------
    names
        Host names and addresses by which the API server reaches us.
    configuration
        The MutatingWebhookConfiguration that shall trust it.
    file
        Certificate and key, as a server reads them.
    """

    namespace: str
    secret: str
    names: Sequence[str]
    configuration: str
    file: Path


class CertificateKeeper:
    """`hold` is one look, which `holding` repeats."""

    def __init__(self, api: Api, kept: Kept, clock: Callable[[], float], period_s: float = PERIOD_S) -> None:
        self._api, self._kept, self._clock = api, kept, clock
        self.holding = Repeating("certificate", self.hold, lambda: period_s)

    def hold(self) -> None:
        """See to it that secret, configuration and file agree, and that the certificate is valid for a while.

        Raises
        ------
        ApiError
            The server could not be asked or refuses. Nothing is shown before it is trusted.
        """
        configuration = self._api.get(path_of(CONFIGURATIONS, None, self._kept.configuration))
        papers = self._shared()
        self._trust(papers, configuration)
        self._write(papers)

    def _shared(self) -> Papers:
        path = path_of(SECRETS, self._kept.namespace, self._kept.secret)
        secret = self._api.get(path)
        try:
            former: Papers | None = Papers.of_secret(secret.get("data") or {})
            if former is not None and not former.due(self._kept.names, self._clock()):
                return former
        except BadCertificate as error:
            log.warning("%s/%s: %s: made anew", self._kept.namespace, self._kept.secret, error)
            former = None
        papers = new_papers(self._kept.names, self._clock(), former)
        try:
            self._api.replace(path, {**secret, "data": papers.secret_data()})
        except Conflict:  # another replica was first
            return Papers.of_secret(self._api.get(path).get("data") or {})
        log.info("the certificate was renewed")
        return papers

    def _trust(self, papers: Papers, configuration: Json) -> None:
        path = path_of(CONFIGURATIONS, None, self._kept.configuration)
        bundle = base64.b64encode(papers.authorities).decode()
        hooks = configuration.get("webhooks") or []
        changes = [
            change
            for number, hook in enumerate(hooks)
            if hook["clientConfig"].get("caBundle") != bundle
            for change in (
                {"op": "test", "path": f"/webhooks/{number}/name", "value": hook["name"]},
                {"op": "add", "path": f"/webhooks/{number}/clientConfig/caBundle", "value": bundle},
            )
        ]
        if changes:
            self._api.patch(path, changes)

    def _write(self, papers: Papers) -> None:
        """Both in one file, put in place at once: a server reads it at every connection."""
        file, both = self._kept.file, papers.certificate + papers.key
        with contextlib.suppress(FileNotFoundError):
            if file.read_bytes() == both:
                return
        fresh = file.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(both)
        fresh.replace(file)
