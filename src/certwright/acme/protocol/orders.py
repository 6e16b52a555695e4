"""Orders: create, fetch, finalize (RFC 8555 §7.1.3, §7.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from certwright.acme.protocol import reading
from certwright.acme.protocol.exchange import Session, post
from certwright.acme.protocol.messages import Action, Flow, Response
from certwright.acme.protocol.problem import Identifier, Problem, problem_of
from certwright.kube.util.encoding import base64url

_MOST_PAGES = 10


@dataclass(frozen=True, slots=True)
class Order:
    """An order. `status` is pending, ready, processing, valid or invalid; unknown values survive.
    `retry_after` is the earliest moment for the next poll, set by the server."""

    url: str
    status: str
    finalize: str
    authorizations: tuple[str, ...] = ()
    identifiers: tuple[Identifier, ...] = ()
    expires: datetime | None = None
    error: Problem | None = None
    certificate: str = ""
    retry_after: datetime | None = None
    raw: Mapping[str, object] = field(default_factory=dict, repr=False)


def new_order(
    session: Session,
    identifiers: Sequence[Identifier],
    *,
    profile: str = "",
    replaces: str = "",
    not_after: datetime | None = None,
) -> Flow[Order]:
    """Create an order for these names. `replaces` is the identifier of the certificate that it replaces
    (RFC 9773 §5), `profile` one of the directory's (draft-ietf-acme-profiles §4)."""
    payload: dict[str, Any] = {"identifiers": [{"type": i.type, "value": i.value} for i in identifiers]}
    if profile:
        payload["profile"] = profile
    if replaces:
        payload["replaces"] = replaces
    if not_after is not None:
        payload["notAfter"] = not_after.strftime("%Y-%m-%dT%H:%M:%SZ")
    response = yield from post(session, Action.NEW_ORDER, session.directory.new_order, payload)
    return _read(reading.location(response, "an order"), response)


def fetch_order(session: Session, url: str) -> Flow[Order]:
    """Fetch the current order."""
    response = yield from post(session, Action.ORDER, url)
    return _read(url, response)


def list_orders(session: Session) -> Flow[tuple[str, ...]]:
    """The URLs of the account's orders (§7.1.2.1; empty at the many servers without the list). Reads only
    the first pages, because callers look for new orders and servers list pending ones."""
    response = yield from post(session, Action.ACCOUNT, session.kid)
    url = reading.text(reading.read_object(response, "an account"), "orders")
    order_urls: list[str] = []
    for _ in range(_MOST_PAGES):
        if not url:
            break
        response = yield from post(session, Action.ORDERS, url)
        order_urls += reading.texts(reading.read_object(response, "a list of orders"), "orders")
        url = next(iter(response.links("next")), "")
    return tuple(order_urls)


def finalize(session: Session, order: Order, csr_der: bytes) -> Flow[Order]:
    """Submit the signing request (§7.4). The order may be `processing` afterwards: poll it."""
    payload = {"csr": base64url(csr_der)}
    response = yield from post(session, Action.FINALIZE, order.finalize, payload)
    # "Location" of the order is only a SHOULD here; its URL has not changed.
    return _read(order.url, response)


def _read(url: str, response: Response) -> Order:
    content = reading.read_object(response, "an order")
    return Order(
        url=url,
        status=reading.needed_text(content, "status", url=url, what="an order"),
        finalize=reading.needed_text(content, "finalize", url=url, what="an order"),
        authorizations=reading.texts(content, "authorizations"),
        identifiers=tuple(
            Identifier(reading.text(i, "type"), reading.text(i, "value"))
            for i in reading.objects(content, "identifiers")
        ),
        expires=reading.moment(content, "expires"),
        error=problem_of(content.get("error")),
        certificate=reading.text(content, "certificate"),
        retry_after=response.retry_after,
        raw=content,
    )
