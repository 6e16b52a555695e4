"""Contract of issuers, and the tools that they receive.

`check` judges the issuer itself; its verdict becomes the issuer's `Ready` condition. `sign` turns one
approved request into a certificate. Both MUST be idempotent and MAY be called for the same object again at
any time; neither writes to the API. Failures are typed outcomes, never exceptions of a library: `Failed` is
final for this request, `Pending` is retried (after `retry_after`, or when a Secret or the issuer changes).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from certwright.kit.outgoing import HttpClient, ServerRules, ServerTls
from certwright.kube.util.executor import Executor
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources.acme import Order, OrderSpec
from certwright.resources.causes import Cause
from certwright.resources.issuer import IssuerACMEStatus, IssuerSpec
from certwright.resources.operator_policy import NO_POST_QUANTUM
from certwright.resources.request import CertificateRequest

if TYPE_CHECKING:
    from certwright.acme.protocol.client import Registry


GetSecret = Callable[[str], Awaitable[Mapping[str, bytes] | None]]
"""The data of the Secret of that name, from the namespace of this issuer's Secrets; None: no such Secret."""


class IssuerView(msgspec.Struct, frozen=True):
    """An Issuer or ClusterIssuer for its implementation.

    `resource_version` and `uid` identify its state, for caches of parsed keys. `account`: its recorded ACME
    account. `ready_at`: the generation at which it was last found ready (for an ACME issuer: its account).
    `annotations`: of the object.
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
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)


CreateSecret = Callable[[str, Mapping[str, bytes]], Awaitable[Mapping[str, bytes]]]
"""Creates a Secret of that name in the namespace of this issuer's Secrets, and returns its data; if one
exists by now, that one's."""

EnsureOrder = Callable[[CertificateRequest, OrderSpec], Awaitable[Order]]
"""Returns the Order of that request, created if missing. Raises `OrderChanged`."""


class OrderChanged(Exception):
    """An admission webhook has made a new Order useless, so that it was deleted; the text says how."""


class AccountLimit(Protocol):
    """The server's limit of new accounts. `admit` MUST be followed by `ended` if it returns None."""

    async def admit(self, server: str) -> tuple[str, datetime] | None:
        """None: a new account may be requested now. Otherwise the reason, and until when."""

    def ended(self, server: str, *, is_made: bool) -> None:
        """Record whether the server has created it."""


class SolverProblem(msgspec.Struct, frozen=True):
    """What is known to be wrong with the solver at `path`. `retry_at` None: no retry before something
    changes. `is_certain` False: the solver could not be verified now."""

    path: str
    message: str
    retry_at: datetime | None = None
    is_certain: bool = True


VerifySolvers = Callable[[IssuerView, GetSecret], Awaitable[Sequence[SolverProblem]]]
"""Verifies the solvers of an issuer: Secrets, credentials, listeners. Cheap: answers are cached."""


class AcmeTools(msgspec.Struct, frozen=True, kw_only=True):
    """Further tools of the ACME issuer. `registry` has the clients of this process. `account_limit` None:
    new accounts are not limited. `verify_solvers` None: this process solves no challenges."""

    registry: Registry
    create_secret: CreateSecret
    ensure_order: EnsureOrder
    account_limit: AccountLimit | None = None
    verify_solvers: VerifySolvers | None = None


GetToken = Callable[[str, Sequence[str]], Awaitable[str]]
"""Requests a token of the ServiceAccount of that name, for these audiences, from the namespace of this
issuer's Secrets. Raises `ApiError` and `Unreachable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTools:
    """Further tools of issuers that use a server's HTTP API.

    `client` returns this process's client for a server with that TLS configuration; its second argument is
    the advice for a server with an unknown CA. It raises `ValueError` for unusable certificates.
    `trusted_client` returns a client with these rules, for servers that the operator or a cloud provider
    names. `environment`: of this process. `allows_ambient`: whether an issuer of that kind may use the
    process's and machine's credentials at a cloud provider.
    """

    client: Callable[[ServerTls, str], HttpClient]
    get_token: GetToken
    trusted_client: Callable[[ServerRules], HttpClient]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    allows_ambient: Callable[[str], bool] = lambda _kind: False


class Tools(msgspec.Struct, frozen=True):
    """Side effects available to an issuer. `post_quantum` is the feature gate of that name."""

    get_secret: GetSecret
    executor: Executor
    now: Callable[[], datetime]
    acme: AcmeTools | None = None
    servers: ServerTools | None = None
    post_quantum: bool = False


class Checked(msgspec.Struct, frozen=True):
    """The verdict on an issuer: its `Ready` condition. `secrets` names the Secrets it depends on: a change
    of one requeues the issuer. `event` is the reason of the Event; empty: the condition's."""

    ready: bool
    reason: str
    message: str
    secrets: tuple[str, ...] = ()
    retry_after: timedelta | None = None
    account: IssuerACMEStatus | None = None
    """The ACME account to record; None leaves the recorded one."""
    is_answered: bool = False
    """Whether the issuer's server has answered requests of this check as it should: as good as a probe."""
    event: str = ""
    lacks_secret: bool = False
    """Whether only a Secret is missing, which often appears a moment after the issuer."""


