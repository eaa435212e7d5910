"""Go modules of the servers: packages, versions, flags, and upstream manifests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.rig import versions

KUBERNETES_PATH = "k8s.io/kubernetes"


@dataclass(frozen=True)
class Edit:
    """A replaced line of an upstream file, and the reason; the build fails if the line is missing."""

    file: str
    old: str
    new: str
    why: str


def _without_debug_information(*link: str) -> tuple[str, ...]:
    """Flags of `go build`: without DWARF, compiling takes a sixth less."""
    return "-gcflags=all=-dwarf=false", " ".join(("-ldflags=-s -w", *link))


@dataclass(frozen=True)
class Module:
    """An upstream Go module, and the servers built from it.

    `path`, `version`: The upstream module, without and with its `v`.
    `packages`: Name of the binary -> package below `path` ("" for the module itself).
    `build_flags`: Further flags of `go build`.
    `manifests`: Files or folders of the upstream module kept beside the binaries (custom resources, roles, stages).
    `edits`: Replaced lines.
    `tests`: Whether the packages are tests of ours that run upstream's code; paths are then below the folder of the
        module files.
    """

    name: str
    path: str
    version: str
    packages: Mapping[str, str]
    build_flags: tuple[str, ...] = _without_debug_information()
    manifests: tuple[str, ...] = ()
    edits: tuple[Edit, ...] = ()
    tests: bool = field(default=False, repr=False)  # not part of the recipe hash


def kube(version: str) -> Module:
    """Kubernetes. Without these flags its version would be v0.0.0-master, which kubectl cannot parse."""
    major, minor, _ = version.split(".", 2)
    stamp = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = _without_debug_information(*(f"-X {stamp}.{name}={value}" for name, value in values.items()))
    binaries = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
    return Module("kube", KUBERNETES_PATH, f"v{version}", {name: f"cmd/{name}" for name in binaries}, flags)


@dataclass(frozen=True)
class Toolset:
    """Modules resolved together in one go.mod, so that common dependencies are compiled once, which halves the build.

    `beside` names a set whose versions it adopts as far as possible, for the same reason.
    """

    name: str
    modules: tuple[Module, ...]
    beside: str = ""


def toolsets() -> tuple[Toolset, ...]:
    """All servers in build order, those of the control plane first.

    VPA and Prometheus use the Kubernetes libraries of the next minor version, hence two sets.
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
    """Kubernetes' benchmark of its scheduler, built only where it is run."""
    templates = "test/integration/scheduler_perf/templates"
    module = Module(
        "scheduler-perf", KUBERNETES_PATH, f"v{versions.KUBERNETES}", {"scheduler-perf": "."},
        manifests=(templates,), tests=True,
    )  # fmt: skip
    return Toolset(module.name, (module,), beside="kube")


def helm() -> Toolset:
    """Helm, built only where the chart is tested or packaged. It uses the same libraries as the VPA."""
    stamp = f"-X helm.sh/helm/v4/internal/version.version=v{versions.HELM}"
    module = Module(
        "helm", "helm.sh/helm/v4", f"v{versions.HELM}", {"helm": "cmd/helm"}, _without_debug_information(stamp)
    )
    return Toolset(module.name, (module,), beside="vpa-prometheus")


def built_where_used() -> tuple[Toolset, ...]:
    return (scheduler_perf(), helm())
