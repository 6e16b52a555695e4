"""`certwright inspect`."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from certwright.cli import lazy, related
from certwright.cli.access import Session, session
from certwright.cli.errors import Failed
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.output import echo_lines
from certwright.cli.resource_args import fetch, one_object
from certwright.kube.api.core import SECRETS, Secret
from certwright.pki.errors import PkiError

_KINDS = (related.SECRETS, related.CERTIFICATES)


@click.command(short_help="Show what is inside a certificate's Secret.")
@click.argument("words", nargs=-1, required=True, metavar="[KIND] NAME")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, words: tuple[str, ...]) -> None:
    """Show the certificates in a Secret, and whether the private key matches them.

    KIND is secret (the default) or certificate, whose Secret is then shown; KIND/NAME works too. The private
    key itself is never shown.

    \b
    Examples:
      certwright inspect web-tls -n shop
      certwright inspect certificate/web
    """
    kind, name = one_object(words, _KINDS, default=related.SECRETS)
    async with session(server) as here:
        if kind is related.CERTIFICATES:
            name = await _secret_name(here, name)
        secret = await fetch(here, SECRETS, name)
    echo_lines(_report(secret, f"{here.namespace}/{name}"))


async def _secret_name(here: Session, certificate: str) -> str:
    content = await fetch(here, related.CERTIFICATES, certificate)
    return str((content.get("spec") or {}).get("secretName", ""))


def _report(secret: Secret, words: str) -> list[str]:
    try:
        lines = lazy.secret_report.report(secret.data, datetime.now(UTC))
    except PkiError as error:
        raise Failed(f"secret {words}: {error}") from error
    return [f"Secret {words} ({secret.type})", *lines]
