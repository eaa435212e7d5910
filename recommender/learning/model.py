"""A trained model: detector, phase statistics, phase graph and demand, saved and loaded as one folder."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recommender import __version__
from recommender.base.errors import BadArtifact, Misuse
from recommender.base.records import FloatArray, UsageSeries
from recommender.learning import artifacts
from recommender.phases import graph_io
from recommender.phases.crbm import ConditionalRBM
from recommender.phases.detector import PhaseDetector
from recommender.phases.features import FEATURE_UNITS, USAGE_FEATURES
from recommender.phases.graph import PhaseGraph
from recommender.phases.kmeans import PhaseCentres
from recommender.phases.statistics import PhaseStatistics
from recommender.policies.memory_runs import KINDS, NO_CLASSES
from recommender.policies.phase_demand import DemandModel

BUNDLED = "bundled"  # name of the model that ships with Phasewise, trained on the `fit` part of the bundled recordings

_TRAINED_ON, _MEMORY_VARIANCES = "training.containers", "memory.variances"

PARAMETER_ARRAYS = ("W", "A", "B", "v_bias", "h_bias", "centers", "scaler_mean", "scaler_scale")
"""Arrays that `model import` reads, named as in AI4DL's package."""


@dataclass(frozen=True, slots=True)
class PhaseModel:
    """Everything learned. An imported model has only a detector; the rest is None until it is trained on data."""

    detector: PhaseDetector
    statistics: PhaseStatistics | None = None
    graph: PhaseGraph | None = None  # over the detector's phases and the unknown phase, which is the last
    demand: DemandModel | None = None
    # float64 (2, classes, KINDS): how far the memory of runs spreads within classes, see `variances_of_classes`.
    memory_variances: FloatArray = field(default_factory=NO_CLASSES.copy)
    # Facts of the training for JSON: data, choice of k, step, cycle, target violation, seed, data hash.
    facts: Mapping[str, Any] = field(default_factory=dict)
    origin: str = ""  # its name in reports: "bundled", or the folder's name
    # uint32 (n,): hashes of the containers that it was trained on, see `name_hashes`; None if unknown.
    trained_on: NDArray[np.uint32] | None = None

    @property
    def target_violation(self) -> tuple[float, float]:
        """Share of samples that may violate, cpu and memory, as chosen in training."""
        cpu, memory = self.facts.get("target_violation", (0.05, 0.05))
        return float(cpu), float(memory)

    def save(self, folder: str | Path) -> None:
        """Write the model folder atomically."""
        artifacts.save(folder, self.files())

    def files(self) -> dict[str, bytes]:
        """The files of the model folder, by name."""
        arrays = self.detector.to_state()
        manifest: dict[str, Any] = {
            "phasewise": __version__,
            "features": [
                {"name": name, "unit": FEATURE_UNITS.get(name, "as in the data")} for name in self.detector.features
            ],
            "lag": self.detector.lag,
            "phases": self.detector.n_phases,
            "training": dict(self.facts),
        }
        if self.statistics is not None:
            arrays |= self.statistics.to_state()
            manifest["statistics_features"] = list(self.statistics.features)
        if self.graph is not None:
            manifest["graph"] = graph_io.to_document(self.graph)
        if self.demand is not None:
            arrays |= {f"demand.{name}": array for name, array in self.demand.to_state().items()}
        arrays[_MEMORY_VARIANCES] = self.memory_variances
        if self.trained_on is not None:
            arrays[_TRAINED_ON] = self.trained_on
        return artifacts.pack(arrays, manifest)


def name_hashes(series: Iterable[UsageSeries]) -> NDArray[np.uint32]:
    """Hash the names of containers, to recognise them without storing names in a model that is passed on."""
    hashes = [hashlib.sha256(container.container.encode()).digest()[:4] for container in series]
    return np.frombuffer(b"".join(hashes), "<u4").astype(np.uint32)


