"""`scripts/cluster`: the test cluster for interactive use."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import click
import psutil
from rich.console import Console
from rich.table import Table

from tests.rig import building, servers
from tests.rig.cluster import KEPT, Cluster, clear, clear_leftovers
from tests.rig.real_node.network import missing_packages, what_is_missing
from tests.rig.rig import ROOT, clusters_folder, recorded_processes

PERSONAL = "mine"
"""Name of the cluster for interactive use; test runs have other names."""

stderr = Console(stderr=True)


def folder() -> Path:
    return clusters_folder() / PERSONAL


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """A real Kubernetes cluster on this machine: etcd, API server, controllers, scheduler, and optional components.

    It listens on loopback, needs no container engine, and is removed by `down`. Example:

    \b
      scripts/cluster up --nodes 20 --vpa --prometheus --extender
      export KUBECONFIG=...          (printed by `up`, with aliases for kubectl and phasewise)
      kubectl get nodes
      scripts/cluster down
    """


@cluster.command()
@click.option("--nodes", default=3, show_default=True, help="Number of simulated nodes.")
@click.option("--real-node", is_flag=True, help="A node that runs real containers (needs root and containerd).")
@click.option("--vpa", is_flag=True, help="VPA updater and admission controller.")
@click.option("--default-recommender", is_flag=True, help="The VPA's own recommender.")
@click.option("--metrics-server", is_flag=True, help="metrics.k8s.io; included in --vpa.")
@click.option("--prometheus", is_flag=True, help="Prometheus and kube-state-metrics.")
@click.option("--extender", is_flag=True, help="Scheduler, extender, gang controller and webhook.")
def up(
    nodes: int,
    real_node: bool,
    vpa: bool,
    default_recommender: bool,
    metrics_server: bool,
    prometheus: bool,
    extender: bool,
) -> None:
    """Start the cluster, and print how to reach it.

    The first start builds the servers (ten to fifteen minutes on two cores); later ones take seconds.
    """
    clear_leftovers()
    if folder().exists():
        raise click.ClickException("The cluster is already up; stop it with `scripts/cluster down`.")
    if real_node and (missing := what_is_missing()):
        raise click.UsageError(f"--real-node: {missing}")
    made = Cluster(PERSONAL, building.build_all())
    try:
        step("control plane", made.up)
        if nodes:
            step(f"{nodes} simulated nodes", lambda: made.start_nodes(nodes))
        if real_node:
            step("real node", made.real_node)
        if metrics_server or vpa or default_recommender:
            step("metrics-server", made.metrics_server)
        if prometheus:
            step("kube-state-metrics", made.kube_state_metrics)
            step("Prometheus", made.prometheus)
        if vpa:
            step("VPA updater and admission controller", made.vpa_updater)
        if default_recommender:
            step("VPA recommender", made.vpa_recommender)
        if extender:
            step("scheduler, extender, gang controller and webhook", lambda: made.extender(own_ports=True))
    except BaseException:
        stderr.print("[red]Stopping what was started.[/]")
        made.down()
        raise
    (made.folder / KEPT).touch()
    facts = {"kubeconfig": str(made.kubeconfig("admin")), "kubectl": str(made.binaries["kubectl"])}
    if prometheus:
        facts["prometheus"] = made.prometheus().url
    if extender:
        facts["extender"] = made.extender().url
    (made.folder / "facts.json").write_text(json.dumps(facts))
    print_facts(facts)


@cluster.command()
def down() -> None:
    """Stop all servers of the cluster, and remove its files."""
    clear_leftovers()
    if not folder().exists():
        click.echo("No cluster is up.", err=True)
        return
    with stderr.status("Stopping the cluster"):
        clear(folder())
    click.echo("The cluster is down.", err=True)


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(as_json: bool) -> None:
    """Show servers with process ids and memory. Exit code 1 if a server is missing, 3 if no cluster is up."""
    if not folder().exists():
        click.echo("{}" if as_json else "No cluster is up. Start one: scripts/cluster up", err=not as_json)
        sys.exit(3)
    facts = json.loads((folder() / "facts.json").read_text()) if (folder() / "facts.json").exists() else {}
    rows = [(name, record.alive()) for name, record in recorded_processes(folder()).items()]
    if as_json:
        running = [
            {"name": name, "pid": process and process.pid, "resident_bytes": process and process.memory_info().rss}
            for name, process in rows
        ]
        click.echo(json.dumps({**facts, "servers": running}, indent=2))
    else:
        print_facts(facts)
        Console().print(table_of(rows))
    sys.exit(0 if all(process for _, process in rows) else 1)


@cluster.command()
def packages() -> None:
    """Print Debian packages that a real node needs and this machine lacks, for apt-get install."""
    click.echo(" ".join(missing_packages()))


@cluster.command()
def build() -> None:
    """Build the servers into the cache without starting them."""
    building.build_all()


@cluster.command()
def tidy() -> None:
    """Rewrite the Go module files for the versions in versions.py."""
    for tools in (*servers.toolsets(), *servers.built_where_used()):
        building.tidy(tools, building.TOOLS / tools.name, click.echo)


def step(name: str, start: Callable[[], object]) -> None:
    with stderr.status(f"Starting {name}"):
        start()
    stderr.print(f"[green]started[/] {name}")


def print_facts(facts: dict[str, str]) -> None:
    if kubeconfig := facts.get("kubeconfig"):
        click.echo(f"export KUBECONFIG={kubeconfig}")
    if (kubectl := facts.get("kubectl")) and not shutil.which("kubectl"):
        click.echo(f"alias kubectl={kubectl}")
    if not shutil.which("phasewise"):
        click.echo(f"alias phasewise='PYTHONPATH={ROOT} {sys.executable} -m extender'")
    if prometheus := facts.get("prometheus"):
        click.echo(f"# Prometheus: {prometheus}")
    if extender := facts.get("extender"):
        click.echo(f"# Extender: {extender}")


def table_of(rows: list[tuple[str, psutil.Process | None]]) -> Table:
    table = Table("server", "process", "memory MiB", caption=f"logs: {folder() / 'logs'}", caption_justify="left")
    for name, process in rows:
        memory = f"{process.memory_info().rss / 2**20:.0f}" if process else "-"
        state = str(process.pid) if process else "[red]ended[/]"
        table.add_row(name, state, memory)
    return table


if __name__ == "__main__":
    cluster(prog_name="scripts/cluster")
