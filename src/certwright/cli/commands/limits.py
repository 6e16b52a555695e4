"""`certwright limits`."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click
import msgspec

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
from certwright.diagnosis.words import parse_time, span, when
from certwright.kit.rate_limit import Bucket, Rate, micros, moment_of
from certwright.kube.client.rest import Client
from certwright.resources import names
from certwright.resources.reasons import FINAL_STATES

Json = dict[str, Any]

_ORDER_LIMITS = ("newOrders", "refused")
# There are as many sets and names as certificates: without --all only exhausted ones are listed.
_MANY = ("certificatesPerSet", "failedValidations")
_HEADER = ("SERVER", "LIMIT", "FOR", "USED", "PER", "WAITING", "NEXT", "USED BY")


class Row(msgspec.Struct, frozen=True):
    """One limit of one account, domain, set or name. `used_by` counts the Orders here, by namespace."""

    server: str
    limit: str
    whose: str
    rate: Rate
    used: int
    waiting: int
    free_at: datetime
    used_by: dict[str, int]

    @property
    def is_learned(self) -> bool:
        """Whether it was learned from a refusal: how many it allows is not known."""
        return self.limit == "refused"

    @property
    def is_used_up(self) -> bool:
        """Whether the limit is exhausted."""
        return self.is_learned or self.used >= self.rate.count


class Account(msgspec.Struct, frozen=True):
    """An ACME issuer's server, and its account there."""

    server: str
    uri: str


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
        accounts = await _accounts(here.client)
        chosen = _choose(accounts, issuer, here) if issuer is not None else None
        # Only there: any tenant may label a ConfigMap.
        kept = await here.client.list(
            related.CONFIG_MAPS, ledgers_in, labels=f"{names.ACME_LIMITS_LABEL}=true"
        )
        orders = (await here.client.list(related.ORDERS)).items
    now = datetime.now(UTC)
    rows = [row for ledger in kept.items for row in read(ledger, orders, accounts, now)]
    shown = [row for row in rows if chosen is None or _concerns(row, chosen)]
    if not everything:
        shown = [row for row in shown if row.limit not in _MANY or row.is_used_up]
    shown.sort(key=lambda row: (row.server, -row.used / row.rate.count, row.limit, row.whose))
    if output is not None:
        print_content([_as_json(row, now) for row in shown], output)
    elif not shown:
        echo("nothing that an ACME server limits has been used")
    else:
        print_table(_HEADER, [_cells(row, now) for row in shown], headers=not no_headers)


async def _accounts(client: Client) -> dict[tuple[str, str, str], Account]:
    """The ACME issuers, by kind, namespace and name."""
    kinds = (related.ISSUERS, related.CLUSTER_ISSUERS)
    lists = await asyncio.gather(*(client.list(kind) for kind in kinds))
    by_place = {}
    for kind, accounts in zip(kinds, lists, strict=True):
        for obj in accounts.items:
            meta, acme = obj["metadata"], (obj.get("spec") or {}).get("acme")
            if acme:
                uri = str(((obj.get("status") or {}).get("acme") or {}).get("uri", ""))
                place = (kind.kind, str(meta.get("namespace", "")), str(meta["name"]))
                by_place[place] = Account(str(acme.get("server", "")), uri)
    return by_place


def _choose(accounts: dict[tuple[str, str, str], Account], name: str, here: Session) -> Account:
    for place in (("Issuer", here.namespace, name), ("ClusterIssuer", "", name)):
        if place in accounts:
            return accounts[place]
    raise Failed(
        f'there is no ACME Issuer "{name}" in namespace {here.namespace}, and no such ClusterIssuer; '
        "`certwright get issuers,clusterissuers -A` lists them"
    )


def _concerns(row: Row, chosen: Account) -> bool:
    if row.server != chosen.server:
        return False
    is_of_account = "://" in row.whose
    by_account = row.limit in (*_ORDER_LIMITS, "failedValidations") and is_of_account
    return not by_account or row.whose.partition(" ")[0] == chosen.uri


