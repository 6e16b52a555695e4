"""What an issuer reference of an Order or a Challenge resolves to: issuer and account, or why to wait."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from certwright.issuers.contract import IssuerView
from certwright.resources.issuer import ACMEIssuer

if TYPE_CHECKING:
    # The ACME client is loaded with the first Order.
    from certwright.acme.protocol.client import AcmeClient


class Wait(msgspec.Struct, frozen=True):
    """Why an object must wait. `until` None: until something changes. `why` is a sentence, which `names_time`
    itself or gets the time added. A wait that `is_brief` is not written. One that `is_final` never ends: the
    issuer is no ACME issuer."""

    why: str
    until: datetime | None = None
    names_time: bool = False
    is_brief: bool = False
    is_final: bool = False


class ResolvedIssuer(msgspec.Struct, frozen=True):
    """An issuer, its ACME settings, and the client of its account."""

    view: IssuerView
    spec: ACMEIssuer
    client: AcmeClient
