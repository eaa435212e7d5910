"""Several replicas: who of them acts, and which part of the cluster is whose."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from recommender.cli.common import DURATION, Parsed
from recommender.cli.grouped import grouped
from recommender.cluster.lease import LeaderElection, LeaseTimes
from recommender.errors import Misuse
from recommender.live.view.scope import Shard, parse_shard
from recommender.units import format_duration

LEASE_GIVEN_BACK_WITHIN_S = 0.8
"""With what `service.ENDS_WITHIN_S` takes before, less than ten seconds."""

_LEASE = LeaseTimes()
_lease = grouped("Several replicas", _LEASE)

LEASE_OPTIONS = (
    _lease("--leader-elect", is_flag=True, help="Act only while holding a Lease: the other replicas stand by."),
    _lease(
        "--leader-elect-resource-namespace",
        "--lease-namespace",
        "lease_namespace",
        default="kube-system",
        help="Where that Lease lies.",
    ),
    _lease(
        "--leader-elect-resource-name",
        "lease_name",
        default="phasewise-recommender",
        help="Its name; a shard appends its own: phasewise-recommender-0-of-3.",
    ),
    _lease(
        "--leader-elect-lease-duration",
        "lease_duration_s",
        default=format_duration(_LEASE.duration_s),
        type=DURATION,
        help="A leader that is silent for so long has lost it.",
    ),
    _lease(
        "--leader-elect-renew-deadline",
        "renew_deadline_s",
        type=DURATION,
        help="A leader that cannot renew it for so long stops acting.",
    ),
    _lease(
        "--leader-elect-retry-period",
        "retry_s",
        type=DURATION,
        help="How often it is renewed, and asked for.",
    ),
    _lease(
        "--shard",
        type=Parsed("I/N", parse_shard),
        default="0/1",
        help="Of N groups of namespaces only the I-th, counted from 0; each of 0/3, 1/3, 2/3 elects its own leader.",
    ),
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """How several replicas share the work: whether and where they elect a leader, and which shard this one is of."""

    elect: bool
    namespace: str
    lease: str
    times: LeaseTimes
    shard: Shard


def make_replicas(
    leader_elect: bool,
    lease_namespace: str,
    lease_name: str,
    lease_duration_s: float,
    renew_deadline_s: float,
    retry_s: float,
    shard: Shard,
) -> Replicas:
    if not lease_duration_s > renew_deadline_s > 2 * retry_s:
        raise Misuse(
            f"the Lease holds {lease_duration_s:g}s, its holder gives up after {renew_deadline_s:g}s and tries each "
            f"{retry_s:g}s: the first must be above the second, that above twice the third, or two may lead at once."
        )
    times = LeaseTimes(lease_duration_s, renew_deadline_s, retry_s)
    return Replicas(leader_elect, lease_namespace, shard.lease(lease_name), times, shard)


def give_back(election: LeaderElection) -> None:
    """Give the lease back if the server answers; else it runs out by itself, and nobody waits for that here."""
    giving = threading.Thread(target=election.stop, name="give back the lease", daemon=True)
    giving.start()
    giving.join(LEASE_GIVEN_BACK_WITHIN_S)
