"""Whose a container is: what is kept from round to round is what would be worked out anew."""

from __future__ import annotations

import numpy as np
import pytest

from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.objects.vpa import read_vpa
from recommender.live.advice.lead_time import LeadTime
from recommender.live.advice.workload import Workload
from recommender.live.owners.homes import Homes
from recommender.live.owners.placing import Placing
from recommender.live.tally import Report
from recommender.live.view.view import Place
from tests.recommender.live.test_round import Records, a_pod, a_vpa

JOBS = ("a", "b", "c")


def placing(records: Records) -> Placing:
    return Placing(records, Homes(), LeadTime(None, 1.0), lambda: records.now_s)


def owners(placed: Placing, pods: int) -> dict[str, str | None]:
    """The job that speaks for each pod."""
    found = {}
    for number in range(pods):
        instance, home = placed.homes.at(Place("ns", f"pod-{number}", "main")) or (None, None)
        found[f"pod-{number}"] = None if home is None else home.workload.vpa.key.name
        if instance is not None and home is not None:
            assert placed.homes[instance] is home
            assert home.pod in home.workload.selection.pods
    return found


def test_of_two_vpas_for_one_pod_the_first_has_it_and_the_second_once_it_is_alone() -> None:
    records = Records()
    both, other = a_pod("pod-0"), a_pod("pod-1")
    records.pods = {"a": [both], "b": [both, other]}
    workloads = [Workload(read_vpa(a_vpa(name))) for name in ("a", "b")]
    placed = placing(records)
    placed.select(workloads, Report())
    assert owners(placed, 2) == {"pod-0": "a", "pod-1": "b"}
    records.pods["a"] = []
    placed.select(workloads, Report())
    assert owners(placed, 2) == {"pod-0": "b", "pod-1": "b"}
    records.pods["a"] = [both]
    placed.select(workloads, Report())
    assert owners(placed, 2) == {"pod-0": "a", "pod-1": "b"}


@pytest.mark.parametrize("start", range(4))
def test_what_is_kept_is_what_would_be_worked_out_anew(start: int) -> None:
    chance, records, pods = np.random.default_rng(start), Records(), 6
    workloads = {name: Workload(read_vpa(a_vpa(name))) for name in JOBS}
    kept = placing(records)
    for _ in range(60):
        for name in JOBS:
            if chance.random() < 0.3:
                chosen = np.flatnonzero(chance.random(pods) < 0.4).tolist()
                records.pods[name] = [a_pod(f"pod-{number}", cpu=str(chance.integers(1, 4))) for number in chosen]
        if chance.random() < 0.1:
            name = str(chance.choice(JOBS))
            workloads[name] = Workload(read_vpa(a_vpa(name)))  # made again
        there = [one for one in workloads.values() if chance.random() < 0.9]
        kept.select(there, Report())
        anew = placing(records)
        anew.select(there, Report())
        assert owners(kept, pods) == owners(anew, pods)


def test_while_nothing_changes_nothing_is_placed_anew_and_a_change_is_told() -> None:
    class Steady(Records):
        """Gives the very same answer while pods are the same, as the real one does."""

        def select(self, vpa):  # type: ignore[no-untyped-def]
            known = self.__dict__.setdefault("known", {})
            found = super().select(vpa)
            if known.get(vpa.key) is None or known[vpa.key].pods is not found.pods:
                known[vpa.key] = found
            return known[vpa.key]

    records = Steady()
    records.pods = {"a": [a_pod("pod-0")]}
    workload = Workload(read_vpa(a_vpa("a")))
    placed = placing(records)
    placed.select([workload], Report())
    version = placed.homes.version
    placed.select([workload], Report())
    assert placed.homes.version == version
    records.pods = {"a": [a_pod("pod-1")]}
    placed.select([workload], Report())
    assert placed.homes.version != version
    assert owners(placed, 2) == {"pod-0": None, "pod-1": "a"}
    assert workload.vpa.key == ObjectKey("ns", "a")
