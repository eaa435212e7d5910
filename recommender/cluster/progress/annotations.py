"""Progress and stage from annotations of pods."""

from __future__ import annotations

from collections.abc import Sequence

from recommender.cluster.objects.pods import Pod
from recommender.errors import BadInput
from recommender.readings import PodName, ProgressUpdate, Reading, Stage, parse_reading, stage_of

PROGRESS_ANNOTATION, STAGE_ANNOTATION = "phasewise.dev/progress", "phasewise.dev/stage"
MAX_PROBLEMS = 20


class AnnotationProgress:
    """Reads `phasewise.dev/progress: loss=0.42 step=1200` and `phasewise.dev/stage: evaluate`."""

    name = "annotation"

    def take(self, pods: Sequence[Pod], now_s: float) -> ProgressUpdate:
        readings: dict[PodName, list[Reading]] = {}
        stages: dict[PodName, list[Stage]] = {}
        problems: dict[str, str] = {}
        for pod in pods:
            if (stage := stage_of({"stage": pod.annotations.get(STAGE_ANNOTATION)}, now_s, event=False)) is not None:
                stages[pod.key] = [stage]
            text = pod.annotations.get(PROGRESS_ANNOTATION)
            if text is None:
                continue
            try:
                readings[pod.key] = [parse_reading(text, f"pod {pod.key}", now_s)]
            except BadInput as error:
                if len(problems) < MAX_PROBLEMS:
                    problems[f"progress of {pod.key}"] = str(error)
        return ProgressUpdate(readings, problems, stages)
