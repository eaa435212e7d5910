"""Names in tables of a terminal: without control characters, and not too long."""

from __future__ import annotations


def printable(text: str) -> str:
    """Escape control characters and line breaks."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shortened(text: str, width: int) -> str:
    """A long name without its middle: names differ at both ends."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"
