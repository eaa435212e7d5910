"""Progress from an annotation that a job, or whoever runs it, keeps on its pod."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.cluster.objects.pods import Pod
from recommender.errors import BadInput
from recommender.readings import PodName, Reading, Told, parse_reading

PROGRESS = "phasewise.dev/progress"
MOST_PROBLEMS = 20


class AnnotationProgress:
    """Reads `phasewise.dev/progress: loss=0.42 step=1200`; costs nothing, as pods are watched anyway."""

    name = "annotation"

    def take(self, pods: Sequence[Pod], now_s: float) -> Told:
        """What stands there now."""
        readings: dict[PodName, list[Reading]] = {}
        problems: dict[str, str] = {}
        for pod in pods:
            text = pod.annotations.get(PROGRESS)
            if text is None:
                continue
            try:
                readings[pod.key] = [parse_reading(text, f"pod {pod.key}", now_s)]
            except BadInput as error:
                if len(problems) < MOST_PROBLEMS:
                    problems[f"progress of {pod.key}"] = str(error)
        return Told(readings, problems)