def load(name: str | Path) -> PhaseModel:
    """Read a model folder, or the model that ships with Phasewise; BadArtifact if damaged, newer or inconsistent."""
    if str(name) == BUNDLED:
        with resources.as_file(resources.files("recommender.data") / "model") as folder:
            return _assembled(*artifacts.load(folder), folder, BUNDLED)
    # A name that is not UTF-8 could not be written to a report.
    origin = os.fsencode(Path(name).name).decode("utf-8", "backslashreplace")
    return _assembled(*artifacts.load(name), Path(name), origin)


def load_files(content: Mapping[str, bytes], place: str, origin: str) -> PhaseModel:
    """Read the files of a model folder that are at another `place`; BadArtifact as for a folder."""
    return _assembled(*artifacts.unpack(content, place), place, origin)


def _assembled(arrays: artifacts.Arrays, manifest: Mapping[str, Any], place: object, origin: str) -> PhaseModel:
    try:
        detector = PhaseDetector.from_state(arrays, _names([feature["name"] for feature in manifest["features"]]))
        statistics = graph = demand = None
        if "statistics_features" in manifest:
            statistics_features = _names(manifest["statistics_features"])
            statistics = PhaseStatistics.from_state(arrays, statistics_features, detector.n_phases)
        if "graph" in manifest:
            graph = graph_io.from_document(manifest["graph"])
            if graph.n_phases != detector.n_phases + 1:
                raise BadArtifact(
                    f"graph has {graph.n_phases} phases, not {detector.n_phases} and the unknown. Train it again."
                )
        if learned := {key.removeprefix("demand."): a for key, a in arrays.items() if key.startswith("demand.")}:
            demand = DemandModel.from_state(learned, detector.n_phases + 1)
        if len({part is None for part in (statistics, graph, demand)}) > 1:
            raise BadArtifact("it has only some of phase statistics, graph and demand. Train it again.")
        facts, trained_on = _checked_training(manifest["training"], statistics is not None), arrays.get(_TRAINED_ON)
        variances = _checked_variances(arrays.get(_MEMORY_VARIANCES, NO_CLASSES))
        return PhaseModel(detector, statistics, graph, demand, variances, facts, origin, trained_on)
    except BadArtifact as error:
        raise BadArtifact(f"{place}: {error}") from error
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, MemoryError) as error:
        raise BadArtifact(
            f"{place}: its parts are inconsistent ({type(error).__name__}: {error}). Train it again."
        ) from error


def _names(features: object) -> list[str]:
    if not isinstance(features, list) or not all(isinstance(name, str) for name in features):
        raise BadArtifact(f"{artifacts.MANIFEST} names features that are not text. Train it again.")
    return features


def _checked_variances(variances: NDArray[Any]) -> FloatArray:
    fits = variances.dtype.kind == "f" and variances.ndim == 3 and variances.shape[::2] == (2, KINDS)
    if not fits or not (np.isfinite(variances) & (variances >= 0.0)).all() or (variances[0] == 0.0).any():
        raise BadArtifact(f"{_MEMORY_VARIANCES} does not hold variances of {KINDS} amounts. Train it again.")
    return variances.astype(np.float64)


def _checked_training(training: Mapping[str, Any], trained: bool) -> Mapping[str, Any]:
    """Validate the facts on training that are used; an imported model was not `trained`, and has none."""
    target = training.get("target_violation", [0.05, 0.05])
    if not (isinstance(target, list) and len(target) == 2 and all(_is_number(p) and 0 < p < 1 for p in target)):
        raise BadArtifact(f"training.target_violation is {target!r}, not two shares between 0 and 1. Train it again.")
    for name in ("step_s", "cycle_s", "samples", "containers", "cycle_samples", "until_s"):
        number: Any = training.get(name)
        is_needed = name in training or (trained and name not in ("cycle_samples", "until_s"))
        if is_needed and not (_is_number(number) and number >= 0):
            raise BadArtifact(f"training.{name} is {number!r}, not a number of at least 0. Train it again.")
    chosen = training.get("phases_chosen", {"by": "", "elbow": 0})
    by, elbow = (chosen.get("by"), chosen.get("elbow")) if isinstance(chosen, dict) else (None, None)
    if not (isinstance(by, str) and _is_number(elbow)):
        raise BadArtifact(
            f"training.phases_chosen has by: {by!r} and elbow: {elbow!r}, not a text and a number. Train it again."
        )
    return training


