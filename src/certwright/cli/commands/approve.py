"""`certwright approve`."""

from __future__ import annotations

import click

from certwright.cli.approval import Decision, decide, decision_options
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options


@click.command(short_help="Allow certificate requests to be signed.")
@click.argument("names", nargs=-1, required=True, metavar="REQUEST…")
@decision_options("approved")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, names: tuple[str, ...], reason: str, message: str) -> None:
    """Allow certificate requests to be signed.

    Needed if requests are not approved automatically (`--controllers=*,-certificaterequests-approver`). You
    need the right to `approve` for the issuer. A decision is final.

    \b
    Examples:
      certwright approve web-1
      certwright approve web-1 shop-3 -n shop --reason Reviewed --message "seen by Jane"
    """
    await decide(server, names, Decision("Approved", reason, message))
