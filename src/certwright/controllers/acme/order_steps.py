"""The steps of an Order, and what is known when the next one is decided: values only.

`order_decisions.py` decides, `orders.py` carries out. A step that reads or does something adds a fact, and
the next step of the same pass follows from it; the others end the pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from certwright.acme.protocol.certificates import Download as Downloaded
from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.controllers.acme.order_requests import NotOrdered
from certwright.controllers.acme.order_state import Memory, Stage
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.requests.departures import Departure
from certwright.kube.api.meta import ObjectKey
from certwright.pki.csr import CsrFacts
from certwright.pki.errors import PkiError
from certwright.pki.verify import Verification
from certwright.resources.acme import ACMEAuthorization, Challenge, Order, OrderStatus


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps of one pass have found out so far; None: not yet.

    `departure`: another member of the issuer set signs instead. `superseded`: how many Orders of its request
    were given up in the last day. `before`: the Order that this one waits for, and until when at most.
    `problem`: why the Order must not be acted on; empty: it may be. `is_migrated`: the annotations of a
    former version are written. `issuer`: its issuer and account, or why there is none. `is_hurried`: its
    pause is cut short. `is_resumed`: the pause is over, and the circuit breaker lets it ask the CA.
    `is_served`: whether the issuer's server has the Order's URL. `may_replace`: whether the new order names
    the certificate that it replaces. `limit`: why the new order must wait, `is_admitted`: that it need not.
    `asked_at`: when the attempt to place it began. `placed`: the new order. `is_described`: the
    authorizations were read in this pass.
    `no_solver`: no solver of the issuer fits; until `no_solver_until` (None: until something changes).
    `challenges`: those that it needs, `unproven`: the ones without proof. `authorizations`: those of now.
    `current`: the CA's order, as polled. `finalized`: the same as it answered the signing request `csr`, or
    another one, because of which it has given this `refusal`. `downloaded`: the certificate,
    `verification`: what clients say of it.

    `error`: why a request failed. `is_distrusted`: the account may be the cause, and is checked.
    `concerns_others`: the CA's limit applies to other names too. `recorded`: the failure was recorded, and
    the Order then waits like this.
    """

    departure: Departure | None = None
    problem: str | None = None
    superseded: int = 0
    before: tuple[ObjectKey, datetime] | None = None
    is_migrated: bool = False
    issuer: ResolvedIssuer | Wait | None = None
    is_hurried: bool = False
    is_resumed: bool = False
    is_served: bool | None = None
    may_replace: bool | None = None
    limit: Wait | None = None
    is_admitted: bool = False
    asked_at: datetime | None = None
    placed: ServerOrder | None = None
    is_described: bool = False
    no_solver: str = ""
    no_solver_until: datetime | None = None
    authorizations: tuple[ACMEAuthorization, ...] | None = None
    challenges: tuple[Challenge, ...] | None = None
    unproven: tuple[Challenge, ...] = ()
    current: ServerOrder | None = None
    finalized: ServerOrder | None = None
    refusal: Refused | None = None
    csr: CsrFacts | None = None
    downloaded: Downloaded | None = None
    verification: Verification | None = None
    error: AcmeError | NotOrdered | PkiError | None = None
    is_distrusted: bool = False
    concerns_others: bool | None = None
    recorded: Hold | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that decides the next step. `began_at`: when this process began; an older Order may have been
    placed by the previous one."""

    order: Order
    memory: Memory
    now: datetime
    began_at: datetime
    facts: Facts = Facts()


# Steps that the CA can refuse; the pass continues.


class CheckServer(msgspec.Struct, frozen=True):
    """Read the server's directory, to find out whether it has the Order's URL."""


class CheckPredecessor(msgspec.Struct, frozen=True):
    """Find out whether the CA offers renewal information, and whether this account of it issued the
    certificate that the order replaces: any other order that names one is refused."""


class PlaceOrder(msgspec.Struct, frozen=True):
    """Make the order at the CA. `replaces` empty: it names no certificate that it replaces. `may_exist`: look
    for it first."""

    replaces: str
    may_exist: bool


class ReadAuthorizations(msgspec.Struct, frozen=True):
    """Read the authorizations of `status` and write it; without them if that fails, because an order whose
    URL is lost is made twice. `is_new`: the CA has just taken it."""

    status: OrderStatus
    is_new: bool = False


class CheckAuthorizations(msgspec.Struct, frozen=True):
    """Read the authorizations at these URLs: one of them is not valid."""

    urls: tuple[str, ...]


class PollOrder(msgspec.Struct, frozen=True):
    """Read the order from the CA."""


class Finalize(msgspec.Struct, frozen=True):
    """Send the signing request; the stage is `stage` before the response."""

    stage: Stage


class Download(msgspec.Struct, frozen=True):
    """Download the certificate: of each CA, a few at a time until the end of the pass. Until it can be read
    the order is polled: the stage is `stage`."""

    url: str
    stage: Stage


# The other steps that add a fact; the pass continues.


class CheckRequest(msgspec.Struct, frozen=True):
    """Check whether another member of the set signs, and whether the Order may be acted on."""


class Migrate(msgspec.Struct, frozen=True):
    """Write what a former version has kept in the reason as annotations."""

    annotations: Mapping[str, str]


class ResolveIssuer(msgspec.Struct, frozen=True):
    """Find the issuer and its account."""


class Resume(msgspec.Struct, frozen=True):
    """End the pause; after failures, ask the circuit breaker whether the CA may be asked."""

    memory: Memory


class Admit(msgspec.Struct, frozen=True):
    """Ask the circuit breaker and the CA's limits for a new order, and the issuer set, if it must wait,
    whether another member signs. `replaces`: it names the certificate that it replaces."""

    replaces: bool


class RecordAttempt(msgspec.Struct, frozen=True):
    """Record that an order is about to be placed: a crash must not lose it, because attempts in an hour are
    limited."""


class EnsureChallenges(msgspec.Struct, frozen=True):
    """Create the Challenges that are missing, and delete those of former solvers."""


class DoubtAccount(msgspec.Struct, frozen=True):
    """Mark the account as lost, so that the issuer's controller finds out whether it is."""


