"""What the three products have in common: read a zone, place an order, fetch the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec

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
    """The calls of one product, with a token or key as their first argument. Methods raise `VenafiError`."""

    async def check_credentials(self, token: str) -> None:
        """Return if the server accepts the token."""

    async def read_zone(self, token: str) -> ZonePolicy:
        """The zone of the issuer. Raises `Refused` for one that does not exist."""

    def pickup_id(self, csr: CsrFacts) -> str:
        """The pickup ID that an order for this signing request will have, if it is known before; empty: the
        server chooses it."""

    async def place(self, token: str, order: CertificateOrder, zone: ZonePolicy) -> str:
        """Order a certificate; the pickup ID."""

    async def fetch(self, token: str, pickup_id: str) -> str | None:
        """The certificate with its chain (PEM, leaf first); None: not issued yet.

        Raises `Refused` if the order does not exist or has failed.
        """

    async def check_reachable(self) -> None:
        """Return if the server answers at all; without credentials, and at no cost. Raises `Unavailable`."""
