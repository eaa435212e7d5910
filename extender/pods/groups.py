"""Which pods belong together: the labels and annotations of all who group them, one list for gangs and for scores."""

from __future__ import annotations

from collections.abc import Mapping

from extender.pods.pod import PREFIX

GANG_LABEL = f"{PREFIX}gang"
"""Names the gang within its namespace."""

SIZE = f"{PREFIX}gang-size"
"""Label or annotation: how many pods it takes."""

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


def group_of(words: Mapping[str, str]) -> tuple[str, str]:
    """(name, size) of the group that a pod's labels and annotations tell of; empty where they do not."""
    for named, sized in GROUPS:
        if name := words.get(named):
            return f"{named}={name}", words.get(SIZE) or words.get(sized, "")
    return "", words.get(SIZE, "")
