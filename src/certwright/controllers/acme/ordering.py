"""What is said to the server about one Order, and what an Order becomes by the answers.

Loaded with the first Order only: it brings what speaks to ACME servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certwright.acme.protocol import authorizations, certificates, challenges, orders
from certwright.acme.protocol.authorizations import Authorization
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import Refused
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.acme.protocol.problem import Identifier, Reaction
from certwright.kit.backoff import doubled
from certwright.kit.durations import parse_duration
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrFacts, read_csr
from certwright.resources.order import ACMEAuthorization, ACMEChallenge, Order, OrderSpec, OrderStatus

_OPEN = ("pending", "ready", "processing")


def identifiers_of(spec: OrderSpec) -> tuple[Identifier, ...]:
    """What is ordered: names and addresses, each once, the common name among them."""
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
    """Make the order at the server; `replaces` empty: it names no certificate that it replaces.

    Raises `AcmeError`.
    """
    not_after = now + parse_duration(spec.duration) if spec.duration else None
    wanted = identifiers_of(spec)
    return await client.run(
        orders.new_order, wanted, profile=spec.profile, replaces=replaces, not_after=not_after
    )


Contents = dict[str, frozenset[Identifier]]
"""What the orders at some URLs are for. That never changes, so that nobody has to ask twice."""


async def find_lost(
    client: AcmeClient, spec: OrderSpec, is_known: Callable[[str], bool], contents: Contents
) -> ServerOrder | None:
    """An order of the account for just these names that no Order knows of: one whose answer did not reach us.

    None where the server does not list an account's orders. What it learns of orders goes into `contents`:
    after a restart many may ask. Raises `AcmeError`.
    """
    wanted = frozenset(identifiers_of(spec))
    for url in await client.run(orders.list_orders):
        if is_known(url) or contents.get(url, wanted) != wanted:
            continue
        found = await client.run(orders.fetch_order, url)
        contents[url] = frozenset(found.identifiers)
        if found.status in _OPEN and contents[url] == wanted:
            return found
    return None


async def fetch_authorizations(client: AcmeClient, urls: Sequence[str]) -> tuple[ACMEAuthorization, ...]:
    """The authorizations, as they are written down. Raises `AcmeError`."""
    found = await asyncio.gather(*(client.run(authorizations.fetch_authorization, url) for url in urls))
    return tuple(_written(one) for one in found)


def _written(found: Authorization) -> ACMEAuthorization:
    return ACMEAuthorization(
        url=found.url,
        identifier=found.identifier.value,
        wildcard=found.wildcard,
        # The field holds states that the API knows; others are looked at again when they matter.
        initial_state=found.status if found.status in ("pending", "valid", "invalid", "expired") else "",
        challenges=tuple(
            ACMEChallenge(url=one.url, token=one.token, type=one.type) for one in found.challenges
        ),
    )


def placed(status: OrderStatus, order: ServerOrder) -> OrderStatus:
    """The status once the order is there; its authorizations are known by their URLs only."""
    return msgspec.structs.replace(
        status,
        url=order.url,
        finalize_url=order.finalize,
        authorizations=tuple(ACMEAuthorization(url=url) for url in order.authorizations),
        state=order.status if order.status in _OPEN else "pending",
        reason="",
    )


def shown_for(client: AcmeClient, kind: str, token: str) -> str:
    """What a challenge of that type shows."""
    return challenges.shown_value(kind, token, client.key)


def csr_of(spec: OrderSpec) -> CsrFacts:
    """The signing request, PEM or DER. Raises `PkiError`."""
    if spec.request.lstrip().startswith(b"-----BEGIN"):
        return read_csr(spec.request)
    try:
        pem = x509.load_der_x509_csr(spec.request).public_bytes(Encoding.PEM)
    except ValueError:
        pem = spec.request
    return read_csr(pem)


async def finalize(client: AcmeClient, order: Order, csr: CsrFacts) -> ServerOrder:
    """Hand in the signing request; where the order is in another state, how it is. Raises `AcmeError`."""
    there = ServerOrder(url=order.status.url, status="ready", finalize=order.status.finalize_url)
    try:
        return await client.run(orders.finalize, there, csr.der)
    except Refused as refused:
        if refused.reaction in (Reaction.WAIT, Reaction.ACCOUNT):
            raise
        # "orderNotReady", or a 403 for one that was finalised before a crash: what it is like is the answer.
        found = await client.run(orders.fetch_order, order.status.url)
        if found.status == "ready":
            raise
        return found


async def look(client: AcmeClient, url: str) -> ServerOrder:
    """The order as it is now. Raises `AcmeError`."""
    return await client.run(orders.fetch_order, url)


async def download(client: AcmeClient, url: str, preferred_chain: str) -> certificates.Download:
    """The certificate. Raises `AcmeError`."""
    return await client.run(certificates.download, url, preferred_chain=preferred_chain)


def wrong_certificate(found: CertificateFacts, csr: CsrFacts, now: datetime) -> str:
    """Why the certificate must not be used, as a sentence; empty: it may."""
    if found.public_key_der != csr.public_key_der:
        return "the server returned a certificate for another key"
    missing = {*csr.dns_names, *csr.ip_addresses} - {*found.dns_names, *found.ip_addresses}
    if missing:
        return f"the server returned a certificate without {', '.join(sorted(missing))}"
    if found.not_after <= now:
        return "the server returned a certificate that has expired"
    return ""


def poll_delay(polls: int) -> timedelta:
    """How long to wait before asking the server again, if it does not say: 0.1 s, doubled up to 10 s."""
    return doubled(timedelta(seconds=0.1), polls + 1, cap=timedelta(seconds=10))
