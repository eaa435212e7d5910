"""Answers about cpu, memory and requests are joined by container and moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from recommender.records import RESOURCES, FloatArray, IntArray
from recommender.sources.prometheus_numbers import Answered, joined
from recommender.sources.prometheus_queries import Labels, UsageSettings


class ContainerName(NamedTuple):
    """What names a container in a cluster."""

    namespace: str
    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class UsageBlock:
    """What containers used over some time; rows by time, then by container.

    Attributes
    ----------
    containers
        Sorted; some may have no row.
    nodes, workloads
        Of each container, where its labels say.
    owner
        int64 (n,), a position in `containers`.
    timestamps
        int64 (n,), unix seconds.
    usage
        float64 (n, 2), cores and bytes. A moment at which only one of them is known has no row.
    requests
        float64 (n, 2), NaN where unknown.
    """

    containers: tuple[ContainerName, ...]
    nodes: tuple[str | None, ...]
    workloads: tuple[str | None, ...]
    owner: IntArray
    timestamps: IntArray
    usage: FloatArray
    requests: FloatArray

    def __len__(self) -> int:
        return len(self.owner)


def container_name(labels: Mapping[str, str], names: Labels) -> ContainerName:
    """Which container a series is about."""
    return ContainerName(labels.get(names.namespace, ""), labels.get(names.pod, ""), labels.get(names.container, ""))


def block_of(
    settings: UsageSettings, cpu: Sequence[Answered], memory: Sequence[Answered], requests: Sequence[Answered]
) -> UsageBlock:
    """Join the answers to the queries of cpu, memory and requests, each in as many parts as it came."""
    used, held, asked = joined(cpu), joined(memory), joined(requests)
    both = {container_name(one, settings.labels) for one in used.labels}
    containers = sorted(both & {container_name(one, settings.labels) for one in held.labels})
    rows = _Rows({name: at for at, name in enumerate(containers)})
    cpu_keys, cores = rows.column(used, settings.labels)
    memory_keys, held_bytes = rows.column(held, settings.labels)
    keys, at_cpu, at_memory = np.intersect1d(cpu_keys, memory_keys, assume_unique=True, return_indices=True)
    declared = [
        _looked_up(*rows.column(asked, settings.request_labels, resource=resource), keys) for resource in RESOURCES
    ]
    n_containers = max(len(containers), 1)
    return UsageBlock(
        tuple(containers),
        _commonest(held, settings.labels, settings.labels.node, rows),
        _commonest(held, settings.labels, settings.labels.workload, rows),
        keys % n_containers,
        keys // n_containers,
        np.column_stack([cores[at_cpu], held_bytes[at_memory]]),
        np.column_stack(declared),
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A number for each row of a block: time x containers + container, so that rows sort by time, then by name."""

    number: Mapping[ContainerName, int]

    def column(self, answered: Answered, names: Labels, **wanted: str) -> tuple[IntArray, FloatArray]:
        """Row numbers, increasing, and the largest value of each; of the series that have the wanted labels."""
        numbers = np.array(
            [
                self.number.get(container_name(one, names), -1) if wanted.items() <= one.items() else -1
                for one in answered.labels
            ],
            np.int64,
        )
        of_sample = numbers[answered.owner]
        known = of_sample >= 0
        keys = np.rint(answered.times_s[known]).astype(np.int64) * max(len(self.number), 1) + of_sample[known]
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], answered.values[known][order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        return keys[first], np.maximum.reduceat(values, first) if len(first) else values


def _looked_up(known: IntArray, values: FloatArray, keys: IntArray) -> FloatArray:
    """The value of each row, NaN where none is known."""
    if not len(known):
        return np.full(len(keys), np.nan)
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[at] == keys, values[at], np.nan)


def _commonest(answered: Answered, names: Labels, label: str | None, rows: _Rows) -> tuple[str | None, ...]:
    """Per container, the value of a label that most of its samples have."""
    best: dict[int, tuple[int, str]] = {}
    counts = np.bincount(answered.owner, minlength=len(answered.labels)).tolist()
    for count, labels in zip(counts, answered.labels, strict=True):
        at, text = rows.number.get(container_name(labels, names)), labels.get(label or "")
        if at is not None and text and (count, text) > best.get(at, (0, "")):
            best[at] = (count, text)
    return tuple(best[at][1] if at in best else None for at in range(len(rows.number)))
