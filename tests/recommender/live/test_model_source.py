"""The model in use follows its source, a folder or a ConfigMap; a bad model is refused once."""

from __future__ import annotations

import base64
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recommender.base.errors import BadArtifact, Misuse
from recommender.base.records import Sample
from recommender.cli.common import run
from recommender.cli.main import cli
from recommender.cluster.access.connection import Api, connect
from recommender.cluster.model_map import read_model_map
from recommender.engine.containers import NewContainer
from recommender.engine.fleet import Fleet
from recommender.engine.keys import Instance
from recommender.engine.seen import Samples
from recommender.learning import model as models
from recommender.learning.model import PhaseModel
from recommender.live.outside.model_source import (
    BundledModel,
    Loaded,
    ModelConfigMap,
    ModelFolder,
    ModelWatch,
    model_source,
)
from recommender.policies.histogram import HistogramSession
from tests.rig.cluster import Cluster
from tests.rig.waiting import wait_until

BUNDLED = models.load(models.BUNDLED)
DATA = Path(models.__file__).parents[1] / "data" / "model"


def save_model(folder: Path, **facts: object) -> Path:
    """A valid model with other facts, and so another digest."""
    replace(BUNDLED, facts={**BUNDLED.facts, **facts}).save(folder)
    return folder


class Events:
    """What a watch reports, in order: an origin, or a problem."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, loaded: Loaded | None, problem: str) -> None:
        self.texts.append(problem or (loaded.model.origin if loaded else ""))


class Adopted(list[PhaseModel]):
    def __call__(self, model: PhaseModel) -> None:
        self.append(model)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", made=1)


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def adopted() -> Adopted:
    return Adopted()


@pytest.fixture
def watch(folder: Path, events: Events) -> ModelWatch:
    made = ModelWatch(ModelFolder(folder), events)
    made.load_first()
    return made


def test_without_a_change_nothing_is_adopted(watch: ModelWatch, adopted: Adopted, events: Events) -> None:
    for _ in range(3):
        watch.refresh(adopted)
    assert adopted == []
    assert events.texts == ["model"]


def by_saving_again(folder: Path) -> None:
    save_model(folder, made=2)


def by_renaming(folder: Path) -> None:
    save_model(folder.with_name("next"), made=2)
    folder.rename(folder.with_name("old"))
    folder.with_name("next").rename(folder)


def in_place(folder: Path) -> None:
    save_model(folder.with_name("next"), made=2)
    for file in folder.with_name("next").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())


@pytest.mark.parametrize("change", [by_saving_again, by_renaming, in_place], ids=lambda c: c.__name__)
def test_a_changed_folder_is_adopted(
    change: Callable[[Path], None], watch: ModelWatch, folder: Path, adopted: Adopted
) -> None:
    change(folder)
    watch.refresh(adopted)
    assert [model.facts["made"] for model in adopted] == [2]
    assert watch.in_use.model.facts["made"] == 2
    watch.refresh(adopted)
    assert len(adopted) == 1


def test_a_mounted_configmap_is_adopted_when_the_kubelet_swaps_its_symlink(
    tmp_path: Path, events: Events, adopted: Adopted
) -> None:
    """The kubelet's layout: names -> `..data` -> a dated folder; `..data` is replaced by a rename."""
    mount = tmp_path / "mount"
    mount.mkdir()
    save_model(mount / "..2026_01", made=1)
    (mount / "..data").symlink_to("..2026_01")
    for name in ("manifest.json", "arrays.npz"):
        (mount / name).symlink_to(Path("..data") / name)
    watch = ModelWatch(ModelFolder(mount), events)
    watch.load_first()
    save_model(mount / "..2026_02", made=2)
    (mount / "..data_tmp").symlink_to("..2026_02")
    (mount / "..data_tmp").rename(mount / "..data")
    shutil.rmtree(mount / "..2026_01")
    watch.refresh(adopted)
    assert [model.facts["made"] for model in adopted] == [2]


