"""Model folders: named arrays and a JSON manifest, checksummed, renamed into place, loaded without executing anything.

This module knows no model class: parts hand over arrays and facts and take them back (see `recommender.model`).
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from recommender.errors import BadArtifact, Misuse

SCHEMA = 2
MANIFEST = "manifest.json"
ARRAYS = "arrays.npz"
SUM = "manifest_sha256"
"""Of the rest of the manifest."""

KIND = "phasewise-model"

Arrays = Mapping[str, NDArray[Any]]


def save(folder: str | Path, arrays: Arrays, manifest: Mapping[str, Any]) -> None:
    """Write a model folder, whole or not at all.

    Parameters
    ----------
    folder
        Where. An older model of that name, with nothing beside it, is replaced; any other folder that is not empty is
        refused.
    arrays
        Plain numeric or boolean arrays by name.
    manifest
        JSON-ready facts; `schema`, `kind` and the checksums are added.

    Raises
    ------
    Misuse
        `folder` exists and is no model folder.
    """
    target = Path(folder)
    check_target(target)
    packed = _pack(arrays)
    full = {
        "kind": KIND,
        "schema": SCHEMA,
        **manifest,
        "arrays": _described(arrays),
        "arrays_sha256": hashlib.sha256(packed).hexdigest(),
    }
    full[SUM] = _sum_of(full)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        aside.chmod(0o755)  # mkdtemp makes it private; a model is read by other users, as any file is
        _write_synced(aside / ARRAYS, packed)
        _write_synced(aside / MANIFEST, orjson.dumps(full, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE))
        _swap_in(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def check_target(folder: str | Path) -> None:
    """Raise now what `save` would after the work: Misuse, where `folder` exists and is no model folder."""
    target = Path(folder)
    if target.exists() and not _may_be_replaced(target):
        raise Misuse(f"{target} exists and is not a model folder. Choose another name for -o, or remove it.")


def load(folder: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read a model folder back and check every byte of it.

    Returns
    -------
    arrays, manifest

    Raises
    ------
    BadArtifact
        The folder is missing, incomplete, damaged, or written by a newer Phasewise.
    """
    source = Path(folder)
    if not source.is_dir():
        raise BadArtifact(f"{source}: no such model folder. Make one with: phasewise train SOURCE -o {source}")
    manifest = _read_manifest(source / MANIFEST)
    try:
        packed = (source / ARRAYS).read_bytes()
    except OSError as error:
        raise BadArtifact(f"{source / ARRAYS}: {error.strerror}. {_AGAIN}") from error
    if hashlib.sha256(packed).hexdigest() != manifest["arrays_sha256"]:
        raise BadArtifact(f"{source / ARRAYS}: damaged or truncated (its checksum is not the manifest's). {_AGAIN}")
    arrays = load_npz(io.BytesIO(packed), source / ARRAYS)
    if manifest["arrays"] != _described(arrays):
        raise BadArtifact(f"{source / MANIFEST}: does not describe the arrays beside it. {_AGAIN}")
    return arrays, manifest


def load_npz(file: str | Path | io.BytesIO, name: object) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file; objects (pickles) are refused, a broken file is named."""
    try:
        with np.load(file, allow_pickle=False) as bundle:
            return {key: bundle[key] for key in bundle.files}
    except FileNotFoundError as error:
        raise BadArtifact(f"{name}: no such file. Check the path.") from error
    except (*_UNREADABLE, OSError, ValueError, EOFError, KeyError, AttributeError, NotImplementedError) as error:
        raise BadArtifact(f"{name}: not a readable npz file of plain arrays ({error}). {_AGAIN}") from error


_UNREADABLE = (zipfile.BadZipFile, zlib.error, MemoryError)
_AGAIN = "Copy the model again from where it was trained, or train a new one."


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = orjson.loads(path.read_bytes())
    except OSError as error:
        raise BadArtifact(f"{path}: {error.strerror}. {_AGAIN}") from error
    except orjson.JSONDecodeError as error:
        raise BadArtifact(f"{path}: not JSON ({error}). {_AGAIN}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND or not isinstance(manifest.get("schema"), int):
        raise BadArtifact(f"{path}: not the manifest of a Phasewise model. {_AGAIN}")
    if manifest["schema"] > SCHEMA:
        raise BadArtifact(
            f"{path}: written by a newer Phasewise (schema {manifest['schema']}, this one reads {SCHEMA}). "
            "Upgrade Phasewise, or train with this version."
        )
    if manifest["schema"] < SCHEMA:
        raise BadArtifact(
            f"{path}: written by an earlier Phasewise (schema {manifest['schema']}, this one reads {SCHEMA}). "
            "Train it again with this version."
        )
    if not isinstance(manifest.get("arrays"), dict) or not isinstance(manifest.get("arrays_sha256"), str):
        raise BadArtifact(f"{path}: lacks the list of arrays or their checksum. {_AGAIN}")
    if manifest.pop(SUM, None) != _sum_of(manifest):
        raise BadArtifact(f"{path}: damaged, or changed by hand (its checksum is another one). {_AGAIN}")
    return manifest


def _sum_of(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _may_be_replaced(target: Path) -> bool:
    """Whether nothing is lost: an empty folder, or what `save` wrote and nothing else."""
    if not target.is_dir():
        return False
    held = {path.name for path in target.iterdir()}
    if MANIFEST not in held:
        return not held
    try:
        manifest = orjson.loads((target / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return False
    return held <= {MANIFEST, ARRAYS} and isinstance(manifest, dict) and manifest.get("kind") == KIND


def _pack(arrays: Arrays) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _described(arrays: Arrays) -> dict[str, Any]:
    """Shape, type and checksum of each array, as the manifest has them."""
    return {
        name: {
            "shape": list(array.shape),
            "dtype": array.dtype.str,
            "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        }
        for name, array in arrays.items()
    }


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _swap_in(aside: Path, target: Path) -> None:
    """Put `aside` in the place of `target`. A folder cannot be replaced in one step, so the old one is moved off first;
    killed in between, both are still on disk, complete."""
    if not target.exists():
        aside.rename(target)
        return
    old = aside.with_name(aside.name + ".old")
    target.rename(old)
    aside.rename(target)
    shutil.rmtree(old, ignore_errors=True)
