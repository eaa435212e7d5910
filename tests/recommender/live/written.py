"""Reads back what the recommender wrote to the cluster."""

from __future__ import annotations

from typing import Any

from kubernetes.client.exceptions import NotFoundException

from tests.rig.autoscaling import API_GROUP, API_VERSION, AUTOSCALERS, CHECKPOINTS
from tests.rig.rig import Rig
from tests.rig.waiting import wait_until

Json = dict[str, Any]


def status_of(rig: Rig, namespace: str, vpa: str) -> Json:
    """A VPA's status; empty before the first write."""
    found = rig.custom.get_namespaced_custom_object(API_GROUP, API_VERSION, namespace, AUTOSCALERS, vpa)
    return dict(found.get("status", {}))


def profile_of(rig: Rig, namespace: str, vpa: str) -> Json:
    """The PhaseProfile of a VPA, or of a class."""
    found: Json = rig.custom.get_namespaced_custom_object("phasewise.dev", "v1alpha1", namespace, "phaseprofiles", vpa)
    return found


def wait_for_no_profile(rig: Rig, namespace: str, vpa: str) -> None:
    def gone() -> bool:
        try:
            profile_of(rig, namespace, vpa)
        except NotFoundException:
            return True
        return False

    wait_until(gone, f"the profile of {vpa} to go", timeout_s=60)


def samples_of(rig: Rig, namespace: str, checkpoint: str) -> int:
    found = rig.custom.get_namespaced_custom_object(API_GROUP, API_VERSION, namespace, CHECKPOINTS, checkpoint)
    return int(found["status"]["totalSamplesCount"])
