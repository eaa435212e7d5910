"""A model stored in a ConfigMap: its two files under `binaryData`, byte for byte."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from recommender.cluster.access.connection import Api
from recommender.cluster.errors import BadObject, NotFound
from recommender.cluster.objects.metadata import ObjectKey, read_key
from recommender.cluster.objects.reading import Fields, reads
from recommender.cluster.paths import CONFIG_MAPS, path_of
from recommender.errors import Misuse
from recommender.units import format_time

PUBLISHED_AT = "phasewise.dev/published-at"

MAX_CONFIG_MAP_BYTES = 1_000_000
"""The API server limits a ConfigMap to 1 MiB, including names and annotations."""


@dataclass(frozen=True, slots=True)
class ModelMap:
    """The files of a ConfigMap, by name.

    Attributes
    ----------
    digest
        Of the files only; labels and annotations do not affect it.
    written_s
        When they were published, in Unix seconds; None if not annotated.
    """

    key: ObjectKey
    files: Mapping[str, bytes]
    digest: str
    written_s: float | None


@reads("ConfigMap")
def read_model_map(raw: Fields) -> ModelMap:
    """Read the files from the JSON of a ConfigMap."""
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
    return ModelMap(key, files, digest, _unix_s(metadata.string_map("annotations").get(PUBLISHED_AT)))


def publish_model_map(api: Api, key: ObjectKey, files: Mapping[str, bytes], now_s: float) -> None:
    """Write files into a ConfigMap, creating it if needed; its other content stays.

    Raises
    ------
    Misuse
        The files are too large for a ConfigMap.
    ApiError
        The write failed.
    """
    encoded = {name: base64.b64encode(content).decode() for name, content in files.items()}
    if (size := sum(map(len, encoded.values()))) > MAX_CONFIG_MAP_BYTES:
        raise Misuse(
            f"the model takes {size:,} bytes in base64, a ConfigMap holds {MAX_CONFIG_MAP_BYTES:,}. "
            "Mount its folder from a volume, or train with fewer --hidden or --phases."
        )
    published = format_time(now_s)
    annotations = {PUBLISHED_AT: published}
    try:
        api.patch(path_of(CONFIG_MAPS, *key), {"metadata": {"annotations": annotations}, "binaryData": encoded})
    except NotFound:
        metadata = {"namespace": key.namespace, "name": key.name, "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": encoded}
        api.create(path_of(CONFIG_MAPS, key.namespace), body)


def parse_key(text: str) -> ObjectKey:
    """Parse `NAMESPACE/NAME`.

    Raises
    ------
    Misuse
        The text has another form.
    """
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise Misuse(f"{text!r} names no ConfigMap. Write NAMESPACE/NAME.")
    return ObjectKey(namespace, name)


def _unix_s(text: str | None) -> float | None:
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None
