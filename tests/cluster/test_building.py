"""Building the servers: what triggers a build, what is reused, and the errors."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest

from tests.rig import building, servers, versions
from tests.rig.servers import Edit, Module

ALL = [(tools, module) for tools in (*servers.toolsets(), *servers.built_where_used()) for module in tools.modules]


@pytest.mark.parametrize(("tools", "module"), ALL, ids=[module.name for _, module in ALL])
def test_committed_module_files_have_the_declared_versions(tools: servers.Toolset, module: Module) -> None:
    text = (building.TOOLS / tools.name / "go.mod").read_text()
    assert re.search(rf"^\s+{re.escape(module.path)} {re.escape(module.version)}( // indirect)?$", text, re.M), (
        f"{module.path} {module.version}: run scripts/cluster tidy"
    )


def test_every_staging_module_has_the_version_of_the_kubernetes_release() -> None:
    text = (building.TOOLS / "kube" / "go.mod").read_text()
    wanted = versions.KUBERNETES.replace("1.", "v0.", 1)
    replaced = re.findall(r"^\s+(k8s\.io/\S+) => \S+ (\S+)$", text, re.M)
    assert len(replaced) > 30
    assert {version for _, version in replaced} == {wanted}


def test_the_environment_can_select_another_kubernetes_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(versions.CHOSEN_BY, "v1.35.4")
    assert versions.kubernetes_version() == "1.35.4"
    monkeypatch.delenv(versions.CHOSEN_BY)
    assert versions.kubernetes_version() == versions.KUBERNETES


@pytest.mark.parametrize("file", ["go.mod", "go.sum", "m_test.go"])
def test_the_hash_of_a_build_changes_with_its_module_files_and_the_source_of_its_wrapper(
    tmp_path: Path, file: str
) -> None:
    module = Module("m", "example.test/m", "v1.0.0", {"m": "."}, tests=True)
    for name in ("go.mod", "go.sum", "m_test.go"):
        (tmp_path / name).write_text("")
    before = building.recipe_hash(module, tmp_path)
    assert building.recipe_hash(module, tmp_path) == before
    (tmp_path / file).write_text("// changed\n")
    assert building.recipe_hash(module, tmp_path) != before


def test_modules_common_to_the_scheduler_benchmark_and_the_servers_have_one_version() -> None:
    """Packages compiled for one are then reused by the other."""

    def versions_in(name: str) -> dict[str, str]:
        return dict(re.findall(r"^\t(\S+) (v\S+)", (building.TOOLS / name / "go.mod").read_text(), re.M))

    served, perf = versions_in("kube"), versions_in("scheduler-perf")
    assert len(perf) > 100
    assert all(served.get(name, version) == version for name, version in perf.items())


def test_a_built_server_is_not_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def refuse(*_: object) -> str:
        raise AssertionError("the Go toolchain was called although everything is in the cache")

    monkeypatch.setattr(building, "run_go", refuse)
    for tools, module in ALL:
        kept = f"{module.name}-{module.version}-{building.recipe_hash(module, building.TOOLS / tools.name)}"
        (tmp_path / "phasewise" / "servers" / kept / "bin").mkdir(parents=True)
    monkeypatch.delenv(versions.CHOSEN_BY, raising=False)
    binaries = building.build_all(lambda line: pytest.fail(f"unexpected message: {line}"))
    assert binaries["kubelet"].name == "kubelet"
    assert {"etcd", "kube-apiserver", "kwok", "vpa-updater", "promtool"} <= set(binaries)


def test_sets_are_built_in_parallel_after_the_first_server_and_a_failure_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(versions.CHOSEN_BY, raising=False)
    together = threading.Barrier(2, timeout=10)
    started: list[str] = []

    def build(module: Module, sources: Path, into: Path, say: building.Say) -> None:
        started.append(module.name)
        if module.name in {"kube", "vpa"}:
            together.wait()  # passes only while both are being built
        if module.name == "prometheus":
            raise building.BuildFailed("prometheus: undefined: thing")

    monkeypatch.setattr(building, "_build", build)
    with pytest.raises(building.BuildFailed, match="undefined: thing"):
        building.build_all(lambda _: None)
    assert started[0] == "etcd"
    assert not list((tmp_path / "phasewise" / "servers").glob("prometheus-*")), "a partial build is not kept"


def test_an_edit_of_a_line_that_upstream_changed_stops_the_build_with_its_reason(tmp_path: Path) -> None:
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    (upstream / "main.go").write_text("package main\n")
    edit = Edit("main.go", "old line", "new line", "it would listen everywhere")
    module = Module("m", "example.test/m", "v1.0.0", {"m": ""}, edits=(edit,))
    with pytest.raises(building.BuildFailed, match=r"main\.go no longer has .* it would listen everywhere"):
        building.with_edits(module, upstream, tmp_path, tmp_path)


def test_a_go_on_the_path_that_is_too_old_is_skipped_for_the_cached_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(path: Path, output: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{output}'\n")
        path.chmod(0o755)
        return path

    on_path = program(tmp_path / "bin" / "go", "go version go1.20.3 linux/amd64")
    cached = program(tmp_path / "phasewise" / f"go-{versions.GO_WHEEL}" / "go" / "bin" / "go", "kept")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin:/usr/bin")
    assert building.find_go(pytest.fail) == cached
    program(on_path, f"go version go{versions.GO_AT_LEAST} linux/amd64")
    assert building.find_go(pytest.fail) == on_path


def test_the_output_of_the_toolchain_is_in_the_error_of_a_failed_build(tmp_path: Path) -> None:
    script = tmp_path / "go"
    script.write_text("#!/bin/sh\necho 'undefined: thing' >&2\nexit 1\n")
    script.chmod(0o755)
    with pytest.raises(building.BuildFailed, match="undefined: thing"):
        building.run_go([script, "build"], tmp_path)
