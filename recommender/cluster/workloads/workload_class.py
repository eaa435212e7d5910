"""The workload class of a pod: what makes runs of one job comparable with each other."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from recommender.base.records import SERVICE_KINDS
from recommender.cluster.objects.pods import Pod
from recommender.cluster.workloads.kinds import BARE_POD_LABELS, JOB_KINDS, RANDOM_SUFFIX
from recommender.cluster.workloads.ownership import Workload

WORKLOAD_LABEL = "phasewise.dev/workload"

STABLE_KINDS = SERVICE_KINDS | {"CronJob"}
"""Controllers that are updated, not created per run: their names have no counter (`resnet-50` is a name)."""

_COUNTER = re.compile(r"-\d+$")
_LONG_COUNTER = re.compile(r"-\d{4,}$")
_HEX_HASH = re.compile(r"-(?=[a-z]*\d)(?=[0-9]*[a-z])[0-9a-f]{6,}$")
_RANDOM_SUFFIX = re.compile(RANDOM_SUFFIX)
_MADE_NAMES = {one.kind: re.compile(one.made_name) for one in JOB_KINDS.values() if one.made_name}

_VARIES = re.compile(r"\d+")
"""In a command: runs of one program differ in their numbers, paths and dates included."""

MAX_NAME_CHARS, PROGRAM_CHARS = 63, 6
_INVALID_CHARS = re.compile(r"[^a-z0-9]+")


def workload_class(pod: Pod, owners: Sequence[Workload]) -> str:
    """The workload class, a valid object name, unique within its namespace; `owners` are the controllers, nearest
    first.

    The first of: the label `phasewise.dev/workload` of the pod or a controller above it; the CronJob; the generateName
    of the top controller, or its name without the counter; Airflow's task, or the generateName, of a bare pod; its
    images and commands.

    Anybody may call another program by an old name, so a name alone makes no class of runs: what a run executes is part
    of it, and which part of a job, its leader or a worker. A label is the owner's word, and a controller of services
    has its pods replaced as a whole.
    """
    for labels in (pod.labels, *(owner.labels for owner in owners)):
        if label := labels.get(WORKLOAD_LABEL):
            return _as_name(label)
    if owners:
        named = [(owner.kind, owner.name) for owner in owners]
        name = class_by_owners(named, owners[-1].generate_name)
        return name if owners[-1].kind in SERVICE_KINDS else _with_program(_with_part(name, pod, owners[-1]), pod)
    for names in BARE_POD_LABELS:
        if all(name in pod.labels for name in names):
            return _with_program(_as_name("-".join(pod.labels[name] for name in names)), pod)
    return _with_program(_as_name(pod.generate_name), pod) if pod.generate_name else _by_images(pod)


def class_by_owners(owners: Sequence[tuple[str, str]], generate_name: str = "") -> str:
    """The class by (kind, name) of a pod's controllers, at least one, nearest first; the last has this generateName."""
    kind, name = next((owner for owner in owners if owner[0] == "CronJob"), owners[-1])
    if kind in _MADE_NAMES and not generate_name:
        name = _MADE_NAMES[kind].sub("", name)
    return _as_name(name if kind in STABLE_KINDS else generate_name or without_counter(name))


def without_counter(name: str) -> str:
    """The name of a run without its counter.

    Removes one counter or hash, then further hashes and long numbers (dates, times), but no second short number.

    Examples
    --------
    >>> without_counter("bert-17"), without_counter("bert-x7k2p"), without_counter("resnet-50-20261121-093000")
    ('bert', 'bert', 'resnet-50')
    """
    patterns = (_COUNTER, _HEX_HASH, _RANDOM_SUFFIX)
    while True:
        shorter = next((rest for pattern in patterns if (rest := pattern.sub("", name)) != name), name)
        if shorter in ("", name):
            return name
        name, patterns = shorter, (_LONG_COUNTER, _HEX_HASH, _RANDOM_SUFFIX)


def _with_part(name: str, pod: Pod, top: Workload) -> str:
    """The name with the part of a job that a pod is, as its controller labels it."""
    kind = top.ref.job_kind
    part = pod.labels.get(kind.part_label, "") if kind is not None else ""
    room = max(8, MAX_NAME_CHARS - PROGRAM_CHARS - 2 - len(part))
    return _as_name(f"{name[:room]}-{part}") if part else name


def _with_program(name: str, pod: Pod) -> str:
    """The name with a hash of the program: images without version, and commands without numbers and values of options.

    A new version and another learning rate are still the same program; another script or subcommand is not.
    """
    program = "\0".join(
        "\0".join((container.name, _repository(container.image), *_without_values(container.command)))
        for container in sorted(pod.containers, key=lambda container: container.name)
    )
    shortened = name[: MAX_NAME_CHARS - PROGRAM_CHARS - 1].rstrip("-")
    return f"{shortened}-{hashlib.sha256(program.encode()).hexdigest()[:PROGRAM_CHARS]}"


def _without_values(command: Sequence[str]) -> list[str]:
    """The words of a command that name the program and its options.

    >>> _without_values(["python", "train.py", "--lr", "0.1", "--epochs=3", "--amp", "data/2026-11-28"])
    ['python', 'train.py', '--lr', '--epochs', '--amp']
    """
    kept: list[str] = []
    for before, word in zip(("", *command), command, strict=False):
        if word.startswith("-"):
            kept.append(_VARIES.sub("#", word.split("=", 1)[0]))
        elif not before.startswith("-") or "=" in before:
            kept.append(_VARIES.sub("#", word))
    return kept


def _repository(image: str) -> str:
    """An image without tag and digest; a port of its registry stays."""
    path, _, last = image.split("@", 1)[0].rpartition("/")
    return f"{path}/{last.split(':', 1)[0]}"


def _by_images(pod: Pod) -> str:
    content = "\0".join("\0".join((container.image, *container.command)) for container in pod.containers)
    image = pod.containers[0].image if pod.containers else "none"
    return f"{_as_name(_repository(image).rpartition('/')[2])}-{hashlib.sha256(content.encode()).hexdigest()[:10]}"


def _as_name(text: str) -> str:
    """Convert to a valid object name; labels, images and owner names may contain other characters."""
    name = _INVALID_CHARS.sub("-", text.lower()).strip("-")[:MAX_NAME_CHARS].strip("-")
    return name or "none"
