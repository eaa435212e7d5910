"""Runs that have ended: what their class learns of them."""

from __future__ import annotations

from recommender.engine.classes import Classes
from recommender.engine.containers import Containers
from recommender.engine.keys import Running, WorkloadKey
from recommender.engine.member import Member


def learn(
    classes: Classes, fleet: Containers, member: Member, running: Running, now_s: float, *, killed: bool = False
) -> bool:
    """A run that came to its end by itself, and was whole, adds to what is known of its class; False for another one.

    Of one that was killed for memory before it got there it is known now how much memory was enough.
    """
    ended, whole = running.ended, not (running.restarts or running.begun_by)
    if running.workload is None or ended is None or ended.exit_code != 0:
        return False
    key, container = WorkloadKey(member.instance.namespace, running.workload), member.instance.container
    memory = fleet.memory.run(member.slot)._replace(input_size=running.input_size)
    if not whole:
        if killed:
            classes.learn_memory(key, container, memory._replace(killed=True), now_s)
        return False
    curve = fleet.curves.curve(member.slot)
    duration_s = curve.duration_s
    if ended.finished_s is not None and ended.started_s is not None:
        duration_s = ended.finished_s - ended.started_s
    return classes.learn(key, container, curve, memory, duration_s, now_s)
