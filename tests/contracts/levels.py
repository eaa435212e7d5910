"""Import levels of modules, checked by a test and copied into the documentation."""

from collections.abc import Mapping, Sequence

Levels = Sequence[tuple[str, Sequence[str]]]

LEVELS: Mapping[str, Levels] = {
    "recommender": [
        ("base", ("base",)),
        ("kernels", ("kernels",)),
        ("domain", ("progress", "phases", "policies", "contention")),
        ("adapters", ("sources", "cluster")),
        ("learning", ("learning",)),
        ("engine", ("engine",)),
        ("simulation", ("simulate",)),
        ("replaying", ("replaying",)),
        ("live", ("live",)),
        ("report", ("report",)),
        ("plots", ("plots",)),
        ("entry points", ("cli", "__main__")),
    ],
    "recommender.base": [
        ("plain", ("errors", "heap", "compiling")),
        ("units", ("units", "nodes")),
        ("records", ("records", "files", "listening", "cycle")),
        ("arrays", ("slots",)),
    ],
    "recommender.learning": [
        ("files", ("artifacts",)),
        ("models", ("model", "forecasting")),
        ("training", ("training",)),
    ],
    "recommender.cluster": [
        ("base", ("errors", "paths")),
        ("access", ("access",)),
        ("objects", ("objects",)),
        ("watching", ("watching", "lease", "model_map", "profiles")),
        ("workloads", ("workloads",)),
        ("features", ("vpas", "progress", "usage", "node_types")),
    ],
    "recommender.live": [
        ("base", ("health", "rules", "steady_clock")),
        ("interface", ("view",)),
        ("adapters", ("outside",)),
        ("state", ("vpa_state",)),
        ("containers", ("containers",)),
        ("parts", ("class_profiles", "past", "progress", "auto")),
        ("writing", ("writing", "telemetry")),
        ("round", ("round",)),
        ("entry points", ("service",)),
    ],
    "extender": [
        ("base", ("errors", "watches")),
        ("pods", ("pods",)),
        ("settings", ("settings",)),
        ("view", ("view",)),
        ("scoring", ("scoring",)),
        ("protocol", ("protocol",)),
        ("assembly", ("placing",)),
        ("services", ("gangs", "webhook", "web")),
        ("moves", ("moves",)),
        ("pages", ("dashboard",)),
        ("entry points", ("cli", "__main__")),
    ],
    "phasewise": [
        ("input", ("frames",)),
        ("phases", ("estimator",)),
        ("replay", ("replay",)),
    ],
}
"""Lowest level first. A folder is one unit with free imports inside, unless it has a table of its own."""
