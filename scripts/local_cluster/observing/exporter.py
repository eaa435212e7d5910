"""A page of metrics over https with a certificate of any authority, for tests of trust."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator

from local_cluster.identities import Authority
from local_cluster.played_http import Played, Reply, played
from local_cluster.rig import LOOPBACK

PAGE = b"# TYPE exported_answer gauge\nexported_answer 42\n"


@contextlib.contextmanager
def exporter(authority: Authority, name: str) -> Iterator[Played]:
    """Serve `PAGE` at every path, with a certificate for loopback by the authority.

    Only requests of clients that accept the certificate are recorded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.serving(name, LOOPBACK))
    page = Reply(body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
    with played(lambda _: page, context) as served:
        yield served
