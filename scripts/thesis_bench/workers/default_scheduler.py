"""Where the default scheduler puts a pod that requests nothing.

Source: kubernetes/kubernetes, `pkg/scheduler/framework/plugins/noderesources` (least_allocated, balanced_allocation)
and `pkg/scheduler/util/pod_resources.go`: such a pod counts as 100 millicores and 200 MiB, and points are whole. Later
versions leave the balance of pods without requests out.
"""

from __future__ import annotations

from collections.abc import Sequence

CPU_MILLI = 100
MEMORY_MIB = 200


def points(pods: int, allocatable_milli: int, allocatable_mib: int) -> int:
    """What a node gets that would then hold so many pods.

    Examples
    --------
    Of 16 cores and 64 GiB a node with its fourth pod gets as much as one with its fifth and its sixth:

    >>> [points(pods, 16_000, 65_536) for pods in range(1, 8)]
    [198, 197, 197, 196, 196, 196, 194]
    """
    cpu, memory = min(1.0, CPU_MILLI * pods / allocatable_milli), min(1.0, MEMORY_MIB * pods / allocatable_mib)
    free_cpu = max(0, allocatable_milli - CPU_MILLI * pods) * 100 // allocatable_milli
    free_memory = max(0, allocatable_mib - MEMORY_MIB * pods) * 100 // allocatable_mib
    return (free_cpu + free_memory) // 2 + int((1.0 - abs(cpu - memory) / 2.0) * 100)


def choose(held: Sequence[int], ties: Sequence[int], allocatable_milli: int, allocatable_mib: int) -> int:
    """The node of most points; among equals the first of `ties`, where the scheduler itself would draw."""
    scored = [points(pods + 1, allocatable_milli, allocatable_mib) for pods in held]
    best = max(scored)
    return next(node for node in ties or range(len(held)) if scored[node] == best)
