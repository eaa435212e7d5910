"""The words by which pods and the controller speak of gangs."""

from __future__ import annotations

from extender.pods.pod import PREFIX

GATE = f"{PREFIX}gang"
"""The scheduling gate that holds a member back until all may go."""

GANG_LABEL = f"{PREFIX}gang"
"""Names the gang within its namespace."""

SIZE = f"{PREFIX}gang-size"
"""Label or annotation: how many pods it takes."""

RESERVED_NODE = f"{PREFIX}gang-node"
"""Annotation of the controller on a pod whose gate it has opened: the node that was reserved for it. For people; nobody
acts on it, as whoever may make a pod could write it."""

ENDLESS_OWNERS = ("DaemonSet", "Node", "ReplicaSet", "StatefulSet", "ReplicationController")
"""Owners whose pods run until somebody deletes them: no gang may count on their end."""

GROUPS = (
    (GANG_LABEL, SIZE),
    ("jobset.sigs.k8s.io/jobset-name", ""),
    ("training.kubeflow.org/job-name", ""),
    ("volcano.sh/job-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.volcano.sh/group-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member"),
    ("scheduling.x-k8s.io/pod-group", ""),
    ("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
    ("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"),
    ("batch.kubernetes.io/job-name", ""),
)
"""(label or annotation that names a group, the one that tells its size), the widest first. Ours, JobSet, Kubeflow,
Volcano, Coscheduling (now and as it was), Kueue, and a plain Job. `phasewise.dev/gang-size` tells the size of any."""
