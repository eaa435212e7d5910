"""The extender's own code in the GPU rows: asked as a scheduler asks it, about nodes and pods as the API shows them."""

from __future__ import annotations

from typing import Any

from extender.protocol.wire import Asked
from extender.settings import Settings
from placement_bench.gpu_fleet import Fleet, Placement
from placement_bench.gpu_trace import WHOLE, Integers
from placement_bench.worlds import World, node_json, pod_json

GPU, SHARE = "nvidia.com/gpu", "nvidia.com/gpucores"


class Ours:
    """Nothing is known of the pods but what they ask for; a share of a GPU is asked for in per cent."""

    def __init__(self, fleet: Fleet, seed: int) -> None:
        self._fleet, self._world = fleet, World(Settings())
        self._names = [f"node-{node:04}" for node in range(len(fleet.cpu_milli))]
        self._place_of = {name: node for node, name in enumerate(self._names)}
        for name, (cpu_milli, memory_mib, gpus) in zip(self._names, fleet.size.T.astype(int).tolist(), strict=True):
            extended = {GPU: str(gpus // WHOLE)}
            self._world.put(node_json(name, f"{cpu_milli}m", f"{memory_mib}Mi", extended=extended))

    def place(self, kind: int, pod: int, fitting: Integers) -> Placement | None:
        raw, names = self._pod(kind, pod), [self._names[node] for node in fitting.tolist()]
        self._world.put(raw)
        refused = self._world.placer.filter(Asked(raw, names, None)).refused
        left = [name for name in names if name not in refused] if refused else names
        if not left:
            return None
        if len(left) > 1:
            self._world.placer.prioritize(Asked(raw, left, None))
        decision = self._world.decisions.of(raw["metadata"]["uid"])
        assert decision is not None  # noqa: S101  it was asked about just now
        raw["spec"]["nodeName"], raw["status"]["phase"] = decision.favourite, "Running"
        self._world.put(raw)
        return self._fleet.take(self._place_of[decision.favourite], kind)

    def ended(self, kind: int, pod: int, placement: Placement) -> None:
        self._world.state.drop_pod(f"uid-{pod}")

    def _pod(self, kind: int, pod: int) -> dict[str, Any]:
        kinds, asked = self._fleet.kinds, dict[str, str]()
        if kinds.gpus[kind]:
            asked[GPU] = str(kinds.gpus[kind])
        if 0 < kinds.gpu_milli[kind] < WHOLE:
            asked[SHARE] = str(kinds.gpu_milli[kind] // 10)
        cpu, memory = f"{kinds.cpu_milli[kind]}m", f"{kinds.memory_mib[kind]}Mi"
        return pod_json(str(pod), cpu=cpu, memory=memory, extended=asked)
