"""The scorers by name: each gives every node a value from 0 to 1, and says why; and their weighted sum, scaled to the
scheduler's integer scores 0 to 10."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.pods.pod import DATA_ANNOTATION, PLACEMENT_ANNOTATION, WEIGHTS_ANNOTATION
from extender.scoring.fragments import explain_fragments, fragments
from extender.scoring.request import ROUNDING_TOLERANCE, Facts, NodeScores, PlacementRequest, Scorer
from extender.view.devices import Floats
from extender.view.snapshot import Integers
from recommender.base.errors import Misuse
from recommender.base.records import CPU, MEMORY
from recommender.base.units import counted
from recommender.progress.growth import WEIGHTS

FIT_MIN_VALUE = 0.8  # lowest `complement` of a node without overload

OVERLOAD_MAX_VALUE = 0.3
"""Highest `complement` of a node with overload. With the default weights all other scorers together cannot close the
gap, so no pod overloads a node if another one would not be overloaded."""

PEAK_TOLERANCE = 0.05  # peaks this close to the lowest count as equal, so that other scorers decide
MEMORY_WEIGHT = 4.0  # missing memory kills, missing CPU only slows down
STEEPNESS = 10.0  # an overload of a tenth of the node halves the value


def complement(request: PlacementRequest) -> NodeScores:
    """Place pods together that peak at different times: less expected overload is better; without, a lower peak is, if
    demand was learned, as kube-scheduler scores requests itself, and if the pod does not ask to be packed."""
    use = request.load + request.demand[:, :, None]  # (2, cells, m): of each node with the pod on it
    peak = np.maximum.reduce(use, axis=1) * request.per_unit  # as a share of each node; 0 if its size is unknown
    height = np.maximum(*peak)
    values, overload = np.ones(len(height)), np.zeros(len(height))
    fits: Integers | slice = slice(None)
    if len(full := (height > 1.0 + ROUNDING_TOLERANCE).nonzero()[0]):
        overload[full] = _overload(use[CPU][:, full] * request.per_unit[CPU, full], peak[MEMORY, full])
        fits = (overload == 0.0).nonzero()[0]
        values = OVERLOAD_MAX_VALUE / (1.0 + STEEPNESS * overload)
        values[fits] = 1.0
        height = height[fits]
    if len(height) and request.learned and request.pod.annotations.get(PLACEMENT_ANNOTATION) != "pack":
        height = np.minimum(np.maximum(height, 0.0), 1.0)
        above = height - height.min()
        values[fits] -= (1.0 - FIT_MIN_VALUE) * np.where(above < PEAK_TOLERANCE, 0.0, above)
    return NodeScores(values, {"cpu": peak[CPU], "memory": peak[MEMORY], "overload": overload})


def _overload(cpu_use: Floats, memory_peak: Floats) -> Floats:
    """Overload of nodes as a share of each: mean over the hour for (cells, k) CPU, maximum for memory."""
    excess = cpu_use - 1.0
    missing = np.where(memory_peak > 1.0 + ROUNDING_TOLERANCE, memory_peak - 1.0, 0.0)
    overload: Floats = np.where(excess > ROUNDING_TOLERANCE, excess, 0.0).mean(axis=0) + MEMORY_WEIGHT * missing
    return overload


def explain_complement(facts: Facts) -> str:
    peaks = f"peaks at {facts['cpu']:.0%} CPU and {facts['memory']:.0%} memory"
    return f"{peaks}, too much" if facts["overload"] > 0.0 else peaks


CATEGORY_WEIGHTS = np.array(WEIGHTS)
SCORE_RANGE = 100.0
"""A node whose S, per size, exceeds the smallest by this (fifty learning jobs) gets 0. Fixed, so that a job counts the
same in any cluster."""


def specon(request: PlacementRequest) -> NodeScores:
    """Prefer nodes with the fewest jobs that still learn (SpeCon, algorithm 4): S(worker) = 2 |PC| + 1.5 |WC| + 1 |CC|.
    Of 3 PC; 1 PC and 1 WC; 2 PC; 5 PC and 1 CC, with S = 6, 3.5, 4, 11, the second is the best. SpeCon's workers are
    equal; where nodes are not, what counts is S with the new job, which learns, per size of the node."""
    counts, sizes = request.at_nodes(request.snapshot.categories), request.at_nodes(request.snapshot.sizes)
    sums = np.dot(CATEGORY_WEIGHTS, counts)
    shares = (sums + CATEGORY_WEIGHTS[0]) / sizes
    values = 1.0 - np.minimum((shares - shares.min()) / SCORE_RANGE, 1.0)
    facts = {"S": sums, "size": sizes, **dict(zip(("pc", "wc", "cc"), counts.copy(), strict=True))}
    return NodeScores(values, facts)


def explain_specon(facts: Facts) -> str:
    text = "S = {S:g}: {pc:g} progressing, {wc:g} watching, {cc:g} converged".format_map(facts)
    return text if facts["size"] == 1.0 else f"{text}, on {facts['size']:.2g} times the median node"


def data(request: PlacementRequest) -> NodeScores | None:
    """The mean share of the pod's data sets that a node stores; None if it needs none or none is known."""
    stored, text = request.snapshot.data, request.pod.annotations.get(DATA_ANNOTATION)
    if not stored or not text:
        return None
    wanted = {name.strip() for name in text.split(",") if name.strip()}
    known = [stored[name] for name in sorted(wanted) if name in stored]
    if not known:
        return None
    present = np.sum(known, axis=0)[request.places]
    return NodeScores(present / len(wanted), {"present": present, "wanted": np.full(len(present), float(len(wanted)))})