class ReportLimit(msgspec.Struct, frozen=True):
    """Report to the ledger of the CA's limits that it has refused a new order."""

    error: Refused


class RecordFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Record that the CA could not be asked, or not now: in the annotations, and for the circuit breaker
    unless it `is_about_names`. `named`: until when, by the CA. Then `hold`, unless another member signs."""

    error: AcmeError
    annotations: Mapping[str, str]
    named: datetime | None
    is_about_names: bool
    hold: Hold


# Steps that end the pass. `memory` is what is kept until the next one.


class Rest(msgspec.Struct, frozen=True):
    """Wait, without a write, until `until` or a change. `event`: a Warning to record."""

    memory: Memory
    until: datetime | None = None
    event: str = ""


class Hold(msgspec.Struct, frozen=True):
    """Wait with a written reason. `event`: a Warning to record."""

    memory: Memory
    reason: str
    until: datetime | None = None
    event: str = ""


class Fail(msgspec.Struct, frozen=True):
    """End the Order in a final state. `annotations`: written before. `is_answered`: the CA has refused it, so
    that its issuer works."""

    state: str
    reason: str
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_answered: bool = False


class Store(msgspec.Struct, frozen=True):
    """Write the certificate; the Order is valid. `event`: a Warning to record."""

    downloaded: Downloaded
    event: str = ""


class Forget(msgspec.Struct, frozen=True):
    """Drop the memory of an Order that has ended. After success its Challenges are deleted. "If the Order
    fails for any reason, the Challenge resources will be retained to allow users to debug the failures":
    their controller stops them."""

    deletes_challenges: bool = False


Request = (
    CheckServer
    | CheckPredecessor
    | PlaceOrder
    | ReadAuthorizations
    | CheckAuthorizations
    | PollOrder
    | Finalize
    | Download
)
"""Steps that the CA can refuse."""

Inquiry = (
    CheckRequest
    | Migrate
    | ResolveIssuer
    | Resume
    | Admit
    | RecordAttempt
    | EnsureChallenges
    | DoubtAccount
    | ReportLimit
    | RecordFailure
)
"""The other steps that add a fact."""

Ending = Rest | Hold | Fail | Store | Forget
"""Steps that end the pass."""

Step = Request | Inquiry | Ending
