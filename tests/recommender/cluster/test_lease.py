"""Leader election on a Lease of a real API server, where possible on a simulated clock."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from recommender.cluster.access.connection import Api
from recommender.cluster.lease import LeaderElection, LeaseTimes
from recommender.cluster.paths import LEASES, path_of
from tests.fakes.clock import Clock
from tests.rig.cluster import Cluster
from tests.rig.waiting import patience, wait_until

NAME = "phasewise-recommender"

Election = Callable[[str], LeaderElection]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def candidate(api: Api, namespace: str, clock: Clock) -> Election:
    return lambda identity: LeaderElection(
        api, namespace, NAME, identity, clock=clock, wall_clock=lambda: 1_787_400_000.25 + clock.now_s - 1000
    )


def spec(api: Api, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(path_of(LEASES, namespace, NAME))["spec"]
    return found


def test_the_second_candidate_waits_for_the_whole_duration_of_the_lease(
    api: Api, namespace: str, candidate: Election, clock: Clock
) -> None:
    one, two = candidate("one"), candidate("two")
    assert one.try_acquire_or_renew()
    assert one.is_leader
    assert spec(api, namespace) == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-08-22T12:00:00.250000Z",
        "renewTime": "2026-08-22T12:00:00.250000Z",
        "leaseTransitions": 0,
    }
    assert not two.try_acquire_or_renew()
    assert two.holder == "one"

    clock.now_s += 14
    assert one.try_acquire_or_renew()  # renewed just in time, so the second waits from the beginning
    assert spec(api, namespace)["acquireTime"] == "2026-08-22T12:00:00.250000Z"
    assert not two.try_acquire_or_renew()
    clock.now_s += 14.9
    assert not two.try_acquire_or_renew()
    assert not one.is_leader, "it ends after ten seconds without renewal, five before another may take over"
    clock.now_s += 0.2
    assert two.try_acquire_or_renew()
    assert spec(api, namespace)["leaseTransitions"] == 1
    assert not one.try_acquire_or_renew()
    assert one.holder == "two"


def test_a_released_lease_is_acquired_at_once(api: Api, namespace: str, candidate: Election) -> None:
    one, two = candidate("one"), candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    one.release()
    assert not one.is_leader
    assert spec(api, namespace)["holderIdentity"] == ""
    assert two.try_acquire_or_renew()
    one.release()
    assert spec(api, namespace)["holderIdentity"] == "two", "only the holder can release it"


def test_a_lease_acquired_between_reading_and_renewing_is_not_overwritten(
    api: Api, namespace: str, candidate: Election, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = candidate("one"), candidate("two")
    one.try_acquire_or_renew()
    two.try_acquire_or_renew()
    clock.now_s += 16
    get = api.get

    def get_and_be_overtaken(path: str, **options: Any) -> dict[str, Any]:
        found = get(path, **options)
        monkeypatch.setattr(api, "get", get)
        assert two.try_acquire_or_renew()
        return found

    monkeypatch.setattr(api, "get", get_and_be_overtaken)
    assert not one.try_acquire_or_renew()
    assert spec(api, namespace)["holderIdentity"] == "two"


@pytest.fixture
def election(api: Api, namespace: str, caplog: pytest.LogCaptureFixture) -> Election:
    caplog.set_level(logging.INFO, logger="recommender.cluster.lease")

    def elected(identity: str) -> LeaderElection:
        times = LeaseTimes(duration_s=2, renew_deadline_s=1.2, retry_s=0.1)
        return LeaderElection(api, namespace, NAME, identity, times=times)

    return elected


def test_one_candidate_leads_and_once_it_stops_the_other_does(
    election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = election("one"), election("two")
    one.start()
    wait_until(lambda: one.is_leader, "the first")
    two.start()
    wait_until(lambda: two.holder == "one", "the second to see it")
    assert not two.is_leader
    began_s = time.monotonic()
    one.stop()
    wait_until(lambda: two.is_leader, "the second")
    assert time.monotonic() - began_s < 1.5 * patience(), "released, not expired"
    two.stop()
    assert caplog.messages == ["one became the leader", "two became the leader"]


LEADER = """
import sys, threading, time
from pathlib import Path
from recommender.cluster.access.connection import connect
from recommender.cluster.lease import LeaderElection, LeaseTimes
config, namespace, name = sys.argv[1:]
times = LeaseTimes(duration_s=2, renew_deadline_s=1.2, retry_s=0.1)
election = LeaderElection(connect(Path(config), user_agent="t"), namespace, name, "killed", times=times).start()
while not election.is_leader:
    time.sleep(0.01)
print("won", flush=True)
threading.Event().wait()
"""


def test_a_killed_leader_is_replaced_once_its_lease_has_expired(
    cluster: Cluster, api: Api, namespace: str, election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = [sys.executable, "-c", LEADER, str(cluster.kubeconfig("admin")), namespace, NAME]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as leader:
        try:
            assert leader.stdout is not None
            assert leader.stdout.readline() == "won\n"
            other = election("other")
            other.start()
            wait_until(lambda: other.holder == "killed", "the other to see it")
        finally:
            leader.kill()
    began_s = time.monotonic()
    assert not other.is_leader
    wait_until(lambda: other.is_leader, "the other to lead", timeout_s=10, every_s=0.01)
    assert time.monotonic() - began_s > 1.0, "it might have been alive until its lease expired"
    assert spec(api, namespace)["leaseTransitions"] == 1
    other.stop()
    assert caplog.messages == ["other became the leader"]


def test_a_leader_that_cannot_renew_logs_its_loss_and_leads_again_later(
    cluster: Cluster, election: Election, caplog: pytest.LogCaptureFixture
) -> None:
    def logged(*messages: str) -> bool:
        """Whether these are its first messages about leadership."""
        return [each for each in caplog.messages if each.startswith("one ")][: len(messages)] == list(messages)

    one = election("one")
    one.start()
    wait_until(lambda: one.is_leader, "the leader")
    api_server = cluster.servers["kube-apiserver"]
    api_server.pause()  # paused, not stopped: a restart takes seconds
    try:
        wait_until(lambda: logged("one became the leader", "one is no longer the leader"), "the loss", timeout_s=5)
        assert not one.is_leader
        assert one.problem
    finally:
        api_server.resume()
    # A server that has just come back may be late once more, and the deadline is short here.
    again = ("one became the leader", "one is no longer the leader", "one became the leader")
    wait_until(lambda: logged(*again) and one.is_leader, "the leader again", timeout_s=20)
    assert not one.problem
    one.stop()