def images(request: PlacementRequest) -> NodeScores | None:
    """The share of the bytes of the pod's large images that a node stores already; None if no node stores any."""
    stored = [request.snapshot.images[name] for name in request.pod.images if name in request.snapshot.images]
    if not stored:
        return None
    present = np.zeros(len(request.snapshot.table.names))
    for there in stored:
        places, sizes = zip(*there, strict=True)
        present[list(places)] += sizes
    wanted = sum(max(size for _, size in there) for there in stored)
    found = present[request.places]
    return NodeScores(np.minimum(found / wanted, 1.0), {"present": found, "wanted": np.full(len(found), wanted)})


def explain_images(facts: Facts) -> str:
    return f"{facts['present'] / 1e9:.1f} of {facts['wanted'] / 1e9:.1f} GB of its images"


def pack(request: PlacementRequest) -> NodeScores:
    """FfDL's PACK: the pods of a job on as few nodes as possible; its first pod on the fullest ones, by requests of
    CPU, memory and the pod's extended resources."""
    peers = request.peers_on
    snapshot, places = request.snapshot, request.places
    asked = snapshot.requested[:, places] + np.asarray(request.pod.requests)[:, None]
    shares = [*(asked * snapshot.per_unit[:, places])]
    for name, need in request.pod.extended.items():
        if name in snapshot.devices.extended:
            there = snapshot.devices.extended[name]
            shares.append((there.requested[places] + need) / np.maximum(there.allocatable[places], need))
    full = np.mean(shares, axis=0).clip(0.0, 1.0)
    values = 0.5 + 0.5 * peers / peers.max() if peers.any() else full
    return NodeScores(np.where(peers.any() & (peers == 0), 0.5 * full, values), {"peers": peers, "full": full})


def explain_pack(facts: Facts) -> str:
    return f"{explain_spread(facts)}, {facts['full']:.0%} requested"


def spread(request: PlacementRequest) -> NodeScores | None:
    """FfDL's SPREAD: the fewer pods of the job on a node, the better; None if there are none anywhere."""
    peers = request.peers_on
    return NodeScores(1.0 - peers / peers.max(), {"peers": peers}) if peers.any() else None


def explain_spread(facts: Facts) -> str:
    return f"{counted(int(facts['peers']), 'pod')} of its job"


