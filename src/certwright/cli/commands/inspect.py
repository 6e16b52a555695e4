"""`certwright inspect secret`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from certwright.cli import lazy
from certwright.cli.access import session
from certwright.cli.errors import Failed
from certwright.cli.options import Folder, ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.resource_args import fetch
from certwright.kube.api.core_kinds import SECRETS
from certwright.pki.errors import PkiError


@click.group(cls=Folder, short_help="Show what is inside a certificate's Secret.")
def command() -> None:
    """Show the content of objects with certificates.

    \b
    Example:
      certwright inspect secret web-tls -n shop
    """


@command.command("secret", short_help="The certificates in a Secret, and whether its key fits.")
@click.argument("name")
@namespaced_server_options
@asynchronous
async def secret(*, server: ServerOptions, name: str) -> None:
    """Show the certificates in a Secret, and whether the private key matches them.

    The private key itself is never shown.

    \b
    Example:
      certwright inspect secret web-tls
    """
    async with session(server) as here:
        found = await fetch(here, SECRETS, name)
    try:
        lines = lazy.secret_report.report(found.data, datetime.now(UTC))
    except PkiError as error:
        raise Failed(f"secret {here.namespace}/{name}: {error}") from error
    click.echo(f"Secret {here.namespace}/{name} ({found.type})")
    for line in lines:
        click.echo(line)
