"""Which module may import which: a table that a test holds and the docs copy."""

LEVELS = {
    "recommender": [
        ("floor", ("units", "records", "errors", "files", "processes")),
        ("numbers", ("kernels",)),
        ("domain", ("readings", "growth", "stages", "series", "slots", "phases", "policies", "contention")),
        ("edges", ("sources", "artifacts", "cluster", "compiling")),
        ("assembly", ("model", "pricing", "training", "replay", "judging", "decisions", "timelines", "planning")),
        ("engine", ("engine",)),
        ("simulation", ("simulate",)),
        ("live", ("live",)),
        ("words", ("report",)),
        ("pictures", ("plots",)),
        ("door", ("cli", "__main__")),
    ],
    "recommender.cluster": [
        ("floor", ("errors", "paths")),
        ("access", ("access",)),
        ("objects", ("objects",)),
        ("watching", ("watching", "lease", "model_map", "profiles")),
        ("workloads", ("workloads",)),
        ("duties", ("vpas", "progress", "usage")),
    ],
    "recommender.live": [
        ("floor", ("memory", "health", "rules")),
        ("seam", ("view",)),
        ("edges", ("outside",)),
        ("state", ("vpa_state",)),
        ("whose", ("containers",)),
        ("parts", ("sharing", "restored_state", "past", "progress", "auto")),
        ("writing", ("writing", "telemetry")),
        ("round", ("round",)),
        ("door", ("service",)),
    ],
    "extender": [
        ("floor", ("errors", "reasons", "watches")),
        ("records", ("pods",)),
        ("wishes", ("settings",)),
        ("view", ("view",)),
        ("scoring", ("scoring",)),
        ("edges", ("protocol",)),
        ("assembly", ("placing",)),
        ("live", ("gangs", "webhook", "web")),
        ("moves", ("moves",)),
        ("pages", ("dashboard",)),
        ("door", ("cli", "__main__")),
    ],
}
"""Lowest first. A folder is one unit: inside it imports are free, unless it has a table of its own. Copied into
docs/contributing/architecture.md."""
