"""Which of several replicas acts: the one that holds the Lease."""

from __future__ import annotations

import logging
import os
import secrets
import socket

from recommender.cluster.access.connection import Api
from recommender.cluster.access.rate import TokenBucket
from recommender.cluster.lease import Candidate, LeaderElection

log = logging.getLogger(__name__)


def election(api: Api, namespace: str, lease: str) -> LeaderElection:
    """Asks for a Lease once it is started, beside whatever else asks the API server."""
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    candidate = Candidate(api.apart(TokenBucket(5, 10)), namespace, lease, identity)
    return LeaderElection(
        candidate, on_won=lambda: log.info("leading"), on_lost=lambda: log.warning("no longer leading")
    )
