"""Jobs with large images that come and go without servers: how many are pulled, and how uneven do nodes get?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from extender.settings import DEFAULT_WEIGHTS, Settings
from tests.worlds.placement import NOON_S, Json, World, node_json, pod_json

NODES, KINDS, IMAGE_BYTES = 20, 6, 8_000_000_000
PLAYED_MIN, NEW_TAGS_EVERY_MIN, JOBS_PER_MIN = 600, 120, 1.0
RUNS_MIN = (30, 90)
WEIGHTS = (0.0, DEFAULT_WEIGHTS["images"], 0.1, 1.0)


@dataclass(frozen=True)
class Pulls:
    """Totals over all seeds; `spread`: mean difference between the fullest and the emptiest node, in jobs."""

    weight: float
    jobs: int
    pulls: int
    spread: float


def play_images(seeds: Sequence[int]) -> list[Pulls]:
    found = []
    for weight in WEIGHTS:
        plays = [_play(weight, seed) for seed in seeds]
        jobs, pulls, spreads = zip(*plays, strict=True)
        found.append(Pulls(weight, sum(jobs), sum(pulls), float(np.mean(spreads))))
    return found


def _play(weight: float, seed: int) -> tuple[int, int, float]:
    """Jobs, pulls and mean spread. Jobs run for half an hour to one and a half; all images are built anew at times."""
    world, chance = World(Settings(weights={**DEFAULT_WEIGHTS, "images": weight})), np.random.default_rng(seed)
    stored = {f"n{number:02}": set[str]() for number in range(NODES)}
    world.put(*(_node(name, images) for name, images in stored.items()))
    held, ends, spreads = dict.fromkeys(stored, 0), list[tuple[int, str, str]](), list[int]()
    jobs = pulls = 0
    for minute in range(PLAYED_MIN):
        world.clock.now_s = NOON_S + 60.0 * minute
        while ends and ends[0][0] <= minute:
            _, uid, node = heappop(ends)
            world.state.drop_pod(uid)
            held[node] -= 1
        for _ in range(int(chance.poisson(JOBS_PER_MIN))):
            image, jobs = f"registry/train-{chance.integers(KINDS)}:v{minute // NEW_TAGS_EVERY_MIN}", jobs + 1
            node = world.place(_job(jobs, image))
            world.put(_job(jobs, image, node))
            held[node] += 1
            heappush(ends, (minute + int(chance.integers(*RUNS_MIN)), f"uid-job-{jobs}", node))
            if image not in stored[node]:
                pulls += 1
                stored[node].add(image)
                world.put(_node(node, stored[node]))
        spreads.append(max(held.values()) - min(held.values()))
    return jobs, pulls, float(np.mean(spreads))


def _node(name: str, images: Collection[str]) -> Json:
    node = node_json(name, cpu="16", memory="64Gi")
    node["status"]["images"] = [{"names": [image], "sizeBytes": IMAGE_BYTES} for image in sorted(images)]
    return node


def _job(number: int, image: str, node: str = "") -> Json:
    pod = pod_json(f"job-{number}", node=node)
    pod["spec"]["containers"][0]["image"] = image
    return pod
