"""The pods of a VPA: resolved from its targetRef, and checked against the ownership.

Well-known kinds are resolved from watches, without requests; other kinds by their scale subresource. Jobs of CRDs and
other kinds without one are resolved by the owners of pods and the labels set by their controllers.

Sources: kubernetes/autoscaler, vertical-pod-autoscaler, `pkg/target/fetcher.go` and `pkg/target/controller_fetcher`.
"""

from __future__ import annotations

from dataclasses import dataclass

from recommender.cluster.objects.metadata import ObjectKey, OwnerRef
from recommender.cluster.objects.pods import PENDING, Pod
from recommender.cluster.objects.selectors import BadSelector, LabelSelector
from recommender.cluster.objects.vpa import TargetRef
from recommender.cluster.workloads.kinds import NAME_LABELS
from recommender.cluster.workloads.ownership import MAX_OWNERS, PodIndex, Ref, Workload, Workloads
from recommender.cluster.workloads.scales import FAILURES, ScaleAnswer, ScaleResult, Scales


@dataclass(frozen=True, slots=True)
class Resolution:
    """The pods of a VPA, sorted by name, or why they cannot be determined.

    `pods` include finished ones; `pending` wait for a node or for their images. `problem` is a message for people
    (`ConfigUnsupported`). `transient`: temporarily unresolved, keep what was published before.
    """

    pods: tuple[Pod, ...] = ()
    pending: tuple[Pod, ...] = ()
    problem: str = ""
    transient: bool = False


class _Unresolved(Exception):
    """Why a target has no pods; the problem is empty if there is nothing to report."""

    def __init__(self, problem: str, transient: bool = False) -> None:
        super().__init__(problem)
        self.problem, self.transient = problem, transient


