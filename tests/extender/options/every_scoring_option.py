"""A command with exactly the scoring options."""

from __future__ import annotations

import click

from extender.cli.options import scoring_options


@click.command()
@scoring_options
def scoring_command() -> None:
    """Takes every scoring option."""