def _is_number(value: object) -> bool:
    return type(value) in (int, float)


def import_parameters(path: str | Path, features: Sequence[str]) -> PhaseModel:
    """Make a model from the parameters of a CRBM, k-means centres and a scaler trained elsewhere.

    `path`: an npz file with the arrays of `PARAMETER_ARRAYS`; shapes W (n_hid, n_vis), A (n_vis, n_vis * lag), B
    (n_hid, n_vis * lag), v_bias (n_vis,), h_bias (n_hid,), centers (k, n_hid), scaler_mean and scaler_scale (n_vis,).
    `features`: names of the n_vis columns, in the encoder's order.

    Raises BadArtifact, Misuse: an array is missing or has a wrong shape, or the number of features does not match.
    """
    arrays = artifacts.load_npz(path, path)
    missing = [name for name in PARAMETER_ARRAYS if name not in arrays]
    if missing:
        raise BadArtifact(f"{path}: lacks the arrays {', '.join(missing)}. It needs {', '.join(PARAMETER_ARRAYS)}.")
    arrays = {name: _finite(arrays[name], name, path) for name in PARAMETER_ARRAYS}
    for name in ("v_bias", "h_bias", "scaler_mean", "scaler_scale"):
        arrays[name] = arrays[name].ravel()  # AI4DL keeps its biases as columns
    n_hidden, n_visible = arrays["W"].shape if arrays["W"].ndim == 2 else (0, 0)
    lag = arrays["A"].shape[-1] // max(n_visible, 1)
    expected = {
        "W": (n_hidden, n_visible), "A": (n_visible, n_visible * lag), "B": (n_hidden, n_visible * lag),
        "v_bias": (n_visible,), "h_bias": (n_hidden,), "centers": (len(arrays["centers"]), n_hidden),
        "scaler_mean": (n_visible,), "scaler_scale": (n_visible,),
    }  # fmt: skip
    for name, shape in expected.items():
        if arrays[name].shape != shape or 0 in shape:
            raise BadArtifact(
                f"{path}: array {name} has shape {arrays[name].shape}, expected {shape}. "
                "See `phasewise model import --help` for the shapes."
            )
    if not (arrays["scaler_scale"] > 0.0).all():
        raise BadArtifact(f"{path}: scaler_scale is not above zero everywhere. Give 1 for a constant feature.")
    if len(features) != n_visible:
        raise Misuse(f"--features names {len(features)} columns, the arrays are for {n_visible}. Name one for each.")
    encoder = ConditionalRBM.from_parameters(
        arrays["W"], arrays["A"], arrays["B"], arrays["v_bias"], arrays["h_bias"], lag=lag, dtype="float64"
    )
    centres = PhaseCentres(arrays["centers"], (), np.full(len(arrays["centers"]), np.inf))
    detector = PhaseDetector(tuple(features), arrays["scaler_mean"], arrays["scaler_scale"], encoder, centres)
    if known := sorted(set(features) & set(USAGE_FEATURES)):
        raise Misuse(
            f"--features: {', '.join(known)} are computed by Phasewise. An imported model names columns of the data."
        )
    return PhaseModel(detector, facts={"imported": True}, origin=Path(path).name)


def _finite(array: NDArray[Any], name: str, path: object) -> FloatArray:
    """Convert an array to C-contiguous float64; anything but finite numbers is refused."""
    if not np.issubdtype(array.dtype, np.number) or not np.isfinite(array).all():
        raise BadArtifact(f"{path}: array {name} holds values that are not finite numbers. Export it again.")
    return np.ascontiguousarray(array, dtype=np.float64)