SCORERS: Mapping[str, Scorer] = {
    "complement": Scorer(complement, explain_complement),
    "specon": Scorer(specon, explain_specon),
    "data": Scorer(data, "{present:g} of {wanted:g} data sets".format_map),
    "images": Scorer(images, explain_images),
    "fragments": Scorer(fragments, explain_fragments),
    "pack": Scorer(pack, explain_pack),
    "spread": Scorer(spread, explain_spread),
}


PLACEMENT_WEIGHT = 5.0
"""Weight of `pack` or `spread` for a pod that asks for it by `phasewise.dev/placement`: more than any difference of
peaks below overload."""

MAX_WEIGHT = 1e6  # larger weights would drown all other scorers in rounding


def parse_weights(text: str) -> dict[str, float]:
    """Parse `complement=3,specon=1`; Misuse if a scorer is unknown, or a weight is not a number from 0 to a million."""
    weights = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = (piece.strip() for piece in part.partition("="))
        try:
            weight = float(number)
        except ValueError:
            weight = math.nan
        if name not in SCORERS or not 0.0 <= weight <= MAX_WEIGHT:
            raise Misuse(f"weight {part[:60]!r}: write scorer=number, of {', '.join(SCORERS)}, and 0 to a million.")
        weights[name] = weight
    return weights


def weights_for(annotations: Mapping[str, str], configured: Mapping[str, float]) -> Mapping[str, float]:
    """The configured weights, overridden by a pod's annotations; a malformed annotation is ignored."""
    placement, own = annotations.get(PLACEMENT_ANNOTATION), annotations.get(WEIGHTS_ANNOTATION)
    if placement is None and own is None:
        return configured
    weights = dict(configured)
    if placement in ("pack", "spread"):
        weights |= {"pack": 0.0, "spread": 0.0, placement: PLACEMENT_WEIGHT}
    try:
        weights |= parse_weights(own or "")
    except Misuse:
        return weights
    return weights


MAX_SCORE = 10  # `MaxExtenderPriority`
NEUTRAL = 5  # score for pods that are not ours and for unknown nodes: a node without a score would lose every tie

TOTAL_DECIMALS, USE_DECIMALS = 6, 4
"""Rounding of totals and use before comparison: smaller differences are noise of single precision."""


class ScaledScores(NamedTuple):
    """`scores` (m,) from 0 to 10, and the index of the best node."""

    scores: NDArray[np.int64]
    favourite: int


def weighted_mean(by_scorer: Mapping[str, NodeScores], weights: Mapping[str, float], nodes: int) -> NDArray[np.float64]:
    """(nodes,): the weighted mean of the scorers' values; 0 if no scorer applies."""
    if not by_scorer:
        return np.zeros(nodes)
    total = sum(weights[name] * scores.values for name, scores in by_scorer.items())
    return np.asarray(total / sum(weights[name] for name in by_scorer)).round(TOTAL_DECIMALS)


def scaled_scores(totals: NDArray[np.float64], use: Floats, rank: Integers) -> ScaledScores:
    """Scale the totals over the nodes of the request.

    The best node gets 10; ties are broken by use, then by `rank`. All others get at most 9, since the scheduler picks
    at random among equal scores: so its choice is known. All are (m,), m >= 1; ranks are distinct, and independent of
    the order of nodes in the request. S of 6, 3.5, 4 and 11 (lowest is best) becomes 7, 10, 9, 0.
    """
    low, high = totals.min(), totals.max()
    best = (totals == high).nonzero()[0]
    least = best[(there := use[best].round(USE_DECIMALS)) == there.min()]
    favourite = int(least[rank[least].argmin()])
    share = (totals - low) / (high - low) if high > low else np.ones(len(totals))
    scores = np.minimum(np.rint(MAX_SCORE * share).astype(np.int64), MAX_SCORE - 1)
    scores[favourite] = MAX_SCORE
    return ScaledScores(scores, favourite)
