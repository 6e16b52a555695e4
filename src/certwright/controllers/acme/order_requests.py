"""Requests to the ACME server about one Order.

Loaded with the first Order only, because it loads the ACME client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime

from certwright.acme.protocol import challenges, orders
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import Identifier, Reaction, Refused
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.orders import Authorization
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.controllers.acme.identifiers import Name, canonical, is_ordered, names_of_spec
from certwright.controllers.acme.order_progress import OPEN_STATES
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.encoding import one_line
from certwright.pki.csr import CsrFacts
from certwright.resources.acme import ACMEAuthorization, ACMEChallenge, Order, OrderSpec


def identifiers_of(spec: OrderSpec) -> tuple[Identifier, ...]:
    """The identifiers to order: names and addresses, each once, the common name among them."""
    addresses = list(spec.ip_addresses)
    names = list(spec.dns_names)
    if spec.common_name and spec.common_name not in (*names, *addresses):
        names.append(spec.common_name)
    return tuple(
        Identifier(kind, value)
        for kind, values in (("dns", names), ("ip", addresses))
        for value in dict.fromkeys(values)
    )


async def place(client: AcmeClient, spec: OrderSpec, replaces: str, now: datetime) -> ServerOrder:
    """Create the order at the server; `replaces` empty: the order names no certificate to replace.

    Raises `AcmeError`, `NotOrdered`.
    """
    if wrong := await client.missing_profile(spec.profile):
        raise NotOrdered(f"Failed to create Order: acme: {wrong}")
    not_after = now + parse_duration(spec.duration) if spec.duration else None
    identifiers = identifiers_of(spec)
    return await client.run(
        orders.new_order, identifiers, profile=spec.profile, replaces=replaces, not_after=not_after
    )


Contents = dict[str, frozenset[Name]]
"""What the orders at some URLs are for. That never changes, so that each is requested once."""


async def find_lost(
    client: AcmeClient, spec: OrderSpec, orders_at: Callable[[str], Sequence[Order]], contents: Contents
) -> ServerOrder | None:
    """The account's order for exactly these names that no Order refers to, because its response was lost.

    None if the server does not list an account's orders. The contents of orders are cached in `contents`,
    because after a restart many Orders may need them. Raises `AcmeError`.
    """
    names = names_of_spec(spec)
    for url in await client.run(orders.list_orders):
        if orders_at(url) or contents.get(url, names) != names:
            continue
        order = await client.run(orders.fetch_order, url)
        contents[url] = frozenset(
            canonical(identifier.type, identifier.value) for identifier in order.identifiers
        )
        if order.status in OPEN_STATES and contents[url] == names:
            return order
    return None


class NotOrdered(Exception):
    """The server requires a challenge for a name that was not ordered, or offers no such certificate; the
    text is one sentence."""


async def fetch_authorizations(
    client: AcmeClient, spec: OrderSpec, urls: Sequence[str]
) -> tuple[ACMEAuthorization, ...]:
    """The authorizations, for the status. Raises `AcmeError`, and `NotOrdered` where one is for a name that
    is not in the spec, because a proof is presented for ordered names only."""
    fetched = await asyncio.gather(*(client.run(orders.fetch_authorization, url) for url in urls))
    written = tuple(_written(answer) for answer in fetched)
    ordered = names_of_spec(spec)
    for authorization in written:
        if not is_ordered(authorization, ordered):
            raise NotOrdered(
                f'the ACME server requests a proof of "{one_line(authorization.identifier)}", '
                "which was not ordered"
            )
    return written


def _written(authorization: Authorization) -> ACMEAuthorization:
    return ACMEAuthorization(
        url=authorization.url,
        identifier=authorization.identifier.value,
        wildcard=authorization.wildcard,
        # The field takes the states of the API; others are read again when they matter.
        initial_state=authorization.status
        if authorization.status in ("pending", "valid", "invalid", "expired")
        else "",
        challenges=tuple(
            ACMEChallenge(url=challenge.url, token=challenge.token, type=challenge.type)
            for challenge in authorization.challenges
        ),
    )


def shown_for(key: AccountKey, kind: str, token: str) -> str:
    """The value that a solver presents for a challenge of that type and the account's key."""
    return challenges.shown_value(kind, token, key)


async def finalize(client: AcmeClient, order: Order, csr: CsrFacts) -> tuple[ServerOrder, Refused | None]:
    """Finalize the order. If the CA refuses because of the order's state, return the order with the refusal.
    Raises `AcmeError`."""
    there = ServerOrder(url=order.status.url, status="ready", finalize=order.status.finalize_url)
    try:
        return await client.run(orders.finalize, there, csr.der), None
    except Refused as refused:
        if refused.reaction in (Reaction.WAIT, Reaction.ACCOUNT):
            raise
        # "orderNotReady", or a 403 for one that was finalised before a crash: the order's state decides.
        current = await client.run(orders.fetch_order, order.status.url)
        if current.status == "ready":
            raise
        return current, refused
