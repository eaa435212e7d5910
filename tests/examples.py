"""How many random examples a test draws that needs fewer than others."""

from __future__ import annotations

import hypothesis


def at_most(examples: int) -> hypothesis.settings:
    """So many, and no more than the profile says: `scripts/test --fast` draws few of everything."""
    return hypothesis.settings(max_examples=min(examples, hypothesis.settings.default.max_examples))