def read(
    kept: Json, orders: Iterable[Json], accounts: dict[tuple[str, str, str], Account], now: datetime
) -> Iterator[Row]:
    """The rows of one ConfigMap. Raises `Failed` if it is unreadable."""
    data = kept.get("data") or {}
    try:
        rules = msgspec.json.decode(data["limits.json"])["limits"]
        ledger = msgspec.json.decode(data["state.json"])["ledger"]
        buckets = {key: Bucket.of_numbers(numbers) for key, numbers in ledger["buckets"].items()}
    except (KeyError, TypeError, ValueError) as error:
        meta = kept["metadata"]
        where = f"{meta['namespace']}/{meta['name']}"
        raise Failed(
            f"ConfigMap {where} cannot be read ({error}); delete it, and the controllers create it again"
        ) from error
    server, orders = str(data.get("server", "")), list(orders)
    uses = list(_uses(orders, accounts, server))
    named = _Named(orders, accounts, server)
    for key, bucket in buckets.items():
        limit, _, whose = key.partition("/")
        if (rule := rules.get(limit)) is not None:
            count, window = rule.get("overrides", {}).get(whose, rule["count"]), rule["windowSeconds"]
            rate = Rate(int(count), timedelta(seconds=window), refills=bool(rule["refills"]))
        else:
            rate = Rate(1, timedelta(seconds=max(1, int(ledger.get("paces", {}).get(key, 1)))))
        waiting = max(int(ledger.get("waiting", {}).get(key, 0)), named.waiting(limit, whose))
        free = moment_of(bucket.free_at(rate, micros(now), waiting))
        used = bucket.used(rate, micros(now))
        if used or waiting or bucket.closed_until > micros(now):
            used_by = _used_by(uses, limit, whose, now - rate.window)
            yield Row(server, limit, named.name_of(whose), rate, used, waiting, free, used_by)


_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class _Named:
    """The Orders at a server, for naming them and for counting those that wait."""

    def __init__(
        self, orders: Iterable[Json], accounts: dict[tuple[str, str, str], Account], server: str
    ) -> None:
        self._names: dict[str, str] = {}
        self._open: Counter[str] = Counter()
        for order in orders:
            meta, status = order["metadata"], order.get("status") or {}
            self._names[str(meta.get("uid", ""))] = f"Order {meta['namespace']}/{meta.get('name', '')}"
            account = _account_of(order, accounts)
            is_open = not status.get("url") and status.get("state") not in FINAL_STATES
            if account is not None and account.server == server and is_open:
                self._open[account.uri] += 1

    def name_of(self, whose: str) -> str:
        """The Order of that UID by its name; anything else as it is."""
        return self._names.get(whose, "a deleted Order" if _UID.fullmatch(whose) else whose)

    def waiting(self, limit: str, whose: str) -> int:
        """How many Orders of that account are not placed yet, for a limit that concerns all of them; one for
        a limit of a single Order."""
        if limit not in _ORDER_LIMITS:
            return 0
        return 1 if whose in self._names else self._open[whose]


def _account_of(order: Json, accounts: dict[tuple[str, str, str], Account]) -> Account | None:
    reference, namespace = order["spec"]["issuerRef"], str(order["metadata"]["namespace"])
    kind = str(reference.get("kind") or "Issuer")
    return accounts.get((kind, namespace if kind == "Issuer" else "", str(reference["name"])))


class _Use(msgspec.Struct, frozen=True):
    namespace: str
    account: str
    identifiers: tuple[str, ...]
    made_at: datetime


def _uses(
    orders: Iterable[Json], accounts: dict[tuple[str, str, str], Account], server: str
) -> Iterator[_Use]:
    """The Orders that were placed at that server."""
    for order in orders:
        meta, spec, status = order["metadata"], order["spec"], order.get("status") or {}
        namespace, account = str(meta["namespace"]), _account_of(order, accounts)
        made_at = parse_time(meta.get("creationTimestamp"))
        if account is None or account.server != server or not status.get("url") or made_at is None:
            continue
        identifiers = (*(spec.get("dnsNames") or ()), *(spec.get("ipAddresses") or ()))
        yield _Use(
            namespace, account.uri, tuple(str(identifier).lower() for identifier in identifiers), made_at
        )


def _used_by(uses: Iterable[_Use], limit: str, whose: str, since: datetime) -> dict[str, int]:
    totals: Counter[str] = Counter()
    for use in uses:
        if use.made_at < since:
            continue
        if limit in _ORDER_LIMITS:
            counts = use.account == whose
        else:
            name = whose.rpartition(" ")[2] if limit == "failedValidations" else whose.partition(" ")[0]
            counts = any(
                identifier == name or identifier.endswith(f".{name}") for identifier in use.identifiers
            )
        totals[use.namespace] += counts
    return {namespace: many for namespace, many in totals.most_common() if many}


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


def _as_json(row: Row, now: datetime) -> Json:
    return {
        "server": row.server,
        "limit": row.limit,
        "for": row.whose,
        "used": None if row.is_learned else row.used,
        "allowed": None if row.is_learned else row.rate.count,
        "windowSeconds": None if row.is_learned else row.rate.window.total_seconds(),
        "waiting": row.waiting,
        "next": f"{max(row.free_at, now).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "usedBy": row.used_by,
    }
