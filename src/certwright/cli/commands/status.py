"""`certwright status`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import click

from certwright.cli import certificate_status, issuer_status, related, set_status
from certwright.cli.access import Session, session
from certwright.cli.options import ServerOptions, asynchronous, namespaced_server_options
from certwright.cli.output import StatusView, echo_lines, print_content
from certwright.cli.resource_args import fetch, one_object
from certwright.cli.server_health import store_problem
from certwright.kube.api.kinds import Kind

Json = dict[str, Any]
_VIEWS: dict[Kind[Json], Callable[[Session, Json, datetime], Awaitable[StatusView]]] = {
    related.CERTIFICATES: certificate_status.view,
    related.ISSUERS: issuer_status.view,
    related.CLUSTER_ISSUERS: issuer_status.view,
    related.ISSUER_SETS: set_status.view,
    related.CLUSTER_ISSUER_SETS: set_status.view,
}


@click.command(short_help="Show why a certificate or an issuer is (or is not) ready, and what happens next.")
@click.argument("words", nargs=-1, required=True, metavar="[KIND] NAME")
@click.option("-o", "--output", type=click.Choice(["json", "yaml"]), help="JSON or YAML instead of text.")
@namespaced_server_options
@asynchronous
async def command(*, server: ServerOptions, words: tuple[str, ...], output: str | None) -> None:
    """Explain the state of an object, and what happens next.

    KIND is certificate (the default), issuer, clusterissuer, issuerset or clusterissuerset; KIND/NAME works
    too. The first sentence says why the object is not ready and how to fix it, or when it renews. Below are
    the objects behind it: a certificate's request (with its order and challenges at an ACME server), issuer,
    Secret and events; an issuer's circuit breaker and the certificates that wait; a set's members. The keys
    of -o json are stable: see docs/commands.md.

    \b
    Examples:
      certwright status web
      certwright status cert/web -n shop -o json
      certwright status clusterissuer letsencrypt
      certwright status issuerset public -n shop
    """
    kind, name = one_object(words, tuple(_VIEWS), default=related.CERTIFICATES)
    async with session(server) as here:
        live = await fetch(here, kind, name)
        # As in a list: a server may leave it out.
        live.setdefault("kind", kind.kind)
        shown = await _VIEWS[kind](here, live, datetime.now(UTC))
        is_settled = shown.content["ready"] and not shown.content.get("issuing")
        problem = "" if is_settled else await store_problem(here.client)
    if output is not None:
        print_content({**shown.content, "serverProblem": problem}, output)
        return
    warning = [f"The server cannot write: {problem}; nothing changes until it can."] if problem else []
    echo_lines((*shown.lines[:1], *warning, *shown.lines[1:]))