class Remark(msgspec.Struct, frozen=True):
    """A warning about a certificate that was signed nevertheless. `reason` is the Warning event's, the text
    its message."""

    reason: str
    message: str


class Signed(msgspec.Struct, frozen=True):
    """A signed certificate: PEM chain, leaf first, and the CA's PEM (empty if unknown)."""

    chain_pem: bytes
    ca_pem: bytes = b""
    warnings: tuple[Remark, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """This request can never succeed as it is. `reason` is the event's, the text is for the condition.

    `cause` decides how long a Certificate waits until its next request, and `advice` is a clause with the fix
    ("change spec.commonName"): for `INVALID_REQUEST` it names the field.
    """

    reason: str
    message: str
    cause: Cause = field(default=Cause.UNKNOWN, kw_only=True)
    advice: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Pending:
    """Not yet. `secrets` names Secrets whose creation or change may help. `is_announced` False: normal
    progress, visible elsewhere (in an Order) and not worth a status write.

    `annotations` are state that a crash must not lose, such as the ID of an order: they are written to the
    request before anything else happens, and `sign` is called again immediately. `is_taken`: the issuer's
    server has taken the request, also if it fails now.

    `cause` set: the issuer itself has failed for that cause, and accepts nothing before `not_before`. The
    issuer's circuit breaker then decides when the request is sent again.
    """

    reason: str
    message: str
    secrets: tuple[str, ...] = ()
    retry_after: timedelta | None = None
    is_announced: bool = field(default=True, kw_only=True)
    cause: Cause | None = field(default=None, kw_only=True)
    not_before: datetime | None = field(default=None, kw_only=True)
    annotations: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    is_taken: bool = field(default=False, kw_only=True)


Outcome = Signed | Failed | Pending


@dataclass(frozen=True, slots=True)
class SigningRequest:
    """An approved CertificateRequest. `get_secret` of `request_secrets` reads the request's namespace."""

    request: CertificateRequest
    get_secret: GetSecret = field(repr=False)


class Issuer(Protocol):
    """One type of issuer (selfSigned, ca, …). Has no state that a restart would lose."""

    async def check(self, issuer: IssuerView, tools: Tools) -> Checked:
        """Whether this issuer could sign now."""

    async def sign(self, issuer: IssuerView, signing: SigningRequest, tools: Tools) -> Outcome:
        """Sign the certificate that `signing.request` asks for."""


class ProbedIssuer(Protocol):
    """A type whose server can be asked, at no cost, whether it works."""

    async def probe(self, issuer: IssuerView, tools: Tools) -> str:
        """Send one request. Returns why the server does not work, in a sentence; empty: it works."""


NOT_ALLOWED: Final = "NotAllowed"


def post_quantum_refusal(csr_pem: bytes, tools: Tools) -> Failed | None:
    """The outcome of a request for an ML-DSA key while the feature gate `PostQuantum` is off; None for any
    other request, and for an unreadable one. If a server signs, the server decides which keys it accepts, so
    its issuer needs no check."""
    if tools.post_quantum:
        return None
    try:
        is_refused = read_csr(csr_pem).is_ml_dsa
    except PkiError:
        return None
    if not is_refused:
        return None
    text = f"Error signing certificate: the key of the signing request: {NO_POST_QUANTUM}"
    return Failed(
        NOT_ALLOWED, text, cause=Cause.INVALID_REQUEST, advice="request an RSA, ECDSA or Ed25519 key"
    )
