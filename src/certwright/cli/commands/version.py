"""`certwright version`."""

from __future__ import annotations

import platform

import click

from certwright import __version__


@click.command(short_help="Print the version.")
def command() -> None:
    """Print the version of certwright, and of the Python it runs on.

    \b
    Example:
      certwright version
    """
    click.echo(f"certwright {__version__} (Python {platform.python_version()}, {platform.system()})")
