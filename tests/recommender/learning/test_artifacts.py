"""Model folders: saved and loaded exactly, and refused if damaged."""

from __future__ import annotations

import errno
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import orjson
import pytest

from recommender.base.errors import BadArtifact, Misuse
from recommender.learning import artifacts

ARRAYS = {"w": np.arange(6.0).reshape(2, 3), "k": np.array([3], dtype=np.int64), "empty": np.empty((0, 2), np.float32)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    artifacts.save(tmp_path / "model", artifacts.pack(ARRAYS, {"lag": 3}))
    return tmp_path / "model"


def test_arrays_and_manifest_are_loaded_exactly_as_saved(folder: Path) -> None:
    arrays, manifest = artifacts.load(folder)
    assert manifest["lag"] == 3
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_the_same_arrays_are_saved_as_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    artifacts.save(tmp_path / "again", artifacts.pack(ARRAYS, {"lag": 3}))
    for name in (artifacts.MANIFEST, artifacts.ARRAYS):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def test_saving_again_replaces_the_model_and_leaves_no_other_file(folder: Path) -> None:
    artifacts.save(folder, artifacts.pack({"w": np.ones(1)}, {"lag": 1}))
    assert artifacts.load(folder)[1]["lag"] == 1
    assert os.listdir(folder.parent) == ["model"]  # noqa: PTH208  includes hidden files


def test_a_link_to_a_model_stays_and_the_model_it_leads_to_is_replaced(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "newest"
    link.parent.mkdir()
    link.symlink_to(folder)
    artifacts.save(link, artifacts.pack(ARRAYS, {"lag": 1}))
    assert link.is_symlink() and artifacts.load(folder)[1]["lag"] == 1
    assert os.listdir(link.parent) == ["newest"]  # noqa: PTH208  includes hidden files


def test_a_full_disk_is_reported_with_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as raised:
        artifacts.save(folder, artifacts.pack(ARRAYS, {}))
    assert raised.value.filename == str(folder)
    assert artifacts.load(folder)[1]["lag"] == 3


def test_a_place_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misuse, match="cannot write here"):
        artifacts.check_target(tmp_path / "file" / "models" / "model")
    artifacts.check_target(tmp_path / "models" / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_not_a_model_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("ten years of work")
    with pytest.raises(Misuse, match="not a model folder"):
        artifacts.save(tmp_path, artifacts.pack(ARRAYS, {}))
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize("manifest", [b'{"name": "a web app"}', b"{", None], ids=["foreign", "not JSON", "a model"])
def test_a_folder_with_a_foreign_manifest_or_foreign_files_is_never_overwritten(
    folder: Path, manifest: bytes | None
) -> None:
    (folder / artifacts.ARRAYS).unlink()
    if manifest is None:
        (folder / "thesis.tex").write_text("ten years of work")
    else:
        (folder / artifacts.MANIFEST).write_bytes(manifest)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(Misuse, match="not a model folder"):
        artifacts.save(folder, artifacts.pack(ARRAYS, {}))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_failed_save_leaves_the_old_model(folder: Path) -> None:
    with pytest.raises(TypeError):
        artifacts.save(folder, artifacts.pack(ARRAYS, {"lag": object()}))
    assert artifacts.load(folder)[1]["lag"] == 3
    assert os.listdir(folder.parent) == ["model"]  # noqa: PTH208


def test_a_save_that_was_killed_between_its_two_renames_is_finished_by_the_next(folder: Path) -> None:
    artifacts.save(folder.with_name(".model.a1b2c3d4"), artifacts.pack(ARRAYS, {"lag": 4}))
    folder.rename(folder.with_name(".model.a1b2c3d4.old"))
    artifacts.check_target(folder)
    assert artifacts.load(folder)[1]["lag"] == 4
    assert os.listdir(folder.parent) == ["model"]  # noqa: PTH208


def test_a_model_folder_is_readable_by_other_users(folder: Path) -> None:
    assert folder.stat().st_mode & 0o055 == 0o055


def damage(folder: Path, how: str) -> None:
    arrays, manifest = folder / artifacts.ARRAYS, folder / artifacts.MANIFEST
    facts = orjson.loads(manifest.read_bytes())
    if how == "truncated arrays":
        arrays.write_bytes(arrays.read_bytes()[:-20])
    elif how == "one byte changed":
        content = bytearray(arrays.read_bytes())
        content[60] ^= 1
        arrays.write_bytes(content)
    elif how == "no arrays":
        arrays.unlink()
    elif how == "no manifest":
        manifest.unlink()
    elif how == "manifest cut off":
        manifest.write_bytes(manifest.read_bytes()[:40])
    elif how == "foreign manifest":
        manifest.write_text('{"name": "something else"}')
    elif how == "newer":
        manifest.write_bytes(orjson.dumps({**facts, "schema": artifacts.SCHEMA + 1}))
    elif how == "older":
        manifest.write_bytes(orjson.dumps({**facts, "schema": artifacts.SCHEMA - 1}))
    elif how == "another array's checksum":
        facts["arrays"]["w"]["sha256"] = "0" * 64
        del facts[artifacts.CHECKSUM_KEY]
        manifest.write_bytes(orjson.dumps({**facts, artifacts.CHECKSUM_KEY: artifacts.manifest_sha256(facts)}))
    elif how == "no checksum":
        del facts[artifacts.CHECKSUM_KEY]
        manifest.write_bytes(orjson.dumps(facts))
    elif how == "edited field":
        manifest.write_bytes(orjson.dumps({**facts, "lag": 4}))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated arrays", "damaged or truncated"),
        ("one byte changed", "damaged or truncated"),
        ("no arrays", "arrays.npz"),
        ("no manifest", "manifest.json"),
        ("manifest cut off", "not JSON"),
        ("foreign manifest", "not the manifest of a Phasewise model"),
        ("newer", "newer Phasewise"),
        ("older", "earlier Phasewise"),
        ("no checksum", "or edited"),
        ("another array's checksum", "does not match the arrays"),
        ("edited field", "or edited"),
    ],
)
def test_a_damaged_model_is_refused_naming_file_problem_and_remedy(folder: Path, how: str, message: str) -> None:
    damage(folder, how)
    with pytest.raises(BadArtifact, match=message) as caught:
        artifacts.load(folder)
    assert str(folder) in str(caught.value)
    remedy = {"newer": "Upgrade Phasewise", "older": "Train it again"}.get(how, "Copy the model again")
    assert remedy in str(caught.value)
    assert caught.value.exit_code == 2


class Pickled:
    """Runs code when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


def test_pickled_objects_in_a_model_are_refused_without_unpickling_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", w=np.array([Pickled(tmp_path / "ran")], dtype=object))
    with pytest.raises(BadArtifact, match="plain arrays"):
        artifacts.load_npz(tmp_path / "evil.npz", "evil.npz")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("compression", "n_bytes", "problem"),
    [
        (zipfile.ZIP_DEFLATED, 2**26, "unpacks to 67,108,992 bytes"),
        (zipfile.ZIP_BZIP2, 2**10, "compressed in another way"),
    ],
)
def test_arrays_that_unpack_to_more_than_any_model_has_are_refused_unread(
    tmp_path: Path, compression: int, n_bytes: int, problem: str
) -> None:
    header = io.BytesIO()
    np.lib.format.write_array(header, np.zeros(0))
    with zipfile.ZipFile(tmp_path / "large.npz", "w", compression) as bundle:
        bundle.writestr("w.npy", header.getvalue() + bytes(n_bytes))
    with pytest.raises(BadArtifact, match=problem):
        artifacts.load_npz(tmp_path / "large.npz", "large.npz")
