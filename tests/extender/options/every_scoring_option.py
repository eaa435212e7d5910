"""A command with the options by which nodes are scored, and nothing else."""

from __future__ import annotations

import click

from extender.cli.options import scoring_options


@click.command()
@scoring_options
def scores() -> None:
    """Has all of them."""
