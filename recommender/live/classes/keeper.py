"""What a round does about workload classes: what is kept of them, what they lead to expect, what a run adds."""

from __future__ import annotations

import numpy as np

from recommender.cluster.objects.metadata import ObjectKey
from recommender.live.advice.workload import Workload
from recommender.live.classes.classes import Classes
from recommender.live.fleet.fleet import Fleet
from recommender.live.fleet.member import Instance, Member
from recommender.live.owners.homes import Home, Homes
from recommender.live.tally import Report
from recommender.live.view.view import View

TIDIED_EVERY_S = 3600.0
"""How often classes that nothing is run of any more are looked for."""


class ClassKeeper:
    """Keeps the workload classes of the cluster.

    Parameters
    ----------
    ttl_s
        A class that nothing was run of for so long is forgotten.
    """

    def __init__(self, view: View, ttl_s: float) -> None:
        self.known = Classes()
        self._view, self._ttl_s = view, ttl_s
        self._read = False
        self._tidied_s = -np.inf

    def load_classes(self, report: Report) -> None:
        """What earlier runs taught, once; a class that cannot be read is reported and starts anew."""
        if self._read:
            return
        with report.sparing("workload classes"):
            kept = self._view.classes()
            self._read = True
            for key, (state, used_s) in kept.items():
                with report.sparing(f"workload class {key}"):
                    self.known.load(key, state, used_s)

    def may_expect(self, workload: Workload, fleet: Fleet) -> bool:
        """Whether a container of it has not used anything yet, or none is there and the next ones are thought of."""
        waiting = [pod for pod in workload.selection.pods if not pod.finished and not pod.deleting]
        return not waiting or not all(
            Instance(pod.key.namespace, pod.uid, container.name) in fleet.members
            for pod in waiting
            for container in pod.containers
        )

    def expect(self, workload: Workload, fleet: Fleet, homes: Homes, now_s: float) -> None:
        """What containers that have not used anything yet will need, told by their class and age."""
        workload.expected = {}
        waiting = [pod for pod in workload.selection.pods if not pod.finished and not pod.deleting]
        for pod in waiting:
            for container in pod.containers:
                instance = Instance(pod.key.namespace, pod.uid, container.name)
                home = homes.of(instance)
                if instance not in fleet.members and home is not None and home.workload is workload:
                    age_s = now_s - container.started_s if container.started_s is not None else 0.0
                    self._expect_one(workload, home.workload_class, container.name, age_s, fleet, now_s)
        if not waiting and workload.workload_class is not None:  # the next run of a CronJob is made with what stands
            key = ObjectKey(workload.vpa.key.namespace, workload.workload_class)
            for name in workload.books:
                self._expect_one(workload, key, name, 0.0, fleet, now_s)

    def learn(self, member: Member, home: Home, fleet: Fleet, now_s: float) -> bool:
        """A run that came to its end by itself, and was whole, adds to what is known of its class."""
        ended, key = home.container.terminated, home.workload_class
        if key is None or ended is None or ended.exit_code != 0 or home.container.restart_count > 0:
            return False
        curve = fleet.curves.curve(member.slot)
        duration_s = curve.duration_s
        if ended.finished_s is not None and ended.started_s is not None:
            duration_s = ended.finished_s - ended.started_s
        return self.known.learn(key, member.instance.container, curve, duration_s, now_s)

    def show(self, report: Report) -> None:
        """Write the PhaseProfiles of the classes that changed."""
        for key in sorted(self.known.changed) if self._read else ():
            with report.sparing(f"workload class {key}"):
                self._view.show_class(key, self.known.status(key))
                self.known.changed.discard(key)

    def tidy(self, homes: Homes, now_s: float, report: Report) -> None:
        """Now and then, forget classes that nothing is run of any more."""
        if not self._read or now_s - self._tidied_s < TIDIED_EVERY_S:
            return
        self._tidied_s = now_s
        in_use = homes.classes()
        for key in in_use:
            self.known.in_use(key, now_s)
        self.known.drop_untaught(in_use)
        for key in self.known.unused(now_s, self._ttl_s):
            with report.sparing(f"workload class {key}"):
                self._view.drop_class(key)
                self.known.forget(key)

    def _expect_one(
        self, workload: Workload, key: ObjectKey | None, name: str, age_s: float, fleet: Fleet, now_s: float
    ) -> None:
        runs = None if key is None else self.known.known(key, name)
        if (expected := fleet.expect(runs, age_s, now_s)) is not None:
            workload.expected.setdefault(name, []).append(expected)
