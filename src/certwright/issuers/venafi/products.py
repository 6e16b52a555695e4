"""The contract of the three products: read the zone, place an order, fetch the certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from certwright.issuers.servers import ErrorFormat, mapping
from certwright.issuers.venafi.policies import ZonePolicy
from certwright.pki.csr import CsrFacts


class CustomField(NamedTuple):
    """A custom field of the certificate object, from the annotation `custom-fields`."""

    name: str
    value: str


class CertificateOrder(msgspec.Struct, frozen=True):
    """An order of one certificate."""

    csr_pem: str
    csr: CsrFacts
    lifetime: timedelta
    custom_fields: Sequence[CustomField] = ()


class ProductClient(Protocol):
    """The calls of one product, with a token or key as their first argument. Methods raise `CallError`."""

    async def check_credentials(self, token: str) -> None:
        """Return if the server accepts the token."""

    async def read_zone(self, token: str) -> ZonePolicy:
        """The zone of the issuer. Raises `Refused` for one that does not exist."""

    def pickup_id(self, csr: CsrFacts) -> str:
        """The pickup ID of an order for this signing request, if known before the order; empty: the server
        chooses it."""

    async def place(self, token: str, order: CertificateOrder, zone: ZonePolicy) -> str:
        """Order a certificate; the pickup ID."""

    async def fetch(self, token: str, pickup_id: str) -> str | None:
        """The certificate with its chain (PEM, leaf first); None: not issued yet.

        Raises `Refused` if the order does not exist or has failed.
        """

    async def check_reachable(self) -> None:
        """Return if the server answers at all; without credentials, and at no cost. Raises `Unavailable`."""


def _error_texts(content: Mapping[str, Any]) -> Sequence[object]:
    """The documented error texts of an answer: `Error` (TPP), `errors[].message` (SaaS, NGTS), `error` and
    `error_description` (RFC 6749 §5.2)."""
    listed = content.get("errors")
    texts = [mapping(item).get("message") for item in listed] if isinstance(listed, list) else []
    return [*texts, content.get("Error"), content.get("error_description") or content.get("error")]


ERRORS: Final = ErrorFormat("Certificate Manager", _error_texts)
