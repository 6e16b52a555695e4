"""`certwright limits`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from certwright.cli import completion
from certwright.cli.access import Session, session
from certwright.cli.errors import Failed
from certwright.cli.format import echo, print_content, print_table
from certwright.cli.options import (
    ServerOptions,
    asynchronous,
    cluster_namespace_option,
    json_option,
    namespaced_server_options,
    no_headers_option,
)
from certwright.diagnosis import related
from certwright.diagnosis.limits import Account, Row, UnreadableLedger, accounts_of, as_json, concerns, read
from certwright.diagnosis.words import span, when
from certwright.resources import names

Json = dict[str, Any]


_HEADER = ("SERVER", "LIMIT", "FOR", "USED", "PER", "WAITING", "NEXT", "USED BY")


@click.command(short_help="Show the rate limits of ACME servers, and their use.")
@click.option(
    "--issuer",
    metavar="NAME",
    help="Only the limits of this Issuer or ClusterIssuer.",
    shell_complete=completion.names_of("issuers", "clusterissuers"),
)
@click.option("--all", "everything", is_flag=True, help="Also sets of names and names with room left.")
@cluster_namespace_option(
    "ledgers_in", text="Namespace of the controllers' ledger, as in their flag of the same name."
)
@json_option("As JSON or YAML; without it a table.")
@no_headers_option
@namespaced_server_options
@asynchronous
async def command(
    *,
    server: ServerOptions,
    issuer: str | None,
    everything: bool,
    ledgers_in: str,
    output: str | None,
    no_headers: bool,
) -> None:
    """Show the rate limits of ACME servers, their usage, and when the next order can be placed.

    USED BY counts this server's Orders by namespace; other clusters may use the same limits. NEXT is when a
    new order can be placed, after those that wait. Set the limits of a server with --acme-limits of the
    controllers. A limit "refused" was learned from a refusal: it has no count. FOR is what the refusal is
    about: an account, a set of names, a domain, or one Order.

    \b
    Examples:
      certwright limits
      certwright limits --issuer letsencrypt
      certwright limits --all -o json
    """
    async with session(server) as here:
        lists = [await here.client.list(kind) for kind in (related.ISSUERS, related.CLUSTER_ISSUERS)]
        accounts = accounts_of(issuer for listed in lists for issuer in listed.items)
        chosen = _choose(accounts, issuer, here) if issuer is not None else None
        # Only there: any tenant may label a ConfigMap.
        kept = await here.client.list(
            related.CONFIG_MAPS, ledgers_in, labels=f"{names.ACME_LIMITS_LABEL}=true"
        )
        orders = (await here.client.list(related.ORDERS)).items
    now = datetime.now(UTC)
    try:
        rows = [row for ledger in kept.items for row in read(ledger, orders, accounts, now)]
    except UnreadableLedger as error:
        raise Failed(str(error)) from error
    shown = [row for row in rows if chosen is None or concerns(row, chosen)]
    if not everything:
        shown = [row for row in shown if row.is_notable]
    shown.sort(key=lambda row: (row.server, -row.used / row.rate.count, row.limit, row.whose))
    if output is not None:
        print_content([as_json(row, now) for row in shown], output)
    elif not shown:
        echo("nothing that an ACME server limits has been used")
    else:
        print_table(_HEADER, [_cells(row, now) for row in shown], headers=not no_headers)


def _choose(accounts: dict[tuple[str, str, str], Account], name: str, here: Session) -> Account:
    for place in (("Issuer", here.namespace, name), ("ClusterIssuer", "", name)):
        if place in accounts:
            return accounts[place]
    raise Failed(
        f'there is no ACME Issuer "{name}" in namespace {here.namespace}, and no such ClusterIssuer; '
        "`certwright get issuers,clusterissuers -A` lists them"
    )


def _cells(row: Row, now: datetime) -> list[str]:
    busiest = list(row.used_by.items())
    used_by = ", ".join(f"{namespace} {many}" for namespace, many in busiest[:3])
    if len(busiest) > 3:
        used_by += f", {len(busiest) - 3} more"
    soon = row.free_at - now < timedelta(seconds=1)
    return [
        row.server.split("://")[-1].partition("/")[0],
        row.limit,
        row.whose or "-",
        "-" if row.is_learned else f"{row.used}/{row.rate.count}",
        "-" if row.is_learned else span(row.rate.window),
        str(row.waiting or "-"),
        "now" if soon else when(row.free_at, now),
        used_by or "-",
    ]
