"""What every kind of issuer can do, and what it is handed to do it with.

`check` judges the issuer itself; its answer becomes the issuer's `Ready` condition. `sign` turns one approved
request into a certificate. Both MUST be idempotent and MAY be called for the same object again at any time;
neither writes to the API. What can go wrong is a typed outcome, never an exception of a library: `Failed` is
final for this request, `Pending` is tried again (after `retry_after`, or when a Secret or the issuer does
something new).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from certwright.kube.util.executor import Workshop
from certwright.resources.causes import Cause
from certwright.resources.issuer import IssuerACMEStatus, IssuerSpec
from certwright.resources.order import Order, OrderSpec
from certwright.resources.request import CertificateRequest

if TYPE_CHECKING:
    # Loaded only where an ACME server is talked to: see `issuers/acme.py`.
    from certwright.acme.protocol.client import Registry

GetSecret = Callable[[str], Awaitable[Mapping[str, bytes] | None]]
"""The data of the Secret of that name, from the namespace where this issuer's Secrets lie; None: no such
Secret."""


@dataclass(frozen=True, slots=True)
class IssuerView:
    """An Issuer or ClusterIssuer as its implementation sees it.

    `resource_version` and `uid` identify this state of it, for caches of parsed keys. `account` is what was
    written down of its ACME account, `ready_at` the generation at which it was last found able to sign.
    """

    kind: str
    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    spec: IssuerSpec
    account: IssuerACMEStatus | None = None
    ready_at: int | None = None


CreateSecret = Callable[[str, Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
"""Makes a Secret of that name where this issuer's Secrets lie, and returns its data; where there is one by
now, that one's."""

EnsureOrder = Callable[[CertificateRequest, OrderSpec], Awaitable[Order]]
"""The Order of that request: made where there is none yet."""


class AccountLimit(Protocol):
    """How many new accounts a server allows. `admit` MUST be followed by `ended` where it returns None."""

    async def admit(self, server: str) -> tuple[str, datetime] | None:
        """None: a new account may be asked for now. Otherwise why not, and until when."""

    def ended(self, server: str, *, is_made: bool) -> None:
        """Whether the server has made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcmeTools:
    """What the ACME issuer may use besides. `registry` gives the clients of this process; it is a function
    because it loads what speaks HTTP. `account_limit` None: new accounts are not counted."""

    registry: Callable[[], Registry]
    create_secret: CreateSecret
    ensure_order: EnsureOrder
    account_limit: AccountLimit | None = None


@dataclass(frozen=True, slots=True)
class Tools:
    """What an issuer may use: nothing else reaches the outside."""

    get_secret: GetSecret
    workshop: Workshop
    now: Callable[[], datetime]
    acme: AcmeTools | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """The verdict on an issuer: its `Ready` condition. `secrets` names those it depends on: a change to one
    of them means it must be checked again."""

    ready: bool
    reason: str
    message: str
    secrets: tuple[str, ...] = ()
    retry_after: timedelta | None = None
    account: IssuerACMEStatus | None = None
    """What is to be written down of the ACME account; None leaves what is there."""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something that the user should know about a certificate that was signed all the same. `reason` is the
    Warning event's, the text its message."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Signed:
    """A signed certificate: PEM chain, leaf first, and the CA's PEM (empty where there is none)."""

    chain_pem: bytes
    ca_pem: bytes = b""
    warnings: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """This request can never succeed as it is. `reason` is the event's, the text is for the condition.

    `cause` decides how long a Certificate waits until its next one, and `advice` is a half sentence about
    what to do ("change spec.commonName"): for `INVALID_REQUEST` it names the field. `not_before` is when the
    issuer wants to hear of it again, as it has said itself (`Retry-After`).
    """

    reason: str
    message: str
    cause: Cause = field(default=Cause.UNKNOWN, kw_only=True)
    advice: str = field(default="", kw_only=True)
    not_before: datetime | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class Pending:
    """Not yet. `secrets` names Secrets whose appearance or change may help. `is_told` False: all goes as it
    should, and is shown elsewhere (by an Order); not worth a write."""

    reason: str
    message: str
    secrets: tuple[str, ...] = ()
    retry_after: timedelta | None = None
    is_told: bool = field(default=True, kw_only=True)


Outcome = Signed | Failed | Pending


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """An approved CertificateRequest. `get_secret` of `request_secrets` looks in the request's namespace."""

    request: CertificateRequest
    get_secret: GetSecret = field(repr=False)


class Issuer(Protocol):
    """One kind of issuer (selfSigned, ca, …). Holds no state that a restart would lose."""

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        """Whether this issuer could sign now."""

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """The certificate that `signing.request` asks for."""
