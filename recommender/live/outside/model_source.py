"""Where the model comes from, and the watch over it: a changed one is taken in between rounds, a bad one is refused."""

from __future__ import annotations

import logging
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from recommender import artifacts
from recommender import model as models
from recommender.cluster.access.connection import Api
from recommender.cluster.model_map import ModelMap, parse_key, read_model_map
from recommender.cluster.objects.metadata import ObjectKey
from recommender.cluster.paths import CONFIG_MAPS, path_of
from recommender.cluster.watching.reflector import Reflector
from recommender.engine.warm_up import check_live
from recommender.errors import BadArtifact, Misuse, PhasewiseError
from recommender.model import PhaseModel

log = logging.getLogger(__name__)

CONFIG_MAP = "configmap:"

FIRST_LOOK_S = 5.0
"""How long the start waits for a ConfigMap; one that is read later is adopted later."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model in use.

    Attributes
    ----------
    digest
        Of its manifest, which holds the checksums of the rest; the same files have the same one wherever they lie.
    written_s
        When it was written, unix seconds; None when nobody knows.
    """

    model: PhaseModel
    digest: str
    written_s: float | None


class Refusal(NamedTuple):
    """Why a newer model is not used, in words, and since when (unix seconds)."""

    words: str
    since_s: float


class ModelSource(ABC):
    """A place that holds a model, and may hold another one later."""

    @abstractmethod
    def version(self) -> Hashable | None:
        """What changes when the model does; None while there is none, or it cannot be known."""

    @abstractmethod
    def load(self) -> Loaded:
        """The model as it is now.

        Raises
        ------
        BadArtifact
            It is missing or damaged.
        """

    def start(self) -> None:  # noqa: B027
        """Begin to watch, where it takes that."""

    def stop(self) -> None:  # noqa: B027
        """End that."""


class BundledModel(ModelSource):
    """The model that ships with Phasewise. It does not change."""

    def version(self) -> Hashable | None:
        return models.BUNDLED

    def load(self) -> Loaded:
        manifest = resources.files("recommender.data") / "model" / artifacts.MANIFEST
        return Loaded(models.load(models.BUNDLED), sha256(manifest.read_bytes()).hexdigest(), None)


class ModelFolder(ModelSource):
    """A model folder, looked at anew each time: it may be written again, renamed, or be reached by another link.

    The kubelet changes a mounted ConfigMap by turning a link: the files reached by the same names are then others.
    """

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
            raise BadArtifact(f"{manifest}: {error.strerror}. It went while it was read.") from error


class ModelConfigMap(ModelSource):
    """A model in a ConfigMap, watched."""

    def __init__(self, api: Api, key: ObjectKey) -> None:
        self._key = key
        self._watched: Reflector[ModelMap] = Reflector(
            api,
            path_of(CONFIG_MAPS, key.namespace),
            read_model_map,
            field_selector=f"metadata.name={key.name}",
        )

    def version(self) -> Hashable | None:
        held = self._held()
        return held.digest if held else None

    def load(self) -> Loaded:
        held = self._held()
        if held is None:
            raise BadArtifact(f"ConfigMap {self._key}: there is no model in it. Put one there: phasewise model publish")
        # The loader reads folders only: one way to check a model, wherever it comes from.
        with tempfile.TemporaryDirectory(prefix="phasewise-model-") as folder:
            for name in (artifacts.MANIFEST, artifacts.ARRAYS):
                if name in held.files:
                    (Path(folder) / name).write_bytes(held.files[name])
            try:
                model = models.load(folder)
            except BadArtifact as error:
                raise BadArtifact(str(error).replace(folder, f"ConfigMap {self._key}")) from error
        manifest = sha256(held.files[artifacts.MANIFEST]).hexdigest()
        return Loaded(replace(model, origin=f"{CONFIG_MAP}{self._key}"), manifest, held.written_s)

    def start(self) -> None:
        self._watched.start()
        self._watched.wait_synced(FIRST_LOOK_S)

    def stop(self) -> None:
        self._watched.stop(0.0)

    def _held(self) -> ModelMap | None:
        held = self._watched.snapshot().get(self._key)
        return held if held is not None and held.files else None


def model_source(name: str, api: Callable[[], Api]) -> ModelSource:
    """What `--model` names: `bundled`, `configmap:NAMESPACE/NAME`, or a folder.

    Raises
    ------
    Misuse
        It is no name of a ConfigMap.
    """
    if name == models.BUNDLED:
        return BundledModel()
    if name.startswith(CONFIG_MAP):
        key = parse_key(name.removeprefix(CONFIG_MAP))
        return ModelConfigMap(api(), key)
    return ModelFolder(Path(name))


class ModelWatch:
    """Keeps the model in use that of its source.

    Parameters
    ----------
    source
        Where models come from.
    tell
        Told of a model that is in use from now on, and of what is wrong with one that was refused.
    clock
        Unix seconds.

    Attributes
    ----------
    refusal
        Why the source's model is not used; None while it is.
    """

    def __init__(
        self,
        source: ModelSource,
        tell: Callable[[Loaded | None, str], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source, self._tell, self._clock = source, tell, clock
        self.refusal: Refusal | None = None
        self._seen: Hashable | None = None
        self.in_use: Loaded

    def load_first(self) -> Loaded:
        """Begin to watch; returns the model to begin with: the bundled one where a ConfigMap has none yet.

        Raises
        ------
        BadArtifact, Misuse
            A folder is missing, damaged or of no use live: whoever has just started us will want to know.
        """
        self._source.start()
        self._seen = self._source.version()
        problem = ""
        try:
            self.in_use = self._source.load()
            check_live(self.in_use.model)
        except (BadArtifact, Misuse) as error:
            if not isinstance(self._source, ModelConfigMap):
                raise
            log.warning("the bundled model is used until there is a better one: %s", error)
            problem = str(error) if self._seen else ""
            self.in_use = BundledModel().load()
        self._tell(self.in_use, "")
        if problem:
            self._refuse(problem)
        return self.in_use

    def stop(self) -> None:
        """End the watch."""
        self._source.stop()

    def renew(self, adopt: Callable[[PhaseModel], None]) -> None:
        """Take in the source's model if it is another one than when last looked at; between rounds.

        A bad one is refused: what is in use goes on, and that is told once for each change of the source.

        Parameters
        ----------
        adopt
            Puts a model to use; a `PhasewiseError` refuses it.
        """
        version = self._source.version()
        if version is None or version == self._seen:
            return  # a model that was taken away is no better one
        try:
            loaded = self._source.load()
            if self._source.version() != version:
                return  # changed while it was read; the next round looks again
            if loaded.digest != self.in_use.digest:
                adopt(loaded.model)
        except PhasewiseError as error:
            if self._source.version() != version:
                return
            self._seen = version
            log.warning("the new model is refused, %s goes on: %s", self.in_use.model.origin, error)
            self._refuse(str(error))
            return
        self._seen, self.in_use, self.refusal = version, loaded, None
        log.info("a new model is in use: %s (%s)", loaded.model.origin, loaded.digest[:12])
        self._tell(loaded, "")

    def _refuse(self, problem: str) -> None:
        self.refusal = Refusal(problem, self._clock())
        self._tell(None, problem)
