"""A page of metrics served over https under any authority, for tests of who is believed."""

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
    """Serve `PAGE` at every path, with a certificate for loopback that the authority signed.

    What was asked is known of those alone that took the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.serving(name, LOOPBACK))
    page = Reply(body=PAGE, headers={"Content-Type": "text/plain; version=0.0.4"})
    with played(lambda _: page, context) as served:
        yield served