def damaged(folder: Path) -> None:
    (folder / "arrays.npz").write_bytes(b"PK but not for long")


def truncated(folder: Path) -> None:
    content = (folder / "arrays.npz").read_bytes()
    (folder / "arrays.npz").write_bytes(content[: len(content) // 2])


def newer(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace('"schema":2', '"schema":99'))


def no_demand(folder: Path) -> None:
    replace(BUNDLED, demand=None).save(folder)


def odd_demand(folder: Path) -> None:
    assert BUNDLED.demand is not None
    losses = BUNDLED.demand.losses.astype(np.complex64)
    replace(BUNDLED, demand=replace(BUNDLED.demand, losses=losses)).save(folder)


@pytest.mark.parametrize("spoil", [damaged, truncated, newer, no_demand, odd_demand], ids=lambda s: s.__name__)
def test_a_bad_model_is_refused_and_logged_once_and_the_old_one_stays_in_use(
    spoil: Callable[[Path], None], watch: ModelWatch, folder: Path, events: Events, caplog: pytest.LogCaptureFixture
) -> None:
    fleet = Fleet(watch.in_use.model, 1.0, 30, lambda _: NewContainer(None, HistogramSession()))
    before = watch.in_use
    spoil(folder)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            watch.refresh(fleet.adopt)
    assert watch.in_use is before
    assert fleet.model is before.model
    assert len(events.texts) == 2
    assert events.texts[1]
    assert len([record for record in caplog.records if "refused" in record.getMessage()]) == 1
    save_model(folder, made=3)
    watch.refresh(fleet.adopt)
    assert fleet.model.facts["made"] == 3
    assert events.texts[2] == "model"


def test_a_model_that_fails_in_an_unforeseen_way_is_refused(watch: ModelWatch, folder: Path, events: Events) -> None:
    def adopt(_: PhaseModel) -> None:
        raise TypeError("no kernel takes this")

    before = watch.in_use
    save_model(folder, made=2)
    watch.refresh(adopt)
    assert watch.in_use is before
    assert events.texts[1] == "TypeError('no kernel takes this')"


def test_a_removed_folder_changes_nothing_and_is_adopted_when_it_comes_back(
    watch: ModelWatch, folder: Path, adopted: Adopted
) -> None:
    shutil.rmtree(folder)
    watch.refresh(adopted)
    assert adopted == []
    save_model(folder, made=4)
    watch.refresh(adopted)
    assert [model.facts["made"] for model in adopted] == [4]


def test_the_same_model_written_again_is_not_adopted_again(watch: ModelWatch, folder: Path, adopted: Adopted) -> None:
    os.utime(folder / "manifest.json", ns=(1, 1))
    watch.refresh(adopted)
    assert adopted == []


def test_a_model_that_changes_while_it_is_read_is_read_again(
    watch: ModelWatch, folder: Path, adopted: Adopted, monkeypatch: pytest.MonkeyPatch, events: Events
) -> None:
    """The new manifest with the old arrays is no bad model, only read at a bad moment."""
    load = models.load

    def swapped_while_read(name: object) -> PhaseModel:
        monkeypatch.setattr(models, "load", load)
        save_model(folder, made=3)
        raise BadArtifact("half old, half new")

    save_model(folder, made=2)
    monkeypatch.setattr(models, "load", swapped_while_read)
    watch.refresh(adopted)
    assert adopted == []
    assert events.texts == ["model"]
    watch.refresh(adopted)
    assert [model.facts["made"] for model in adopted] == [3]


def test_containers_keep_their_state_under_a_new_model(watch: ModelWatch, folder: Path) -> None:
    fleet = Fleet(watch.in_use.model, 1.0, 30, lambda _: NewContainer(None, HistogramSession()))
    instance = Instance("ns", "uid", "main")
    for second in range(50):
        fleet.observe(Samples.of([(instance, Sample(float(second), 1.0, 2e9))]))
    member = fleet.members[instance]
    before = fleet.recent(member).copy(), int(fleet.arrays.samples[member.slot]), fleet.arrays.first_cell[member.slot]
    save_model(folder, made=2)
    watch.refresh(fleet.adopt)
    assert fleet.model.facts["made"] == 2
    assert fleet.members[instance] is member
    assert (fleet.recent(member) == before[0]).all()
    assert (fleet.arrays.samples[member.slot], fleet.arrays.first_cell[member.slot]) == before[1:]


def test_a_start_without_the_model_folder_is_refused(tmp_path: Path, events: Events) -> None:
    with pytest.raises(BadArtifact, match="no such model folder"):
        ModelWatch(ModelFolder(tmp_path / "none"), events).load_first()


def test_the_name_of_a_model_chooses_its_source() -> None:
    def api() -> Api:
        raise AssertionError("not needed")

    assert isinstance(model_source("bundled", api), BundledModel)
    assert isinstance(model_source("some/folder", api), ModelFolder)
    with pytest.raises(Misuse, match="NAMESPACE/NAME"):
        model_source("configmap:lonely", api)


def test_the_bundled_model_has_the_digest_of_its_copy_in_a_folder(tmp_path: Path) -> None:
    shutil.copytree(DATA, tmp_path / "copy")
    assert BundledModel().load().digest == ModelFolder(tmp_path / "copy").load().digest


def test_files_and_time_of_a_model_configmap_are_read() -> None:
    model_map = read_model_map(
        {
            "metadata": {
                "namespace": "ns",
                "name": "m",
                "annotations": {"phasewise.dev/published-at": "2026-01-01T00:00:00Z"},
            },
            "binaryData": {"arrays.npz": base64.b64encode(b"\x00\xff").decode()},
        }
    )
    assert model_map.files == {"arrays.npz": b"\x00\xff"}
    assert model_map.written_s == 1767225600
    for noted in ({}, {"phasewise.dev/published-at": "yesterday"}):
        undated = read_model_map({"metadata": {"namespace": "ns", "name": "m", "annotations": noted}})
        assert (undated.files, undated.written_s) == ({}, None)


def test_a_model_published_to_a_configmap_is_adopted_by_its_watch(
    cluster: Cluster, namespace: str, tmp_path: Path, events: Events, adopted: Adopted
) -> None:
    kubeconfig = cluster.kubeconfig("admin")

    def publish(folder: Path) -> int:
        target = ["--configmap", f"{namespace}/model", "--kubeconfig", str(kubeconfig)]
        return run(cli, ["model", "publish", str(folder), *target])

    api = connect(kubeconfig, user_agent="test")
    watch = ModelWatch(model_source(f"configmap:{namespace}/model", lambda: api), events)
    assert watch.load_first().model.origin == "bundled"  # the ConfigMap does not exist yet

    def refresh() -> list[PhaseModel]:
        watch.refresh(adopted)
        return adopted

    assert publish(save_model(tmp_path / "one", made=1)) == 0
    wait_until(refresh, "the first model to be adopted", timeout_s=20)
    assert adopted[0].origin == f"configmap:{namespace}/model"
    assert watch.in_use.written_s is not None

    assert publish(save_model(tmp_path / "two", made=2)) == 0
    wait_until(lambda: len(refresh()) == 2, "the second", timeout_s=20)
    assert adopted[1].facts["made"] == 2

    truncated(tmp_path / "two")
    assert publish(tmp_path / "two") == 2  # a bad model is not even published
    cluster.core.patch_namespaced_config_map("model", namespace, {"binaryData": {"arrays.npz": "AAAA"}})

    def refused() -> bool:
        watch.refresh(adopted)
        return "checksum" in events.texts[-1]

    wait_until(refused, "the damaged one to be refused", timeout_s=20)
    assert watch.in_use.model.facts["made"] == 2
    assert isinstance(watch._source, ModelConfigMap)
    watch.stop()
