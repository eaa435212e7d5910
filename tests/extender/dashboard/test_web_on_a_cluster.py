"""The pages on a real cluster: with the rights of the manifest and no others, and as a newcomer comes to them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml

from extender.dashboard.access import AccessCheck
from extender.dashboard.watching import ClusterWatch
from local_cluster.clearing import clear_namespace, clear_ours
from local_cluster.cluster import Cluster
from local_cluster.installing import MANIFESTS, ROOT
from local_cluster.real_node.node import RealNode
from local_cluster.rights import Account, Right, rights_in, roles_in
from local_cluster.waiting import wait_until
from recommender.cluster.access.connection import connect
from tests.browser import ARGUMENTS, CHROMIUM, PATIENCE_MS, WHY_NOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

RIGHTS = rights_in(roles_in(MANIFESTS / "web" / "rbac.yaml"))
AUTHENTICATION = ("tokenreviews", "subjectaccessreviews")
TUTORIAL = (ROOT / "docs" / "tutorials" / "live.md").read_text()
WITHIN_S = 300.0
"""From an empty cluster to a recommendation on the page."""


@pytest.fixture(scope="module")
def account(cluster: Cluster, metrics_server: Cluster) -> Account:
    cluster.vpa_resources()
    cluster.apply(MANIFESTS / "crd" / "phaseprofiles.yaml")
    return Account(cluster, "phasewise-web", roles_in(MANIFESTS / "web" / "rbac.yaml"))


@contextmanager
def looking(account: Account) -> Iterator[ClusterWatch]:
    watching = ClusterWatch(connect(account.kubeconfig, user_agent="web-test"), period_s=0.2)
    watching.start()
    try:
        yield watching
    finally:
        watching.stop()


@pytest.mark.parametrize("right", [right for right in RIGHTS if right.resource not in AUTHENTICATION], ids=str)
def test_without_a_right_to_read_it_says_which_and_with_it_all_is_shown(account: Account, right: Right) -> None:
    refused = f'cannot {right.verb} resource "{right.resource}" in API group "{right.group}"'
    with ExitStack() as stack:
        with account.without(right):
            watching = stack.enter_context(looking(account))
            wait_until(lambda: refused in watching.not_ready() + " ".join(watching.seen.troubles), "it to say so")
        wait_until(lambda: not watching.not_ready() and not watching.seen.troubles, "all to be shown", timeout_s=60)


def token_of_nobody_special(cluster: Cluster) -> str:
    """Of a service account without any rights."""
    account = yaml.safe_load(cluster.service_account("kube-system", "reads-nothing").read_text())
    token: str = account["users"][0]["user"]["token"]
    return token


@pytest.mark.parametrize("right", [right for right in RIGHTS if right.resource in AUTHENTICATION], ids=str)
def test_without_a_right_to_ask_about_readers_nobody_is_let_in(
    cluster: Cluster, account: Account, right: Right
) -> None:
    token = token_of_nobody_special(cluster)
    api = connect(account.kubeconfig, user_agent="web-test")
    with account.without(right):
        assert right.resource in AccessCheck(api).refusal(f"Bearer {token}")
    assert "reads-nothing may not list phaseprofiles" in AccessCheck(api).refusal(f"Bearer {token}")
    assert AccessCheck(api).refusal("Bearer of-nobody") == "the token is not valid"


# -- a newcomer --------------------------------------------------------------------------------------------------------


class Newcomer:
    """Types the commands of the tutorial into shells; what is begun with & is ended in the end."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "bin" / "kubectl").symlink_to(cluster.binaries["kubectl"])
        program = folder / "bin" / "phasewise"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m extender "$@"\n')
        program.chmod(0o755)
        (folder / "manifests").symlink_to(MANIFESTS)
        self.page = f"127.0.0.1:{cluster.ports.free()}"
        self._environment = os.environ | {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT),
            "KUBECONFIG": str(cluster.kubeconfig("admin")),
            "PHASEWISE_RECOMMENDER_ADDRESS": f"127.0.0.1:{cluster.ports.free()}",
            "PHASEWISE_WEB_ADDRESS": self.page,
        }
        self._begun: list[subprocess.Popen[bytes]] = []

    def types(self, command: str) -> None:
        words = command.removesuffix("&")
        with (self.folder / "said.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-e", "-c", words],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if command.endswith("&"):
            self._begun.append(process)
        else:
            assert process.wait(timeout=120) == 0, f"{command}\n{self.said}"

    @property
    def said(self) -> str:
        return (self.folder / "said.log").read_text()

    def leaves(self) -> None:
        for process in self._begun:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._begun:
            process.wait(timeout=30)


def commands() -> list[str]:
    """Those of the tutorial up to the first that only looks on; the cluster itself is there already."""
    (block,) = re.findall(r"```sh\n(apt-get.*?)```", TUTORIAL, re.DOTALL)
    typed = [line.partition("  #")[0].strip() for line in block.splitlines()]
    assert typed[1] == "scripts/cluster up --real-node --vpa"
    looks = next(number for number, line in enumerate(typed) if line.startswith("kubectl get"))
    return typed[2:looks]


@pytest.fixture
def newcomer(vpa: Cluster, metrics_server: Cluster, real_node: RealNode, tmp_path: Path) -> Iterator[Newcomer]:
    clear_ours(vpa)
    person = Newcomer(vpa, tmp_path)
    try:
        yield person
    finally:
        person.leaves()
        clear_namespace(vpa, "training")


@pytest.fixture
def browser_page() -> Iterator[Page]:
    """Nothing may be complained about, and nothing fetched from elsewhere."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=PATIENCE_MS)
        page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE_MS)
        complaints: list[str] = []
        hosts: set[str] = set()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        yield page
        browser.close()
        assert complaints == []
        assert len(hosts) == 1


@pytest.mark.real
@pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)
def test_a_newcomer_comes_from_an_empty_cluster_to_a_recommendation_on_the_page(
    newcomer: Newcomer, browser_page: Page
) -> None:
    for command in commands():
        newcomer.types(command)

    def recommended() -> Any:
        answer = requests.get(f"http://{newcomer.page}/", timeout=10)
        jobs = answer.json()["jobs"] if answer.status_code == 200 else []
        return [job for job in jobs if job["cpuCores"]["target"] and job["phase"]]

    (job,) = wait_until(recommended, "a recommendation on the page", timeout_s=WITHIN_S, every_s=1.0)
    assert (job["namespace"], job["name"]) == ("training", "train-1.job")

    page = browser_page
    page.goto(f"http://{newcomer.page}/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('training/train-1.job')")
    assert page.locator("svg.hour .line-use").count() >= 2
    assert "present" in page.inner_text("dl.facts")
    for key, title in (("n", "Nodes"), ("c", "Classes"), ("w", "Warnings"), ("f", "Fleet")):
        page.keyboard.press(key)
        page.wait_for_function("title => document.title.startsWith(title)", arg=title)
