"""Objects of an ACME server and the flows that fetch and change them: orders, authorizations, certificates.

Source: RFC 8555 §7.1.3 and §7.4 (orders), §7.1.4, §7.5 and §8 (authorizations and challenges), §7.4.2
(download), §7.6 (revocation); RFC 9773 (renewal information).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding

from certwright.acme.protocol import reading
from certwright.acme.protocol.errors import (
    Identifier,
    NotAcme,
    Problem,
    Reaction,
    Refused,
    checked,
    problem_of,
)
from certwright.acme.protocol.exchange import Directory, Session, post
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Flow, Request, Response
from certwright.kit.outgoing import place_of
from certwright.kube.util.encoding import base64url
from certwright.pki.certificates import CertificateFacts, read_answer
from certwright.pki.chain import pem_of
from certwright.pki.errors import PkiError

_MOST_PAGES = 10
_CHAIN = "application/pem-certificate-chain"


@dataclass(frozen=True, slots=True)
class Order:
    """An order. `status` is pending, ready, processing, valid or invalid; unknown values survive.
    `retry_after` is the earliest moment for the next poll, set by the server."""

    url: str
    status: str
    finalize: str
    authorizations: tuple[str, ...] = ()
    identifiers: tuple[Identifier, ...] = ()
    error: Problem | None = None
    certificate: str = ""
    retry_after: datetime | None = None


def new_order(
    session: Session,
    identifiers: Sequence[Identifier],
    *,
    profile: str = "",
    replaces: str = "",
    not_after: datetime | None = None,
) -> Flow[Order]:
    """Create an order for these names. `replaces`: the identifier of the certificate to replace (RFC 9773
    §5); `profile`: one of the directory's (draft-ietf-acme-profiles §4)."""
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
        error=problem_of(content.get("error")),
        certificate=reading.text(content, "certificate"),
        retry_after=response.retry_after,
    )


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge. `status` is pending, processing, valid or invalid; unknown values survive. `token` is
    empty for types that have none (dns-persist-01)."""

    url: str
    type: str
    token: str
    status: str
    error: Problem | None = None


@dataclass(frozen=True, slots=True)
class Authorization:
    """An authorization. `status` is pending, valid, invalid, deactivated, expired or revoked; unknown values
    survive."""

    url: str
    status: str
    identifier: Identifier
    wildcard: bool = False
    challenges: tuple[Challenge, ...] = ()
    retry_after: datetime | None = None

    @property
    def error(self) -> Problem | None:
        """Why the authorization is not valid: the error of the challenge that failed."""
        return next((challenge.error for challenge in self.challenges if challenge.error), None)


def fetch_authorization(session: Session, url: str) -> Flow[Authorization]:
    """Fetch the current authorization."""
    response = yield from post(session, Action.AUTHORIZATION, url)
    content = reading.read_object(response, "an authorization")
    identifier = content.get("identifier")
    identifier = identifier if isinstance(identifier, dict) else {}
    return Authorization(
        url=url,
        status=reading.needed_text(content, "status", url=url, what="an authorization"),
        identifier=Identifier(reading.text(identifier, "type"), reading.text(identifier, "value")),
        wildcard=content.get("wildcard") is True,
        challenges=tuple(_challenge_of(item, "") for item in reading.objects(content, "challenges")),
        retry_after=response.retry_after,
    )


def accept_challenge(session: Session, url: str, payload: Mapping[str, Any] | None = None) -> Flow[Challenge]:
    """Accept the challenge: the server may validate it from now on (§7.5.1)."""
    response = yield from post(session, Action.CHALLENGE, url, dict(payload or {}))
    return _challenge_of(reading.read_object(response, "a challenge"), url)


def _challenge_of(content: dict[str, Any], url: str) -> Challenge:
    return Challenge(
        url=reading.text(content, "url") or url,
        type=reading.text(content, "type"),
        token=reading.text(content, "token"),
        status=reading.text(content, "status"),
        error=problem_of(content.get("error")),
    )


@dataclass(frozen=True, slots=True)
class Download:
    """A chain as PEM, leaf first, and the URLs of the alternate chains."""

    pem: bytes = field(repr=False)
    chain: tuple[CertificateFacts, ...]
    alternates: tuple[str, ...] = ()

    def ends_with(self, common_name: str) -> bool:
        """Whether the topmost certificate was issued by that name."""
        return f"CN={common_name}" in self.chain[-1].issuer_text.split(",")


def download(session: Session, url: str, *, preferred_chain: str = "") -> Flow[Download]:
    """Download the certificate with its chain: the first alternate whose topmost certificate was issued by
    `preferred_chain`, otherwise the default chain."""
    default = _download((yield from post(session, Action.CERTIFICATE, url, accept=_CHAIN)))
    if not preferred_chain or default.ends_with(preferred_chain):
        return default
    for alternate in default.alternates:
        candidate = _download((yield from post(session, Action.CERTIFICATE, alternate, accept=_CHAIN)))
        if candidate.ends_with(preferred_chain):
            return candidate
    return default


def _download(response: Response) -> Download:
    try:
        chain = read_answer(response.body)
    except PkiError as error:
        raise NotAcme(
            f"{place_of(response.url)} answered with something that is no certificate: {error}"
        ) from error
    return Download(pem_of(chain), chain, tuple(response.links("alternate")))


class RevocationReason(IntEnum):
    """Why a certificate is revoked (RFC 5280 §5.3.1); 7 is not used."""

    UNSPECIFIED = 0
    KEY_COMPROMISE = 1
    CA_COMPROMISE = 2
    AFFILIATION_CHANGED = 3
    SUPERSEDED = 4
    CESSATION_OF_OPERATION = 5
    CERTIFICATE_HOLD = 6
    REMOVE_FROM_CRL = 8
    PRIVILEGE_WITHDRAWN = 9
    AA_COMPROMISE = 10


def revoke(
    session: Session,
    certificate: CertificateFacts,
    *,
    reason: RevocationReason | None = None,
    key: AccountKey | None = None,
) -> Flow[None]:
    """Revoke a certificate; `key` is the certificate's own, unless the account signs. An already revoked
    certificate is a success."""
    url = session.directory.revoke_cert
    if not url:
        raise NotAcme(f"the server at {session.directory.url} offers no revocation")
    der = certificate.parsed.public_bytes(Encoding.DER)
    payload: dict[str, Any] = {"certificate": base64url(der)}
    if reason is not None:
        payload["reason"] = int(reason)
    try:
        yield from post(session, Action.REVOKE_CERT, url, payload, key=key)
    except Refused as error:
        if error.reaction is not Reaction.DONE:
            raise


class RenewalInfo(msgspec.Struct, frozen=True):
    """The renewal window that the CA suggests. `retry_after`: the earliest moment for the next request."""

    start: datetime
    end: datetime
    explanation_url: str = ""
    retry_after: datetime | None = None


def fetch_renewal_info(directory: Directory, identifier: str) -> Flow[RenewalInfo]:
    """Fetch the renewal information of the certificate with that identifier (`pki.ari.certificate_id`).
    The request is unauthenticated (§4.1)."""
    if not directory.renewal_info:
        raise NotAcme(f"the server at {directory.url} offers no renewal information")
    url = f"{directory.renewal_info.rstrip('/')}/{identifier}"
    response = checked((yield Request(Action.RENEWAL_INFO, "GET", url)))
    content = reading.read_object(response, "renewal information")
    window = content.get("suggestedWindow")
    window = window if isinstance(window, dict) else {}
    start, end = reading.moment(window, "start"), reading.moment(window, "end")
    if start is None or end is None or end <= start:
        # "Clients … MUST … treat a server response with end ≤ start" as if there were none (§4.3.3).
        raise NotAcme(f"{place_of(url)} answered with a window that has no beginning or no end after it")
    return RenewalInfo(start, end, reading.text(content, "explanationURL"), response.retry_after)
