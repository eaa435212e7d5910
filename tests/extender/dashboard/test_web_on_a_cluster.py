"""The pages on a real cluster: with exactly the rights of the manifest, and reached by following the tutorial."""

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

from extender.dashboard.pages import AccessCheck
from extender.dashboard.watching import ClusterWatch
from recommender.cluster.access.connection import connect
from tests.browser import ARGUMENTS, CHROMIUM, PATIENCE_MS, WHY_NOT
from tests.rig.cluster import Cluster
from tests.rig.installing import MANIFESTS
from tests.rig.real_node.node import RealNode
from tests.rig.rig import ROOT
from tests.rig.rights import Account, Right, rights_in, roles_in
from tests.rig.waiting import wait_until
from tests.rig.workloads import clear_namespace, clear_ours

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
def running_watch(account: Account) -> Iterator[ClusterWatch]:
    watch = ClusterWatch(connect(account.kubeconfig, user_agent="web-test"), period_s=0.2)
    watch.watches.start()
    watch.loop.start()
    try:
        yield watch
    finally:
        watch.loop.stop()
        watch.watches.stop()


@pytest.mark.parametrize("right", [right for right in RIGHTS if right.resource not in AUTHENTICATION], ids=str)
def test_without_a_right_to_read_the_watch_reports_which_one_is_missing(account: Account, right: Right) -> None:
    refused = f'cannot {right.verb} resource "{right.resource}" in API group "{right.group}"'
    with ExitStack() as stack:
        with account.without(right):
            watch = stack.enter_context(running_watch(account))
            wait_until(lambda: refused in watch.not_ready() + " ".join(watch.seen.troubles), "the right to be reported")
        wait_until(lambda: not watch.not_ready() and not watch.seen.troubles, "everything to be shown", timeout_s=60)


def token_without_rights(cluster: Cluster) -> str:
    """The token of a service account without any rights."""
    account = yaml.safe_load(cluster.service_account("kube-system", "reads-nothing").read_text())
    token: str = account["users"][0]["user"]["token"]
    return token


@pytest.mark.parametrize("right", [right for right in RIGHTS if right.resource in AUTHENTICATION], ids=str)
def test_without_a_right_to_review_tokens_or_access_every_reader_is_refused(
    cluster: Cluster, account: Account, right: Right
) -> None:
    token = token_without_rights(cluster)
    api = connect(account.kubeconfig, user_agent="web-test")
    with account.without(right):
        assert right.resource in str(AccessCheck(api).refusal(f"Bearer {token}"))
    assert "reads-nothing may not list phaseprofiles" in str(AccessCheck(api).refusal(f"Bearer {token}"))
    assert AccessCheck(api).refusal("Bearer of-nobody") == (401, "the token is not valid")


# -- the tutorial ------------------------------------------------------------------------------------------------------


class TutorialUser:
    """Runs the commands of the tutorial in shells; those that end with & run until `stop`."""

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
        self._background: list[subprocess.Popen[bytes]] = []

    def run(self, command: str) -> None:
        shell_command = command.removesuffix("&")
        with (self.folder / "output.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-e", "-c", shell_command],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if command.endswith("&"):
            self._background.append(process)
        else:
            assert process.wait(timeout=120) == 0, f"{command}\n{self.output}"

    @property
    def output(self) -> str:
        return (self.folder / "output.log").read_text()

    def stop(self) -> None:
        for process in self._background:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._background:
            process.wait(timeout=30)


def commands() -> list[str]:
    """The commands of the tutorial up to the first `kubectl get`; the cluster exists already."""
    (block,) = re.findall(r"```sh\n(apt-get.*?)```", TUTORIAL, re.DOTALL)
    commands = [line.partition("  #")[0].strip() for line in block.splitlines()]
    assert commands[1] == "scripts/cluster up --real-node --vpa"
    first_look = next(number for number, line in enumerate(commands) if line.startswith("kubectl get"))
    return commands[2:first_look]


@pytest.fixture
def tutorial_user(vpa: Cluster, metrics_server: Cluster, real_node: RealNode, tmp_path: Path) -> Iterator[TutorialUser]:
    clear_ours(vpa)
    user = TutorialUser(vpa, tmp_path)
    try:
        yield user
    finally:
        user.stop()
        clear_namespace(vpa, "training")


@pytest.fixture
def browser_page() -> Iterator[Page]:
    """A page that must log nothing and fetch nothing from other hosts."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=PATIENCE_MS)
        page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        page.set_default_timeout(PATIENCE_MS)
        errors: list[str] = []
        hosts: set[str] = set()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        yield page
        browser.close()
        assert errors == []
        assert len(hosts) == 1


@pytest.mark.real
@pytest.mark.skipif(CHROMIUM is None, reason=WHY_NOT)
def test_the_tutorial_leads_from_an_empty_cluster_to_a_recommendation_on_the_page(
    tutorial_user: TutorialUser, browser_page: Page
) -> None:
    for command in commands():
        tutorial_user.run(command)

    def recommended() -> Any:
        answer = requests.get(f"http://{tutorial_user.page}/", timeout=10)
        jobs = answer.json()["jobs"] if answer.status_code == 200 else []
        return [job for job in jobs if job["cpuCores"]["target"] and job["phase"]]

    (job,) = wait_until(recommended, "a recommendation on the page", timeout_s=WITHIN_S, every_s=1.0)
    assert (job["namespace"], job["name"]) == ("training", "train-1.job")

    page = browser_page
    page.goto(f"http://{tutorial_user.page}/")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:has-text('training/train-1.job')")
    assert page.locator("svg.hour .line-use").count() >= 2
    assert "present" in page.inner_text("dl.facts")
    for key, title in (("n", "Nodes"), ("c", "Classes"), ("w", "Warnings"), ("f", "Fleet")):
        page.keyboard.press(key)
        page.wait_for_function("title => document.title.startsWith(title)", arg=title)
