"""`certwright deny`."""

from __future__ import annotations

import click

from certwright.cli.approval import Decision, decide, decision_options
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options


@click.command(short_help="Forbid certificate requests to be signed.")
@click.argument("names", nargs=-1, required=True, metavar="REQUEST…")
@decision_options("denied")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, names: tuple[str, ...], reason: str, message: str) -> None:
    """Forbid certificate requests to be signed.

    The issuance fails, with your message in the Certificate's condition, and is retried with a new request
    after an hour, then after two, and so on. You need the right to `approve` for the issuer. A
    decision is final.

    \b
    Examples:
      certwright deny web-1
      certwright deny web-1 -n shop --reason NotInThisHouse --message "ask for *.shop.example.com"
    """
    await decide(server, names, Decision("Denied", reason, message))
