"""Where the model comes from; a changed model is adopted between rounds, a bad one is refused."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from recommender.base.errors import BadArtifact, PhasewiseError
from recommender.cluster.access.connection import Api
from recommender.cluster.model_map import ModelMap, parse_key, read_model_map
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import CONFIG_MAPS, path_of
from recommender.cluster.watching.reflector import Reflector
from recommender.engine.warm_up import check_live
from recommender.learning import artifacts
from recommender.learning import model as models
from recommender.learning.model import PhaseModel

log = logging.getLogger(__name__)

CONFIG_MAP_PREFIX = "configmap:"

INITIAL_SYNC_TIMEOUT_S = 5.0
"""How long the start waits for a ConfigMap; a model that is read later is adopted later."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in use."""

    model: PhaseModel
    digest: str  # SHA-256 of the manifest, which has the checksums of the rest
    written_s: float | None  # unix seconds, if known


class Refusal(NamedTuple):
    """Why a newer model is not used, in words, and since when (unix seconds)."""

    words: str
    since_s: float


class ModelSource(ABC):
    """A place that holds a model, which may be replaced; it is watched from `start` to `stop`, where that is needed."""

    @abstractmethod
    def version(self) -> Hashable | None:
        """A value that changes with the model; None while there is none, or it cannot be read."""

    @abstractmethod
    def load(self) -> Loaded:
        """Load the present model; `BadArtifact` if it is missing or damaged."""

    def start(self) -> None: ...  # noqa: B027

    def stop(self) -> None: ...  # noqa: B027


class BundledModel(ModelSource):
    """The model that ships with Phasewise. It never changes."""

    def version(self) -> Hashable | None:
        return models.BUNDLED

    def load(self) -> Loaded:
        manifest = resources.files("recommender.data") / "model" / artifacts.MANIFEST
        return Loaded(models.load(models.BUNDLED), sha256(manifest.read_bytes()).hexdigest(), None)


class ModelFolder(ModelSource):
    """A model folder; it may be rewritten or renamed, and the kubelet updates a mounted ConfigMap by a symlink."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def version(self) -> Hashable | None:
        try:
            stats = [(self._folder / name).stat() for name in (artifacts.MANIFEST, artifacts.ARRAYS)]
        except OSError:
            return None
        return tuple((stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in stats)

    def load(self) -> Loaded:
        model = models.load(self._folder)
        manifest = self._folder / artifacts.MANIFEST
        try:
            return Loaded(model, sha256(manifest.read_bytes()).hexdigest(), manifest.stat().st_mtime)
        except OSError as error:
            raise BadArtifact(f"{manifest}: {error.strerror}. It disappeared while it was read.") from error


class ModelConfigMap(ModelSource):
    """A model in a ConfigMap, watched."""

    def __init__(self, api: Api, key: ObjectKey) -> None:
        self._key = key
        path, only = path_of(CONFIG_MAPS, key.namespace), f"metadata.name={key.name}"
        self._watched: Reflector[ModelMap] = Reflector(api, path, read_model_map, field_selector=only)

    def version(self) -> Hashable | None:
        content = self._content()
        return content.digest if content else None

    def load(self) -> Loaded:
        content = self._content()
        if content is None:
            raise BadArtifact(f"ConfigMap {self._key}: there is no model in it. Put one there: phasewise model publish")
        model = models.load_files(content.files, f"ConfigMap {self._key}", f"{CONFIG_MAP_PREFIX}{self._key}")
        return Loaded(model, sha256(content.files[artifacts.MANIFEST]).hexdigest(), content.written_s)

    def start(self) -> None:
        self._watched.start()
        self._watched.wait_synced(INITIAL_SYNC_TIMEOUT_S)

    def stop(self) -> None:
        self._watched.stop(0.0)

    def _content(self) -> ModelMap | None:
        content = self._watched.snapshot().get(self._key)
        return content if content is not None and content.files else None


def model_source(name: str, api: Callable[[], Api]) -> ModelSource:
    """The source that `--model` names: `bundled`, `configmap:NAMESPACE/NAME`, or a folder."""
    if name == models.BUNDLED:
        return BundledModel()
    if name.startswith(CONFIG_MAP_PREFIX):
        key = parse_key(name.removeprefix(CONFIG_MAP_PREFIX))
        return ModelConfigMap(api(), key)
    return ModelFolder(Path(name))


class ModelWatch:
    """Keeps the model in use equal to that of its source; `on_change` is told what is put into use or refused."""

    def __init__(self, source: ModelSource, on_change: Callable[[Loaded | None, str], None]) -> None:
        self._source, self._on_change = source, on_change
        self.refusal: Refusal | None = None  # of the source's present model
        self._seen_version: Hashable | None = None
        self.in_use: Loaded

    def load_first(self) -> Loaded:
        """Start watching and return the first model: the bundled one while a ConfigMap has none.

        `BadArtifact` or `Misuse` if a folder is missing, damaged or unsuitable for live use.
        """
        self._source.start()
        self._seen_version = self._source.version()
        problem = ""
        try:
            self.in_use = self._source.load()
            check_live(self.in_use.model)
        except Exception as error:
            if not isinstance(self._source, ModelConfigMap):
                raise
            log.warning("the bundled model is used until there is a better one: %s", _problem(error))
            problem = _problem(error) if self._seen_version else ""
            self.in_use = BundledModel().load()
        self._on_change(self.in_use, "")
        if problem:
            self._refuse(problem)
        return self.in_use

    def stop(self) -> None:
        self._source.stop()

    def refresh(self, adopt: Callable[[PhaseModel], None]) -> None:
        """Adopt the source's model if it has changed; refuse a bad one, or one at which `adopt` fails, once."""
        version = self._source.version()
        if version is None or version == self._seen_version:
            return  # unchanged, or removed: the present model stays in use
        try:
            loaded = self._source.load()
            if self._source.version() != version:
                return  # changed while it was read; the next round tries again
            if loaded.digest != self.in_use.digest:
                adopt(loaded.model)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a model, the present one is good
            if self._source.version() != version:
                return
            self._seen_version, problem = version, _problem(error)
            log.warning("the new model is refused, %s stays in use: %s", self.in_use.model.origin, problem)
            self._refuse(problem)
            return
        self._seen_version, self.in_use, self.refusal = version, loaded, None
        log.info("a new model is in use: %s (%s)", loaded.model.origin, loaded.digest[:12])
        self._on_change(loaded, "")

    def _refuse(self, problem: str) -> None:
        self.refusal = Refusal(problem, time.time())
        self._on_change(None, problem)


def _problem(error: Exception) -> str:
    """An error in words, with its type if it is none of ours."""
    return str(error) if isinstance(error, PhasewiseError) else repr(error)
