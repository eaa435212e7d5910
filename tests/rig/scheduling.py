"""Further kube-schedulers beside the default one, with or without an HTTP extender."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.rig.control_plane import scheduler_flags
from tests.rig.installing import installed_weight
from tests.rig.processes import Server
from tests.rig.rig import LOOPBACK, Rig

SCHEDULER_USER = "system:kube-scheduler"
"""User with the built-in rights of a scheduler; each scheduler has its own certificate for it."""

CALL_TIMEOUT = "30s"
"""Upstream: 5 s. Calls must not fail on a busy machine."""


def start_scheduler(
    rig: Rig,
    name: str,
    *,
    extender: str | None,
    verbs: Sequence[str],
    ignorable: bool = False,
    percentage_of_nodes_to_score: int = 100,
    profile: Mapping[str, Any] | None = None,
    further_profiles: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Server:
    """Start a kube-scheduler for pods with `schedulerName: <name>`; restart a running one if its configuration differs.
    The extender has the weight of our manifests.

    `extender`: URL of an HTTP extender, called for every pod with node names only; None for none. For `https://`, the
        cluster's authority is trusted, and a client certificate is sent.
    `verbs`: Verbs that the extender offers under paths of the same names: `filter`, `prioritize`, `preempt`, `bind`.
    `ignorable`: Whether pods are placed without the extender if `filter` fails; `prioritize` may always fail.
    `percentage_of_nodes_to_score`: Share of the nodes that the extender is called with, in clusters of more than a
        hundred.
    `profile`: `plugins` and `pluginConfig` of its profiles, if they differ from upstream's.
    `further_profiles`: Names of profiles beside that of its own name.
    `environment`: Variables in addition to those of all Go servers.
    """
    file = rig.folder / "schedulers" / f"{name}.yaml"
    kubeconfig = rig.kubeconfig(f"scheduler-{name}", SCHEDULER_USER)
    configuration: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": percentage_of_nodes_to_score,
        "podInitialBackoffSeconds": 1,  # tests need not wait long
        "podMaxBackoffSeconds": 2,
        "profiles": [{"schedulerName": each, **(profile or {})} for each in (name, *further_profiles)],
    }
    if extender is not None:
        offered = {f"{verb}Verb": verb for verb in verbs}
        given = {
            "urlPrefix": extender,
            "weight": installed_weight(),
            "httpTimeout": CALL_TIMEOUT,
            "ignorable": ignorable,
        }
        if extender.startswith("https://"):
            certificate, key = rig.certificate(f"scheduler-{name}", SCHEDULER_USER)
            files = {"caFile": str(rig.authority.file), "certFile": str(certificate), "keyFile": str(key)}
            given |= {"enableHTTPS": True, "tlsConfig": files}
        configuration["extenders"] = [{**given, **offered, "nodeCacheCapable": True}]
    server, text, environment = f"scheduler-{name}", yaml.safe_dump(configuration), environment or {}
    if running := rig.servers.get(server):
        if running.running and file.read_text() == text and running.environment == environment:
            return running
        running.stop()
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    port = rig.ports.free()
    command: list[str | Path] = [rig.binaries["kube-scheduler"], *scheduler_flags(rig, file, kubeconfig, port)]
    ready = rig.answers(f"https://{LOOPBACK}:{port}/readyz")
    return rig.start(server, command, ready=ready, environment=environment)