class Targets:
    """Resolves targets to pods, cached until something in the namespace changes.

    Use it only once all watches are synced: before that, objects seem not to exist.
    """

    def __init__(self, pods: PodIndex, workloads: Workloads, scales: Scales) -> None:
        self._pods, self._workloads, self._scales = pods, workloads, scales
        self._cache: dict[ObjectKey, tuple[tuple[TargetRef, int, int], Resolution]] = {}
        """Resolutions, each with the target and the versions of the namespace that it is valid for."""

    def forget(self, vpa: ObjectKey) -> None:
        """Forget a VPA that is gone, or now belongs to another recommender."""
        self._cache.pop(vpa, None)

    def resolve(self, vpa: ObjectKey, target: TargetRef) -> Resolution:
        """Resolve the target of a VPA; never raises."""
        namespace = vpa.namespace
        state = (target, self._pods.version(namespace), self._workloads.version(namespace))
        cached = self._cache.get(vpa)
        if cached is not None and cached[0] == state:
            return cached[1]
        lookups = self._scales.lookups
        try:
            found = self._find_pods(namespace, target)
            pending = tuple(pod for pod in found if pod.phase == PENDING)
            resolution = Resolution(tuple(pod for pod in found if pod.phase != PENDING), pending)
        except _Unresolved as error:
            resolution = Resolution(problem=error.problem, transient=error.transient)
        if self._scales.lookups == lookups:
            self._cache[vpa] = state, resolution
        else:
            self.forget(vpa)  # it depends on scale subresources, which have their own cache
        return resolution

    def pods_controlled_by(self, namespace: str, ref: Ref) -> list[Pod]:
        """The pods that a controller owns, directly or through known controllers."""
        found: list[Pod] = []
        stack, visited = [ref], {ref}
        while stack:
            controller = stack.pop()
            found += self._pods.owned_by(namespace, controller)
            children = set(self._workloads.controlled_by(namespace, controller)) - visited
            visited |= children
            stack += children
        return sorted(found, key=lambda pod: pod.key)

    def _find_pods(self, namespace: str, target: TargetRef) -> list[Pod]:
        ref = Ref.of(target)
        what = f"{target.api_version}.{ref}".lstrip(".")
        context = "Cannot read targetRef"
        try:
            found = self._pods_of(namespace, target, ref)
            context = f"Cannot tell whether {what} is controlled by something else"
            top = self._top_most(namespace, ref)
        except _Unresolved as error:
            problem = f"{context}. Reason: {error.problem}" if error.problem else ""
            raise _Unresolved(problem, error.transient) from error
        if top != ref:
            raise _Unresolved(f"{what} is controlled by {top}: targetRef must name that, the top-most controller")
        return [pod for pod in found if not self._belongs_elsewhere(pod, ref)]

    # -- pods of a target -----------------------------------------------------------------------------------------

    def _pods_of(self, namespace: str, target: TargetRef, ref: Ref) -> list[Pod]:
        if ref.well_known:
            if (selector := self._well_known(namespace, ref).selector) is not None:
                return self._pods.select(namespace, selector)
            return self.pods_controlled_by(namespace, ref)
        if ref.job_kind is not None:
            return self._by_owner(namespace, ref)
        return self._by_scale(namespace, target, ref)

    def _well_known(self, namespace: str, ref: Ref) -> Workload:
        workload = self._workloads.get(namespace, ref)
        if workload is None:
            raise _Unresolved(f"{ref.kind} {namespace}/{ref.name} does not exist")
        return workload

    def _by_scale(self, namespace: str, target: TargetRef, ref: Ref) -> list[Pod]:
        answer = self._scale(namespace, target.api_version, ref)
        what = f"{target.api_version} {target.kind} {namespace}/{target.name}".lstrip()
        if answer.outcome is ScaleResult.NOT_SCALABLE:
            return self._by_owner(namespace, ref)
        if answer.outcome is not ScaleResult.FOUND:
            raise _Unresolved(f"{what}: {answer.outcome.value}")
        if not answer.selector:
            if owned := self.pods_controlled_by(namespace, ref):
                return owned
            raise _Unresolved(f"{what}: its scale subresource names no selector")
        try:
            return self._pods.select(namespace, LabelSelector.of_text(answer.selector))
        except BadSelector as error:
            raise _Unresolved(f"{what}: the selector of its scale subresource: {error}") from error

    def _scale(self, namespace: str, api_version: str, ref: Ref) -> ScaleAnswer:
        """The answer on a scale subresource, once the server has given one."""
        answer = self._scales.look_up(namespace, api_version, ref.kind, ref.name)
        if answer.outcome in FAILURES:
            raise _Unresolved(answer.error, transient=answer.outcome is ScaleResult.FAILED)
        if answer.outcome is ScaleResult.NOT_ASKED:
            raise _Unresolved("", transient=True)
        return answer

    def _by_owner(self, namespace: str, ref: Ref) -> list[Pod]:
        """The pods that the target owns, and those with its name in a job name label."""
        found = {pod.key: pod for pod in self.pods_controlled_by(namespace, ref)}
        for label in NAME_LABELS:
            with_name = LabelSelector.of_labels({label: ref.name})
            found |= {pod.key: pod for pod in self._pods.select(namespace, with_name)}
        return [found[key] for key in sorted(found)]

    def _belongs_elsewhere(self, pod: Pod, target: Ref) -> bool:
        """Whether it certainly belongs to another controller; if unknown, selector and labels decide."""
        chain = list(self._workloads.chain(pod.key.namespace, pod.owner))
        if not chain or any(ref == target for ref, _ in chain):
            return False
        highest, workload = chain[-1]
        if workload is not None:
            return workload.owner is None
        return highest.job_kind is not None and target.job_kind is not None

    # -- owners of a target ----------------------------------------------------------------------------------------

    def _top_most(self, namespace: str, ref: Ref) -> Ref:
        """The top-most well-known or scalable controller; an owner of another kind ends the chain."""
        known = self._workloads.get(namespace, ref)
        top, visited, owner = ref, {ref}, known.owner if known is not None else None
        while owner is not None:
            above = Ref.of(owner)
            if above.kind == "Node":
                raise _Unresolved(f"{top} is controlled by a node, which is no controller of pods")
            if above in visited:
                raise _Unresolved(f"{above} is controlled by itself, through {top}")
            if len(visited) > MAX_OWNERS:
                raise _Unresolved(f"{ref} has more than {MAX_OWNERS} controllers above it")
            visited.add(above)
            owner, counts = self._owner_of(namespace, above, owner)
            if not counts:
                break
            top = above
        return top

    def _owner_of(self, namespace: str, ref: Ref, owner: OwnerRef) -> tuple[OwnerRef | None, bool]:
        """The owner of a controller, and whether the controller itself counts."""
        if ref.well_known:
            return self._well_known(namespace, ref).owner, True
        if ref.job_kind is not None:
            return None, False
        answer = self._scale(namespace, owner.api_version, ref)
        return answer.owner, answer.outcome is ScaleResult.FOUND
