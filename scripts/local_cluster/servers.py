"""Which Go module gives which server: packages, version, link flags, and the upstream manifests that come with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from local_cluster import versions

KUBERNETES_PATH = "k8s.io/kubernetes"


@dataclass(frozen=True)
class Edit:
    """One line of an upstream file that is built differently, and why; the build fails when the line is gone."""

    file: str
    old: str
    new: str
    why: str


def _without_debug_information(*link: str) -> tuple[str, ...]:
    """What `go build` gets: nobody debugs these servers, and compiling without DWARF takes a sixth less."""
    return "-gcflags=all=-dwarf=false", " ".join(("-ldflags=-s -w", *link))


@dataclass(frozen=True)
class Module:
    """A Go module that is only there to build some servers of one upstream project, whose dependencies fit together.

    Attributes
    ----------
    path, version
        The upstream module, without and with its `v`.
    packages
        Name of the binary -> package below `path` ("" for the module itself).
    build_flags
        What `go build` gets besides.
    manifests
        Files or folders of the upstream module kept beside the binaries (custom resources, roles, stages).
    edits
        Lines that are built differently.
    tests
        Whether the packages are tests of ours that run upstream's code, compiled to programs; paths are then below the
        folder of the module files.
    """

    name: str
    path: str
    version: str
    packages: Mapping[str, str]
    build_flags: tuple[str, ...] = _without_debug_information()
    manifests: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    tests: bool = field(default=False, repr=False)  # no part of the recipe: what was built before stays


def kube(version: str) -> Module:
    """Kubernetes itself. Built plainly it calls itself v0.0.0-master, which its own kubectl cannot read."""
    major, minor, _ = version.split(".", 2)
    stamp = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = _without_debug_information(*(f"-X {stamp}.{name}={value}" for name, value in values.items()))
    binaries = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
    return Module("kube", KUBERNETES_PATH, f"v{version}", {name: f"cmd/{name}" for name in binaries}, flags)


@dataclass(frozen=True)
class Toolset:
    """Modules that are resolved together, in one go.mod: what they share is compiled once, which halves the build.

    `beside` names another set, resolved before, whose versions it takes as far as it can, for the same reason.
    """

    name: str
    modules: tuple[Module, ...]
    beside: str = ""


def toolsets() -> tuple[Toolset, ...]:
    """All servers, in the order in which they are built: what a control plane needs first.

    The VPA and Prometheus already stand on the Kubernetes libraries of the next minor version, hence two sets.
    """
    etcd = Module("etcd", "go.etcd.io/etcd/server/v3", f"v{versions.ETCD}", {"etcd": ""})
    kwok = Module(
        "kwok", "sigs.k8s.io/kwok", f"v{versions.KWOK}", {"kwok": "cmd/kwok"},
        manifests=("kustomize/crd/bases", "kustomize/rbac", "kustomize/stage"),
    )  # fmt: skip
    metrics_server = Module(
        "metrics-server", "sigs.k8s.io/metrics-server", f"v{versions.METRICS_SERVER}",
        {"metrics-server": "cmd/metrics-server"}, manifests=("manifests/base",),
    )  # fmt: skip
    kube_state_metrics = Module(
        "kube-state-metrics", "k8s.io/kube-state-metrics/v2", f"v{versions.KUBE_STATE_METRICS}",
        {"kube-state-metrics": ""}, manifests=("examples/standard",),
    )  # fmt: skip
    vpa = Module(
        "vpa", "k8s.io/autoscaler/vertical-pod-autoscaler", f"v{versions.VPA}",
        {f"vpa-{part}": f"pkg/{part}" for part in ("admission-controller", "recommender", "updater")},
        manifests=("deploy",),
        edits=(
            Edit(
                "pkg/admission-controller/main.go",
                'Addr:      fmt.Sprintf(":%d", config.Port),',
                'Addr:      fmt.Sprintf("127.0.0.1:%d", config.Port),',
                "its webhook has no flag for the address and would listen on every interface of the machine",
            ),
        ),
    )  # fmt: skip
    prometheus = Module(
        "prometheus", "github.com/prometheus/prometheus", f"v{versions.PROMETHEUS}",
        {"prometheus": "cmd/prometheus", "promtool": "cmd/promtool"},
        ("-tags", "remove_all_sd,enable_kubernetes_sd", *_without_debug_information()),
    )  # fmt: skip
    return (
        Toolset("kube", (etcd, kube(versions.KUBERNETES), kwok, metrics_server, kube_state_metrics)),
        Toolset("vpa-prometheus", (vpa, prometheus)),
    )


def scheduler_perf() -> Toolset:
    """Kubernetes' benchmark of its scheduler, which is only built where it is run."""
    templates = "test/integration/scheduler_perf/templates"
    module = Module(
        "scheduler-perf", KUBERNETES_PATH, f"v{versions.KUBERNETES}", {"scheduler-perf": "."},
        manifests=(templates,), tests=True,
    )  # fmt: skip
    return Toolset(module.name, (module,), beside="kube")


def helm() -> Toolset:
    """Helm, which is only built where the chart is tested or packaged. It stands on the same libraries as the VPA."""
    stamp = f"-X helm.sh/helm/v4/internal/version.version=v{versions.HELM}"
    module = Module(
        "helm", "helm.sh/helm/v4", f"v{versions.HELM}", {"helm": "cmd/helm"}, _without_debug_information(stamp)
    )
    return Toolset(module.name, (module,), beside="vpa-prometheus")


def built_where_used() -> tuple[Toolset, ...]:
    """What a cluster can do without."""
    return (scheduler_perf(), helm())
