"""What the pod templates of a controller say: how their pods may be resized, and what their owner declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from recommender.cluster.objects.pair import Pair, read_pair
from recommender.cluster.objects.reading import BadField, Fields
from recommender.cluster.objects.resizability import Resizability, read_resizability

NOTHING_DECLARED: Mapping[str, Pair] = MappingProxyType({})


class Templates(NamedTuple):
    """Of all pod templates of a controller: a training job has one for each role.

    Attributes
    ----------
    resizability
        Empty where no template is known.
    declared
        Cores and bytes that its owner requests for the containers of a name, NaN where nothing is. A name that stands
        for different requests in different templates is left out.
    """

    resizability: frozenset[Resizability] = frozenset()
    declared: Mapping[str, Pair] = NOTHING_DECLARED


NO_TEMPLATES = Templates()


def read_templates(spec: Fields) -> Templates:
    """Of a controller, wherever it keeps them. A template of a wrong form is its controller's affair, and left out."""
    found, declared = set(), dict[str, set[Pair]]()
    for template in map(_fields, _templates_in(spec.raw)):
        try:
            resizability = read_resizability(template)
            requests = [
                (container.text("name"), read_pair(container.child("resources").child("requests")))
                for container in template.children("containers")
            ]
        except BadField:
            continue
        found.add(resizability)
        for name, pair in requests:
            declared.setdefault(name, set()).add(pair)
    return _shared(
        frozenset(found), tuple(sorted((name, *pairs) for name, pairs in declared.items() if len(pairs) == 1))
    )


def _fields(template: Any) -> Fields:
    return Fields(template, "template.spec")


@lru_cache(maxsize=256)
def _shared(resizability: frozenset[Resizability], declared: tuple[tuple[str, Pair], ...]) -> Templates:
    """Thousands of controllers have the like; one object serves them all."""
    return Templates(resizability, MappingProxyType(dict(declared)))


def _templates_in(raw: Any) -> Iterator[Any]:
    """The specs of pods anywhere below; inside of one there is no other."""
    if isinstance(raw, list):
        for each in raw:
            yield from _templates_in(each)
    elif isinstance(raw, dict):
        template = raw.get("template")
        spec = template.get("spec") if isinstance(template, dict) else None
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield spec
            return
        for each in raw.values():
            yield from _templates_in(each)
