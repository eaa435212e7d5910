"""The number of random examples of tests that need fewer than others."""

from __future__ import annotations

import hypothesis


def at_most(examples: int) -> hypothesis.settings:
    """At most `examples`, and no more than the profile allows: `scripts/test --fast` draws few."""
    return hypothesis.settings(max_examples=min(examples, hypothesis.settings.default.max_examples))
