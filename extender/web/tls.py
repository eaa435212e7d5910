"""TLS with a certificate that is loaded again when its file is replaced."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from recommender.base.errors import Misuse

log = logging.getLogger(__name__)


def renewed_context(certificate: Path, key: Path | None, client_authority: Path | None) -> ssl.SSLContext:
    """The context of a server; Misuse if the certificate or its key is invalid."""
    load = partial(_context, certificate, key, client_authority)
    try:
        context = load()
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"--tls-certificate: not a valid certificate with its key ({error}).") from error
    context.sni_callback = _Renewal(certificate, load, context)  # called in every handshake
    return context


def _context(certificate: Path, key: Path | None, client_authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Renewal:
    """Loads a certificate again, for the handshakes that follow, once its file was replaced."""

    def __init__(self, certificate: Path, load: Callable[[], ssl.SSLContext], first: ssl.SSLContext) -> None:
        self._certificate, self._load, self._context = certificate, load, first
        self._loaded_mtime_ns = certificate.stat().st_mtime_ns

    def __call__(self, handshake: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
        try:
            if (mtime_ns := self._certificate.stat().st_mtime_ns) != self._loaded_mtime_ns:
                self._context, self._loaded_mtime_ns = self._load(), mtime_ns
        except (OSError, ssl.SSLError) as error:  # also while the key has not been replaced yet
            log.warning("the new certificate cannot be loaded: %s", error)
        handshake.context = self._context
