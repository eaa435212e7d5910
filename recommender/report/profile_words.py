"""A PhaseProfile as text and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from recommender.base.units import format_cpu, format_duration, format_memory, parse_rfc3339_s
from recommender.cluster.objects.quantities import parse_quantity
from recommender.engine.container_arrays import BY_EXPERIENCE, POLICIES
from recommender.report.texts import printable

Json = Mapping[str, Any]


def render_profile(name: str, profile: Json, vpa: Json, now_s: float) -> RenderableType:
    """Show phase, forecast, reasons, guard rails and moves, from the `status` of a PhaseProfile and of its VPA."""
    published = {entry.get("containerName"): entry for entry in _entries(vpa)}
    since = f", as of {profile['updated']}" if "updated" in profile else ""
    parts: list[RenderableType] = [Text(printable(name + since), style="bold")]
    parts += [_cell(f"{kind}: {text}") for kind, text in (*_conditions(vpa), *_conditions(profile))]
    parts += [_cell(f"move: {profile['move']}")] if "move" in profile else []
    for container in profile.get("containers", []):
        parts.append(_container(container, published.get(container.get("name"), {}), now_s))
    if pods := profile.get("pods"):
        parts.append(_pods(pods))
    return Group(*parts)


def _cell(text: str) -> Text:
    """Untrusted text without terminal control characters and markup."""
    return Text(printable(text))


def _container(container: Json, published: Json, now_s: float) -> Table:
    table = Table(title=_cell(f"container {container.get('name')}"), show_header=False, title_justify="left")
    for label, text in reasons(container, published, now_s):
        table.add_row(label, _cell(text))
    return table


def phase_words(entry: Json) -> str:
    """A phase with what the container does in it: `phase 3 (waits on 0.1 cores)`."""
    if entry["phase"] < 0:
        return "unknown phase"
    doing = f" ({entry['doing']})" if entry.get("doing") else ""
    return f"phase {entry['phase']}{doing}"


def when_words(at: object, now_s: float) -> str:
    """When something expected at this time comes: `in 50s`, or `overdue by 20s`."""
    try:
        ahead_s = round(parse_rfc3339_s(str(at)) - now_s)
    except ValueError:
        return "at an unknown time"
    return f"in {format_duration(ahead_s)}" if ahead_s > 0 else f"overdue by {format_duration(max(1, -ahead_s))}"


def reasons(container: Json, published: Json, now_s: float) -> Iterator[tuple[str, str]]:
    """Yield (label, text) of a container's decision at a time, from its entries in the PhaseProfile and in the VPA."""
    if "phase" in container:
        seen = phase_words(container)
        yield "present", f"{seen} since {container.get('since', '?')}, confidence {container.get('confidence', 0):.0%}"
    else:
        yield "present", "no phase: too few samples"
    why = container.get("why", {})
    policy = why.get("policy", "?")
    others = (*POLICIES[BY_EXPERIENCE:], "histogram")  # which do not ask the graph
    unused = f"; CPU is decided by {policy} instead" if policy in others else ""
    for following in container.get("next", []):
        when = when_words(following.get("at"), now_s)
        yield "expected", f"{phase_words(following)}, {following['probability']:.0%}, {when}{unused}"
    if "forecastCpuCores" in why:
        forecast = f"{format_cpu(why['forecastCpuCores'])} cores, {format_memory(why['forecastMemoryBytes'])}"
        yield "forecast", f"{forecast} for the coming cycle"
    if "rule" in why:
        yield "rule", why["rule"]
    yield "policy", policy
    for rail in why.get("rails", []):
        yield "guard rail", f"{rail['name']}: {rail['words']}"
    for label, field in (("target", "target"), ("lower bound", "lowerBound"), ("upper bound", "upperBound")):
        if amounts := published.get(field):
            yield label, ", ".join(f"{resource} {_amount(resource, amounts[resource])}" for resource in sorted(amounts))
    for label, source, kind in (("declared", container, "declared"), ("default VPA", why, "default")):
        cpu_cores, memory_bytes = source.get(f"{kind}CpuCores"), source.get(f"{kind}MemoryBytes")
        amounts = [] if cpu_cores is None else [f"cpu {format_cpu(cpu_cores)}"]
        amounts += [] if memory_bytes is None else [f"memory {format_memory(memory_bytes)}"]
        if amounts:
            yield label, ", ".join(amounts)


def _amount(resource: str, text: str) -> str:
    """A published quantity; memory, often in bytes, in readable units."""
    return format_memory(parse_quantity(text)) if resource == "memory" else text


def _pods(pods: list[Json]) -> Table:
    table = Table("pod", "container", "phase", "progress", title="pods", title_justify="left")
    for pod in pods:
        phase = pod.get("phase", -1)
        seen = "unknown" if phase < 0 else str(phase)
        table.add_row(*map(_cell, (pod.get("name", "?"), pod.get("container", ""), seen, _progress(pod))))
    return table


def _progress(pod: Json) -> str:
    """Such as `evaluate, checkpoint of 2026-11-21T09:50:00Z, Watching since 2026-11-21T10:00:00Z`."""
    parts = [pod["stage"]] if "stage" in pod else []
    parts += [f"checkpoint of {pod['checkpointAt']}"] if "checkpointAt" in pod else []
    parts += [_growth(pod)] if "category" in pod else []
    return ", ".join(parts) or "not reported"


def _growth(pod: Json) -> str:
    since = f" since {pod['categorySince']}" if "categorySince" in pod else ""
    moved = f", moved {pod['progress']:.2%} in the last interval" if "progress" in pod else ""
    value = f", {pod['metric']} {pod['value']:g}" if "value" in pod else ""
    return f"{pod['category']}{since}{value}{moved}"


def _entries(vpa: Json) -> list[Json]:
    recommendation = vpa.get("recommendation") or {}
    return recommendation.get("containerRecommendations") or []


def _conditions(status: Json) -> Iterator[tuple[str, str]]:
    for condition in status.get("conditions") or []:
        text = " ".join(word for word in (condition.get("reason"), condition.get("message")) if word)
        yield condition["type"], f"{condition['status']}{'. ' + text if text else ''}"
