"""The words by which pods and the controller speak of gangs."""

from __future__ import annotations

from extender.pods.pod import PREFIX

COMPONENT = "phasewise-controller"
"""Who writes the events."""

GATE = f"{PREFIX}gang"
"""The scheduling gate that holds a member back until all may go."""

RESERVED_NODE = f"{PREFIX}gang-node"
"""Annotation of the controller on a pod whose gate it has opened: the node that was reserved for it. For people; nobody
acts on it, as whoever may make a pod could write it."""

ENDLESS_OWNERS = ("DaemonSet", "Node", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Owners whose pods run until somebody deletes them: no gang may count on their end."""
