"""Model folders: arrays and a JSON manifest, checksummed, written atomically, loaded without executing anything."""

from __future__ import annotations

import glob
import hashlib
import io
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

from recommender.base import files
from recommender.base.errors import BadArtifact, Misuse

SCHEMA = 2
MANIFEST = "manifest.json"
ARRAYS = "arrays.npz"
CHECKSUM_KEY = "manifest_sha256"  # key of the checksum of the rest of the manifest

KIND = "phasewise-model"

MAX_ARRAYS_BYTES = 64 * 2**20  # unpacked; the bundled model has 0.1 MiB. A file of 1 MiB can unpack to 1 GiB.

Arrays = Mapping[str, NDArray[Any]]

_UNREADABLE = (
    zipfile.BadZipFile, zlib.error, MemoryError, OSError, ValueError, EOFError, KeyError, AttributeError, RuntimeError,
)  # fmt: skip
_REMEDY = "Copy the model again from where it was trained, or train a new one."


def save(folder: str | Path, content: Mapping[str, bytes]) -> None:
    """Write a model folder, its files by name as from `pack`, atomically.

    An existing model folder without other files is replaced; any other folder must be empty, or it is a Misuse.
    """
    check_target(folder)
    target = Path(folder).resolve()  # a link stays, and the folder that it leads to is replaced
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        staged.chmod(0o755)  # mkdtemp makes it private
        for name, data in content.items():
            files.atomic_write_bytes(staged / name, data)
        _replace_folder(staged, target)
    except OSError as error:
        error.filename = str(folder)  # not that of the file beside it, which is removed
        raise
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def pack(arrays: Arrays, manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a model folder; `manifest` has JSON-ready facts, to which schema, kind and checksums are added."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    packed = buffer.getvalue()
    full = {
        "kind": KIND,
        "schema": SCHEMA,
        **manifest,
        "arrays": _array_specs(arrays),
        "arrays_sha256": hashlib.sha256(packed).hexdigest(),
    }
    full[CHECKSUM_KEY] = manifest_sha256(full)
    return {ARRAYS: packed, MANIFEST: orjson.dumps(full, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)}


def check_target(folder: str | Path) -> None:
    """Raise Misuse early if `save` could not replace `folder`; finish a `save` that was killed while it did."""
    target = Path(folder)
    old = next(target.parent.glob(f".{glob.escape(target.name)}.????????.old"), None)
    if old is not None and not target.exists():
        new = old.with_suffix("")
        (new if new.exists() else old).rename(target)
        shutil.rmtree(old, ignore_errors=True)
    if target.exists() and not _is_replaceable(target):
        raise Misuse(f"{target} exists and is not a model folder. Choose another name for -o, or remove it.")
    files.check_target(next(above for above in target.resolve().parents if above.exists()) / MANIFEST)


def load(folder: str | Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read a model folder; BadArtifact if it is missing, incomplete, damaged, or written by a newer Phasewise."""
    source = Path(folder)
    if not source.is_dir():
        raise BadArtifact(f"{source}: no such model folder. Make one with: phasewise train SOURCE -o {source}")
    try:
        content = {name: (source / name).read_bytes() for name in (MANIFEST, ARRAYS)}
    except OSError as error:
        raise BadArtifact(f"{error.filename}: {error.strerror}. {_REMEDY}") from error
    return unpack(content, source)


def unpack(content: Mapping[str, bytes], place: object) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read the files of a model folder; errors are as in `load`, and begin with their `place`."""
    for name in (MANIFEST, ARRAYS):
        if name not in content:
            raise BadArtifact(f"{place}/{name}: it is missing. {_REMEDY}")
    manifest = _read_manifest(content[MANIFEST], f"{place}/{MANIFEST}")
    if hashlib.sha256(content[ARRAYS]).hexdigest() != manifest.get("arrays_sha256"):
        raise BadArtifact(
            f"{place}/{ARRAYS}: damaged or truncated (its checksum does not match the manifest). {_REMEDY}"
        )
    arrays = load_npz(io.BytesIO(content[ARRAYS]), f"{place}/{ARRAYS}")
    if manifest.get("arrays") != _array_specs(arrays):
        raise BadArtifact(f"{place}/{MANIFEST}: does not match the arrays beside it. {_REMEDY}")
    return arrays, manifest


def load_npz(file: str | Path | io.BytesIO, name: object) -> dict[str, NDArray[Any]]:
    """Read all arrays of an npz file; pickled objects are refused, errors begin with `name`."""
    try:
        with zipfile.ZipFile(file) as bundle:
            unpacked_bytes = sum(info.file_size for info in bundle.infolist())
            if unpacked_bytes > MAX_ARRAYS_BYTES:
                raise ValueError(f"it unpacks to {unpacked_bytes:,} bytes, more than {MAX_ARRAYS_BYTES:,}")
            return {info.filename.removesuffix(".npy"): _read_member(bundle, info) for info in bundle.infolist()}
    except FileNotFoundError as error:
        raise BadArtifact(f"{name}: no such file. Check the path.") from error
    except _UNREADABLE as error:
        raise BadArtifact(f"{name}: not a readable npz file of plain arrays ({error}). {_REMEDY}") from error


def _read_member(bundle: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    # `zipfile` unpacks these two in pieces, the others at once, whatever size they declare.
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it is compressed in another way than NumPy does")
    with bundle.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _read_manifest(text: bytes, path: str) -> dict[str, Any]:
    try:
        manifest = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadArtifact(f"{path}: not JSON ({error}). {_REMEDY}") from error
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND or not isinstance(manifest.get("schema"), int):
        raise BadArtifact(f"{path}: not the manifest of a Phasewise model. {_REMEDY}")
    if (schema := manifest["schema"]) != SCHEMA:
        age, remedy = "an earlier", "Train it again with this version."
        if schema > SCHEMA:
            age, remedy = "a newer", "Upgrade Phasewise, or train with this version."
        raise BadArtifact(f"{path}: written by {age} Phasewise (schema {schema}, this one reads {SCHEMA}). {remedy}")
    if manifest.pop(CHECKSUM_KEY, None) != manifest_sha256(manifest):
        raise BadArtifact(f"{path}: damaged, or edited (its checksum does not match). {_REMEDY}")
    return manifest


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _is_replaceable(target: Path) -> bool:
    """Whether a folder is empty or holds only what `save` wrote."""
    if not target.is_dir():
        return False
    names = {path.name for path in target.iterdir()}
    if MANIFEST not in names:
        return not names
    try:
        manifest = orjson.loads((target / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return False
    return names <= {MANIFEST, ARRAYS} and isinstance(manifest, dict) and manifest.get("kind") == KIND


def _array_specs(arrays: Arrays) -> dict[str, Any]:
    """Shape, dtype and checksum of each array, for the manifest."""
    return {
        name: {
            "shape": list(array.shape),
            "dtype": array.dtype.str,
            "sha256": hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(),
        }
        for name, array in arrays.items()
    }


def _replace_folder(staged: Path, target: Path) -> None:
    """Move `staged` to `target`. A folder cannot be replaced atomically, so the old one is renamed first; after a crash
    in between, both are complete on disk, and `check_target` goes on from there."""
    if not target.exists():
        staged.rename(target)
        return
    old = staged.with_name(staged.name + ".old")
    target.rename(old)
    staged.rename(target)
    shutil.rmtree(old, ignore_errors=True)
