"""A model stored in a ConfigMap: its two files under `binaryData`, byte for byte."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from recommender.base.errors import Misuse
from recommender.base.units import format_time
from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, NotFound
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import CONFIG_MAPS, new_object, path_of

PUBLISHED_AT = "phasewise.dev/published-at"

MAX_CONFIG_MAP_BYTES = 1_000_000
"""The API server limits a ConfigMap to 1 MiB, including names and annotations."""


@dataclass(frozen=True, slots=True)
class ModelMap:
    """The files of a ConfigMap, by name, and a digest of nothing else; `written_s` (unix seconds) may be unknown."""

    key: ObjectKey
    files: Mapping[str, bytes]
    digest: str
    written_s: float | None


@reads("ConfigMap")
def read_model_map(raw: Fields) -> ModelMap:
    metadata = raw.child("metadata")
    key = read_key(metadata)
    files: dict[str, bytes] = {}
    for name, text in sorted(raw.string_map("binaryData").items()):
        try:
            files[name] = base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise BadObject("ConfigMap", str(key), f"binaryData.{name}", "is not base64") from error
    parts = [f"{name}:{hashlib.sha256(content).hexdigest()}" for name, content in files.items()]
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    written_s = None
    with suppress(ValueError):
        written_s = metadata.child("annotations").time_s(PUBLISHED_AT)
    return ModelMap(key, files, digest, written_s)


def publish_model_map(api: Api, key: ObjectKey, files: Mapping[str, bytes], now_s: float) -> None:
    """Write files into a ConfigMap, creating it if needed; its other content stays. `Misuse` if they are too large."""
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    if (size := sum(map(len, encoded.values()))) > MAX_CONFIG_MAP_BYTES:
        raise Misuse(
            f"the model takes {size:,} bytes in base64, a ConfigMap holds {MAX_CONFIG_MAP_BYTES:,}. "
            "Mount its folder from a volume, or train with fewer --hidden or --phases."
        )
    annotations = {PUBLISHED_AT: format_time(now_s)}
    try:
        api.patch(path_of(CONFIG_MAPS, *key), {"metadata": {"annotations": annotations}, "binaryData": encoded})
    except NotFound:
        metadata = {"namespace": key.namespace, "name": key.name, "annotations": annotations}
        body = new_object(CONFIG_MAPS, "ConfigMap", metadata, binaryData=encoded)
        api.create(path_of(CONFIG_MAPS, key.namespace), body)


def parse_key(text: str) -> ObjectKey:
    """Parse `NAMESPACE/NAME`; `Misuse` for anything else."""
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise Misuse(f"{text!r} names no ConfigMap. Write NAMESPACE/NAME.")
    return ObjectKey(namespace, name)
