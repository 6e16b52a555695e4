"""The rate limits of ACME servers, their use, and when the next order can be placed: from the ledgers that
the controllers keep in ConfigMaps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from certwright.diagnosis.words import parse_time
from certwright.kit.rate_limit import Bucket, Rate, micros, moment_of
from certwright.resources.reasons import FINAL_STATES

_ORDER_LIMITS = ("newOrders", "refused")
# There are as many sets and names as certificates.
_MANY = ("certificatesPerSet", "failedValidations")


Json = dict[str, Any]


class UnreadableLedger(ValueError):
    """The ConfigMap of limits, named in the text with a fix, cannot be parsed."""


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
        """Whether the limit was learned from a refusal, so that its count is unknown."""
        return self.limit == "refused"

    @property
    def is_used_up(self) -> bool:
        """Whether the limit is exhausted."""
        return self.is_learned or self.used >= self.rate.count

    @property
    def is_notable(self) -> bool:
        """Whether the row is shown by default: rows of sets and names only if they are exhausted."""
        return self.limit not in _MANY or self.is_used_up


class Account(msgspec.Struct, frozen=True):
    """An ACME issuer's server, and its account there."""

    server: str
    uri: str


def accounts_of(issuers: Iterable[Json]) -> dict[tuple[str, str, str], Account]:
    """The ACME issuers among these, by kind, namespace and name."""
    found = ((issuer, (issuer.get("spec") or {}).get("acme")) for issuer in issuers)
    return {_place_of(issuer): account_of(issuer) for issuer, acme in found if acme}


def account_of(issuer: Json) -> Account:
    """The server of an ACME issuer, and its account there."""
    acme, status = (
        (issuer.get("spec") or {}).get("acme") or {},
        (issuer.get("status") or {}).get("acme") or {},
    )
    return Account(str(acme.get("server", "")), str(status.get("uri", "")))


def _place_of(issuer: Json) -> tuple[str, str, str]:
    meta = issuer["metadata"]
    return str(issuer["kind"]), str(meta.get("namespace", "")), str(meta["name"])


def concerns(row: Row, chosen: Account) -> bool:
    if row.server != chosen.server:
        return False
    is_of_account = "://" in row.whose
    by_account = row.limit in (*_ORDER_LIMITS, "failedValidations") and is_of_account
    return not by_account or row.whose.partition(" ")[0] == chosen.uri


def read(
    kept: Json, orders: Iterable[Json], accounts: dict[tuple[str, str, str], Account], now: datetime
) -> Iterator[Row]:
    """The rows of one ConfigMap. Raises `UnreadableLedger`."""
    data = kept.get("data") or {}
    try:
        rules = msgspec.json.decode(data["limits.json"])["limits"]
        ledger = msgspec.json.decode(data["state.json"])["ledger"]
        buckets = {key: Bucket.of_numbers(numbers) for key, numbers in ledger["buckets"].items()}
    except (KeyError, TypeError, ValueError) as error:
        meta = kept["metadata"]
        where = f"{meta['namespace']}/{meta['name']}"
        raise UnreadableLedger(
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
    """The Orders at a server, to name and count them."""

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
        """The name of the Order with that UID; any other text unchanged."""
        return self._names.get(whose, "a deleted Order" if _UID.fullmatch(whose) else whose)

    def waiting(self, limit: str, whose: str) -> int:
        """The number of the account's Orders that are not placed yet, for a limit of all Orders; 1 for a
        limit of a single Order."""
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
    """The Orders placed at that server."""
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


def as_json(row: Row, now: datetime) -> Json:
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
