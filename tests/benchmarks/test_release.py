"""A release has images, chart, bills of materials and checksums, and a signature that holds until a file is changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from recommender import __version__
from tests.benchmarks.benches import SCRIPTS, invoke
from tests.rig import building, servers

ROOT = SCRIPTS.parent
ENGINE = """#!/bin/sh
# Stands in for a container engine: an image holds two libraries, one named after the requirements it was built with.
case $1 in
  build) echo "${3#REQUIREMENTS=}" > "$0-$5"; echo "$*" >> "$0.builds" ;;
  create) echo "$0-$2" ;;
  cp)
    image=${2%:/opt/phasewise/lib}
    site=$3/lib/python3.11/site-packages
    mkdir -p "$site/it-1.0.dist-info" "$site/text-2.0.dist-info"
    printf 'Name: %s\\nVersion: 1.0\\nLicense-Expression: MIT\\n' "$(cat "$image")" > "$site/it-1.0.dist-info/METADATA"
    printf 'Name: text\\nVersion: 2.0\\nLicense: Copyright\\n    All rights\\n%s\\n' \\
      'Classifier: License :: OSI Approved :: BSD License' > "$site/text-2.0.dist-info/METADATA" ;;
  save) echo "$4" > "$3" ;;
esac
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """Not every machine has one; the subcommands are those of docker and podman."""
    program = tmp_path / "engine"
    program.write_text(ENGINE)
    program.chmod(0o755)
    return program


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A committed tree whose changelog has a date."""
    tree = tmp_path / "source"
    shutil.copytree(ROOT / "manifests", tree / "manifests")
    (tree / "CHANGELOG.md").write_text(f"# Changelog\n\n## {__version__} (2026-11-23)\n")
    name = ("-c", "user.name=tests", "-c", "user.email=tests@example.test")
    for words in (("init", "-q"), ("add", "."), (*name, "commit", "-q", "-m", "all of it")):
        assert run(tree, "git", *words).returncode == 0
    return tree


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A new key in a new key ring."""
    if not shutil.which("gpg"):
        pytest.skip("no gpg on this machine: apt-get install gnupg")
    with tempfile.TemporaryDirectory() as home:  # holds sockets, whose paths must be short
        monkeypatch.setenv("GNUPGHOME", home)
        user = "release@example.test"
        words = ("gpg", "--batch", "--passphrase", "", "--quick-generate-key", user, "ed25519", "sign", "never")
        made = run(Path(home), *words)
        assert made.returncode == 0, made.stderr
        yield user
        run(Path(home), "gpgconf", "--kill", "all")


@pytest.mark.cluster
def test_a_release_is_complete_and_signed(source: Path, engine: Path, key: str, tmp_path: Path) -> None:
    building.build_one(servers.helm())
    made = tmp_path / "dist"
    done = invoke("release", "--key", key, "--engine", engine, "--source", source, "-o", made)
    assert done.exit_code == 0, done.output
    assert sorted(file.name for file in made.iterdir()) == [
        "SHA256SUMS",
        "SHA256SUMS.asc",
        f"phasewise-{__version__}-image.tar.gz",
        f"phasewise-{__version__}.cdx.json",
        f"phasewise-{__version__}.tgz",
        f"phasewise-offline-{__version__}-image.tar.gz",
        f"phasewise-offline-{__version__}.cdx.json",
    ]
    bill = json.loads((made / f"phasewise-offline-{__version__}.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "phasewise-offline")
    own_licence, classified = sorted(bill["components"], key=lambda component: component["version"])
    assert own_licence["purl"] == "pkg:pypi/requirements.txt@1.0"
    assert own_licence["licenses"] == [{"license": {"id": "MIT"}}]
    assert classified["licenses"] == [{"license": {"name": "BSD License"}}]  # not the first line of its text
    commit = run(source, "git", "rev-parse", "HEAD").stdout.strip()
    for build in Path(f"{engine}.builds").read_text().splitlines():
        assert f"--label=org.opencontainers.image.version={__version__} " in build
        assert f"--label=org.opencontainers.image.revision={commit} " in build

    def verifies() -> bool:
        return (
            run(made, "gpg", "--verify", "SHA256SUMS.asc").returncode == 0
            and run(made, "sha256sum", "--check", "--strict", "SHA256SUMS").returncode == 0
        )

    assert verifies()
    with (made / f"phasewise-{__version__}.tgz").open("ab") as chart:
        chart.write(b"more")
    assert not verifies()


def test_a_tree_with_uncommitted_changes_or_an_undated_version_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "CHANGELOG.md").write_text(f"## {__version__} (unreleased)\n")
    words = ("release", "--key", "nobody", "--source", source, "-o", tmp_path / "dist")
    assert "changes that are not committed" in invoke(*words).output
    name = ("-c", "user.name=tests", "-c", "user.email=tests@example.test")
    assert run(source, "git", *name, "commit", "-q", "-a", "-m", "no date").returncode == 0
    refused = invoke(*words)
    assert (refused.exit_code, "has no dated section" in refused.output) == (1, True)
    assert not (tmp_path / "dist").exists()
