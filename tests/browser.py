"""A real browser for pages, driven by Playwright."""

from __future__ import annotations

import shutil

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
WHY_NOT = "no chromium on PATH; install one, on Debian with: apt-get install -y chromium"
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run",
)  # fmt: skip
PATIENCE_MS = 180_000
"""Long, since a busy machine is slow."""
