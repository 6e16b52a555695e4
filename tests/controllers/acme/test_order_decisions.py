"""The next step of an Order: a table of what is known, and the step that follows."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from certwright.acme.protocol.certificates import Download as Downloaded
from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import AccountTrouble, ForeignUrl, Refused, Unreachable
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.acme.protocol.problem import Problem
from certwright.controllers.acme.announcing import Announced
from certwright.controllers.acme.order_decisions import next_step
from certwright.controllers.acme.order_requests import NotOrdered
from certwright.controllers.acme.order_state import (
    Finalizing,
    Memories,
    Memory,
    Placed,
    Stage,
    Unplaced,
    recalled,
)
from certwright.controllers.acme.order_steps import (
    Admit,
    CheckAuthorizations,
    CheckPredecessor,
    CheckRequest,
    CheckServer,
    DoubtAccount,
    Download,
    EnsureChallenges,
    Facts,
    Fail,
    Finalize,
    Forget,
    Hold,
    Migrate,
    PlaceOrder,
    PollOrder,
    ReadAuthorizations,
    RecordAttempt,
    RecordFailure,
    ReportLimit,
    ResolveIssuer,
    Rest,
    Resume,
    Snapshot,
    Step,
    Store,
)
from certwright.controllers.acme.pause import Pause
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.requests.departures import Departure
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectKey, ObjectMeta
from certwright.pki import keys, signing
from certwright.pki.certificates import read_chain
from certwright.pki.csr import CsrFacts, CsrPlan, build_csr, read_csr
from certwright.pki.errors import BadCsr
from certwright.resources import names
from certwright.resources.acme import (
    ACMEAuthorization,
    Challenge,
    ChallengeSpec,
    ChallengeStatus,
    Order,
    OrderSpec,
    OrderStatus,
)
from certwright.resources.issuer import ACMEIssuer, IssuerSpec
from certwright.resources.references import IssuerReference, SecretKeySelector
from certwright.resources.solver import Solver

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SERVER, ACCOUNT = "https://ca.example/directory", "https://ca.example/account/1"


class Client:
    """The account of an issuer. Decisions do not ask the CA."""

    directory_url = SERVER
    kid = ACCOUNT


ACME = ACMEIssuer(server=SERVER, private_key_secret_ref=SecretKeySelector(name="account"))
VIEW = IssuerView("Issuer", "acme", "n", "i", 1, "7", IssuerSpec(acme=ACME))
ISSUER = ResolvedIssuer(VIEW, ACME, cast(AcmeClient, Client()))
CHOOSY = ResolvedIssuer(VIEW, msgspec.structs.replace(ACME, preferred_chain="Root X"), ISSUER.client)

SPEC = OrderSpec(request=b"", issuer_ref=IssuerReference(name="acme"), dns_names=("a.example.org",))
RENEWING = msgspec.structs.replace(SPEC, replaces="aki.serial")
AT_HOME = {names.ACME_SERVER: SERVER, names.ACME_ACCOUNT: ACCOUNT}
META = ObjectMeta(name="o", namespace="n", uid="u", creation_timestamp=NOW, annotations=AT_HOME)
OLD = msgspec.structs.replace(META, creation_timestamp=NOW - HOUR)
FORMER = msgspec.structs.replace(META, annotations={})
ELSEWHERE = msgspec.structs.replace(META, annotations={**AT_HOME, names.ACME_SERVER: "https://old.example/"})
OTHER_ACCOUNT = msgspec.structs.replace(META, annotations={**AT_HOME, names.ACME_ACCOUNT: "2"})
DELETED = msgspec.structs.replace(META, deletion_timestamp=NOW)

BLANK = OrderStatus()
READ = ACMEAuthorization(url="https://ca.example/authz/1", identifier="a.example.org")
PENDING = OrderStatus(
    url="https://ca.example/order/1",
    finalize_url="https://ca.example/order/1/finalize",
    authorizations=(READ,),
    state="pending",
)
EXPIRED = (msgspec.structs.replace(READ, initial_state="expired"),)
GONE = "the server calls the order invalid: a.example.org is expired"
SUPERSEDED = {names.ACME_SUPERSEDED: "true"}
UNREAD = msgspec.structs.replace(PENDING, authorizations=(ACMEAuthorization(url=READ.url),))

HERE = SERVER + ACCOUNT
CHECKED = Facts(problem="")
RESOLVED = replace(CHECKED, issuer=ISSUER)
RESUMED = replace(RESOLVED, is_resumed=True)
ADMITTED = replace(RESUMED, is_admitted=True)
SENT = replace(ADMITTED, asked_at=NOW - SECOND)
OWN = replace(RESUMED, may_replace=True)


def memory(stage: Stage | None = None, **changes: Any) -> Memory:
    """The memory of an Order that has been at this account before."""
    return Memory("u", stage or Unplaced(), account=HERE, **changes)


def known(
    facts: Facts,
    current: Memory | None = None,
    *,
    status: OrderStatus = BLANK,
    meta: ObjectMeta = META,
    spec: OrderSpec = SPEC,
) -> Snapshot:
    """A snapshot at NOW, of a process that began a minute ago."""
    order = Order(metadata=meta, spec=spec, status=status)
    return Snapshot(order=order, memory=current or memory(), now=NOW, began_at=NOW - MINUTE, facts=facts)


def placed(facts: Facts, stage: Stage | None = None, **changes: Any) -> Snapshot:
    """A snapshot of an Order that is placed."""
    return known(facts, memory(stage or Placed(), **changes), status=PENDING)


def at_ca(status: str, **changes: Any) -> ServerOrder:
    """The order at the CA."""
    return ServerOrder(PENDING.url, status, PENDING.finalize_url, (READ.url,), **changes)


def challenge(name: str, state: str = "", reason: str = "") -> Challenge:
    """A Challenge of the Order."""
    spec = ChallengeSpec(
        url="u",
        authorization_url=READ.url,
        dns_name=name,
        type="HTTP-01",
        token="t",
        key="k",
        solver=Solver(),
        issuer_ref=SPEC.issuer_ref,
    )
    return Challenge(spec=spec, status=ChallengeStatus(state=state, reason=reason))


URN = "urn:ietf:params:acme:error:"


def refused(problem: str, *, status: int = 400, retry_after: datetime | None = None) -> Refused:
    """The CA's refusal with a problem of that type."""
    document = Problem(type=URN + problem, detail="no", status=status)
    return Refused(document, status=status, retry_after=retry_after)


def failing(error: Unreachable | Refused | ForeignUrl | NotOrdered | BadCsr, **facts: Any) -> Facts:
    """A request has failed in this pass."""
    return replace(SENT, error=error, **facts)


PROVEN = replace(RESUMED, challenges=(challenge("a.example.org", "valid"),))
WAITING = tuple(challenge(f"{n}.example.org", "pending", f"reason {n}") for n in range(5))
FAILED = (challenge("a.example.org", "invalid", "404"), challenge("b.example.org", "pending"))
VALID = at_ca("valid", certificate="https://ca.example/cert/1")
POLLED = Finalizing(NOW - SECOND, polls=2)
LIMIT = refused("rateLimited", status=429)
NAMED = refused("rateLimited", status=429, retry_after=NOW + HOUR)
DEPARTURE = Departure("another member signs", NOW + MINUTE)
OURS, THEIRS = (Pause(NOW + MINUTE, NOW, is_ours=is_ours) for is_ours in (True, False))
POLL = Pause(NOW + 0.1 * SECOND, None, is_ours=True)
SLOW = Finalizing(NOW - HOUR, polls=30)

CASES: dict[str, tuple[Snapshot, Step]] = {
    # Before the issuer is known.
    "a deleted one is forgotten": (known(Facts(), meta=DELETED), Forget()),
    "one that has failed keeps its Challenges": (
        known(Facts(), status=OrderStatus(state="errored")),
        Forget(),
    ),
    "one that is valid needs no Challenges": (
        known(Facts(), status=OrderStatus(state="valid")),
        Forget(deletes_challenges=True),
    ),
    "each pass begins with the request": (known(Facts()), CheckRequest()),
    "another member of the set signs": (
        known(Facts(departure=DEPARTURE)),
        Fail(
            "errored",
            "another member signs",
            {names.ACME_SUPERSEDED: "true", names.MEMBER_NOT_BEFORE: "2026-11-23T12:01:00Z"},
        ),
    ),
    "one that repeats no request waits": (
        known(Facts(problem="not approved")),
        Hold(memory(announced=Announced("not approved")), "not approved"),
    ),
    "a wait that is written already is not written again": (
        known(Facts(problem="not approved"), memory(announced=Announced("not approved"))),
        Rest(memory(announced=Announced("not approved"))),
    ),
    "the attempts of a former version become annotations": (
        known(CHECKED, status=OrderStatus(reason="no answer")),
        Migrate({names.ACME_ATTEMPTS: ""}),
    ),
    "the issuer is resolved": (known(CHECKED), ResolveIssuer()),
    "an issuer that is no ACME issuer ends it": (
        known(replace(CHECKED, issuer=Wait("no ACME", is_final=True))),
        Fail("errored", "no ACME"),
    ),
    "an issuer that is not ready is waited for": (
        known(replace(CHECKED, issuer=Wait("not ready", NOW + MINUTE))),
        Hold(
            memory(announced=Announced("not ready", NOW + MINUTE)),
            "not ready; next step at 2026-11-23T12:01:00Z",
            NOW + MINUTE,
        ),
    ),
    "a brief wait is not written": (
        known(replace(CHECKED, issuer=Wait("a trial", NOW + SECOND, is_brief=True))),
        Rest(memory(), NOW + SECOND),
    ),
    # With its issuer, before the CA is asked.
    "an order at another server ends": (
        known(RESOLVED, status=PENDING, meta=ELSEWHERE),
        Fail(
            "errored",
            'Issuer "acme" no longer uses https://old.example/, where this order is; another Order takes its '
            "place",
            {names.ACME_SUPERSEDED: "true"},
        ),
    ),
    "an order of another account ends": (
        known(RESOLVED, status=PENDING, meta=OTHER_ACCOUNT),
        Fail(
            "errored",
            'Issuer "acme" no longer uses account 2, where this order is; another Order takes its place',
            {names.ACME_SUPERSEDED: "true"},
        ),
    ),
    "a pause is kept": (known(RESOLVED, memory(pause=OURS)), Rest(memory(pause=OURS), NOW + MINUTE)),
    "a pause is kept that the CA has named": (
        known(RESOLVED, memory(pause=THEIRS)),
        Rest(memory(pause=THEIRS), NOW + MINUTE),
    ),
    "a hurried one ends the pause": (
        known(replace(RESOLVED, is_hurried=True), memory(pause=OURS, failures=1)),
        Resume(memory(failures=1)),
    ),
    "a pause that is over": (known(RESOLVED, memory(pause=Pause(NOW, NOW, True))), Resume(memory())),
    "a pause for another account does not apply": (
        known(RESOLVED, replace(memory(pause=THEIRS, failures=3), account="another")),
        Resume(memory()),
    ),
    "an Order of a former version may be at another server": (
        known(RESUMED, memory(Placed()), status=PENDING, meta=FORMER),
        CheckServer(),
    ),
    "it is not there": (
        known(replace(RESUMED, is_served=False), memory(Placed()), status=PENDING, meta=FORMER),
        Fail(
            "errored",
            'Issuer "acme" no longer uses https://ca.example, where this order is; another Order takes its '
            "place",
            {names.ACME_SUPERSEDED: "true"},
        ),
    ),
    "it is there": (
        known(replace(RESUMED, is_served=True), memory(Placed()), status=PENDING, meta=FORMER),
        EnsureChallenges(),
    ),
    # Unplaced.
    "the limits are asked": (known(RESUMED), Admit(replaces=False)),
    "the limits are asked for a renewal": (known(OWN, spec=RENEWING), Admit(replaces=True)),
    "whose certificate a renewal replaces is asked": (known(RESUMED, spec=RENEWING), CheckPredecessor()),
    "a certificate of another account is not named": (
        known(replace(RESUMED, may_replace=False), spec=RENEWING),
        Admit(replaces=False),
    ),
    "a renewal that must not name its predecessor counts": (
        known(OWN, memory(Unplaced(replaces_nothing=True)), spec=RENEWING),
        Admit(replaces=False),
    ),
    "a limit is waited for, and ends the row of failures": (
        known(replace(RESUMED, limit=Wait("limit", NOW + HOUR, names_time=True)), memory(failures=2)),
        Hold(memory(announced=Announced("limit")), "limit", NOW + HOUR),
    ),
    "the attempt is recorded": (known(ADMITTED), RecordAttempt()),
    "a new one is placed": (known(SENT), PlaceOrder("", may_exist=False)),
    "a renewal names what it replaces": (
        known(replace(SENT, may_replace=True), spec=RENEWING),
        PlaceOrder("aki.serial", False),
    ),
    "unless the CA refuses that": (
        known(replace(SENT, may_replace=True), memory(Unplaced(replaces_nothing=True)), spec=RENEWING),
        PlaceOrder("", False),
    ),
    "one without response may exist": (known(SENT, memory(Unplaced(may_exist=True))), PlaceOrder("", True)),
    "one of a previous process may exist": (known(SENT, meta=OLD), PlaceOrder("", may_exist=True)),
    "its authorizations are read": (
        known(replace(SENT, placed=at_ca("pending")), memory(Unplaced(may_exist=True))),
        ReadAuthorizations(UNREAD, is_new=True),
    ),
    "an unknown state of the CA counts as pending": (
        known(replace(SENT, placed=at_ca("strange"))),
        ReadAuthorizations(UNREAD, is_new=True),
    ),
    # Placed.
    "authorizations that a crash has lost are read": (
        known(RESUMED, memory(Placed()), status=UNREAD),
        ReadAuthorizations(UNREAD),
    ),
    "they are read once": (
        known(replace(RESUMED, is_described=True), memory(Placed()), status=UNREAD),
        EnsureChallenges(),
    ),
    "its Challenges are ensured": (placed(RESUMED), EnsureChallenges()),
    "no solver fits": (
        placed(replace(RESUMED, no_solver="no solver")),
        Hold(memory(Placed(), announced=Announced("no solver")), "no solver", event="no solver"),
    ),
    "no solver fits, still": (
        placed(replace(RESUMED, no_solver="no solver"), announced=Announced("no solver")),
        Rest(memory(Placed(), announced=Announced("no solver")), event="no solver"),
    ),
    "Challenges are waited for": (
        placed(replace(RESUMED, challenges=WAITING, unproven=WAITING[3:]), announced=Announced("x")),
        Hold(memory(Placed()), "3.example.org: reason 3; 4.example.org: reason 4"),
    ),
    "many Challenges are waited for": (
        placed(replace(RESUMED, challenges=WAITING, unproven=WAITING)),
        Hold(
            memory(Placed()),
            "0.example.org: reason 0; 1.example.org: reason 1; 2.example.org: reason 2; and 2 more",
        ),
    ),
    "a Challenge that has failed: the CA decides": (
        placed(replace(RESUMED, challenges=FAILED, unproven=FAILED)),
        PollOrder(),
    ),
    "the order has expired": (
        placed(replace(RESUMED, challenges=FAILED, unproven=FAILED, current=at_ca("expired"))),
        Fail("expired", "a.example.org: 404"),
    ),
    "the order is still pending": (
        placed(replace(RESUMED, challenges=FAILED, unproven=FAILED, current=at_ca("pending"))),
        Fail("invalid", "a.example.org: 404"),
    ),
    "all are proven": (placed(PROVEN), Finalize(Placed(is_ready=True))),
    "it is valid immediately": (
        placed(replace(PROVEN, finalized=VALID), Placed(is_ready=True)),
        Download("https://ca.example/cert/1", Finalizing(NOW, polls=0)),
    ),
    "it is being processed": (
        placed(replace(PROVEN, finalized=at_ca("processing")), Placed(is_ready=True), failures=2),
        Rest(memory(Finalizing(NOW), pause=POLL), NOW + 0.1 * SECOND),
    ),
    "it is refused at the end": (
        placed(replace(PROVEN, finalized=at_ca("invalid", error=LIMIT.problem)), Placed(is_ready=True)),
        Fail("invalid", f"no [429 {URN}rateLimited]"),
    ),
    # Finalizing.
    "it is polled": (placed(RESUMED, POLLED), PollOrder()),
    "it is processed": (placed(replace(RESUMED, current=VALID), POLLED), Download(VALID.certificate, POLLED)),
    "it is valid without a certificate": (
        placed(replace(RESUMED, current=at_ca("valid")), POLLED),
        Rest(
            memory(Finalizing(POLLED.since, polls=3), pause=replace(POLL, until=NOW + 0.4 * SECOND)),
            NOW + 0.4 * SECOND,
        ),
    ),
    "it has become ready again": (placed(replace(RESUMED, current=at_ca("ready")), POLLED), Finalize(POLLED)),
    "it is ready, even after that": (
        placed(replace(RESUMED, current=at_ca("ready"), finalized=at_ca("ready")), POLLED),
        Rest(
            memory(Finalizing(POLLED.since, 3, "ready"), pause=replace(POLL, until=NOW + 0.4 * SECOND)),
            NOW + 0.4 * SECOND,
        ),
    ),
    "it has become invalid": (
        placed(replace(RESUMED, current=at_ca("invalid")), POLLED),
        CheckAuthorizations((READ.url,)),
    ),
    "an authorization has expired since": (
        placed(replace(RESUMED, current=at_ca("invalid"), authorizations=EXPIRED), POLLED),
        Fail("errored", f"{GONE}; another Order takes its place", SUPERSEDED),
    ),
    "it has, in the second order of a day": (
        placed(replace(RESUMED, current=at_ca("invalid"), authorizations=EXPIRED, superseded=1), POLLED),
        Fail("invalid", GONE),
    ),
    "the CA has lost it": (
        placed(failing(refused("malformed", status=404))),
        Fail(
            "errored",
            f"no [404 {URN}malformed]; another Order takes its place",
            {names.ACME_PROBLEM: "malformed", **SUPERSEDED},
            True,
        ),
    ),
    "a name is not proven": (
        placed(replace(PROVEN, finalized=at_ca("pending")), Placed(is_ready=True)),
        CheckAuthorizations((READ.url,)),
    ),
    "the CA gave the same order to another Order": (
        known(replace(SENT, placed=at_ca("pending"), before=(ObjectKey("m", "first"), NOW + MINUTE))),
        Hold(
            memory(Unplaced()),
            "the CA has this order for Order m/first, too; it is ordered again when that has ended",
            NOW + MINUTE,
        ),
    ),
    "it is processed for an hour": (
        placed(replace(RESUMED, current=at_ca("processing")), SLOW),
        Hold(
            memory(
                Finalizing(SLOW.since, polls=31),
                pause=Pause(NOW + 12 * MINUTE, None, is_ours=True),
                announced=Announced("the ACME server is processing the order", NOW + 12 * MINUTE),
            ),
            "the ACME server is processing the order; next step at 2026-11-23T12:12:00Z",
            NOW + 12 * MINUTE,
        ),
    ),
    "its state is unknown, and the CA names a time": (
        placed(replace(RESUMED, current=at_ca("review", retry_after=NOW + HOUR)), POLLED),
        Hold(
            memory(
                Finalizing(POLLED.since, polls=3),
                pause=Pause(NOW + HOUR, None, is_ours=False),
                announced=Announced('the ACME server calls the order "review"', NOW + HOUR),
            ),
            'the ACME server calls the order "review"; next step at 2026-11-23T13:00:00Z',
            NOW + HOUR,
        ),
    ),
    # Errors.
    "a name that was not ordered ends it": (
        known(failing(NotOrdered("not ordered"))),
        Fail("errored", "not ordered"),
    ),
    "a signing request that cannot be read ends it": (
        placed(failing(BadCsr("no request"))),
        Fail("errored", "spec.request cannot be used: no request"),
    ),
    "a URL of another server ends it": (
        placed(failing(ForeignUrl("https://x.example/1", SERVER))),
        Fail("errored", str(ForeignUrl("https://x.example/1", SERVER))),
    ),
    "a name that the CA refuses ends it": (
        known(failing(refused("rejectedIdentifier"))),
        Fail(
            "errored",
            f"no [400 {URN}rejectedIdentifier]",
            {names.ACME_PROBLEM: "rejectedIdentifier"},
            True,
        ),
    ),
    **{
        f"{problem}: the predecessor is not named": (
            known(
                failing(refused(problem, status=status), may_replace=True),
                memory(failures=1),
                spec=RENEWING,
            ),
            Rest(memory(Unplaced(replaces_nothing=True), failures=1), NOW),
        )
        for problem, status in {
            "alreadyReplaced": 409,
            "conflict": 409,
            "malformed": 400,
            "notFound": 404,
            "rejectedIdentifier": 400,
            "unauthorized": 403,
            "unheardOf": 422,
        }.items()
    },
    "the account is gone": (placed(failing(refused("accountDoesNotExist"))), DoubtAccount()),
    "the account is closed": (
        known(failing(AccountTrouble(refused("unauthorized").problem, status=403))),
        DoubtAccount(),
    ),
    "a new order is unauthorized": (
        known(failing(refused("unauthorized"))),
        Fail(
            "errored",
            f"no [400 {URN}unauthorized]",
            {names.ACME_PROBLEM: "unauthorized"},
            True,
        ),
    ),
    "the CA does not finalize it": (
        placed(failing(refused("unauthorized", status=403)), Placed(is_ready=True)),
        Fail(
            "errored",
            f"no [403 {URN}unauthorized]",
            {names.ACME_PROBLEM: "unauthorized"},
            True,
        ),
    ),
    "a limit for new orders is reported": (known(failing(LIMIT)), ReportLimit(LIMIT)),
    "after a failure, another member of the set signs": (
        known(replace(failing(LIMIT), recorded=Hold(memory(), "no"), departure=DEPARTURE)),
        Fail(
            "errored",
            "another member signs",
            {names.ACME_SUPERSEDED: "true", names.MEMBER_NOT_BEFORE: "2026-11-23T12:01:00Z"},
        ),
    ),
    "after a failure, it waits": (
        known(replace(failing(LIMIT), recorded=Hold(memory(), "no"))),
        Hold(memory(), "no"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_next_step_follows_from_what_is_known(case: str) -> None:
    snapshot, expected = CASES[case]
    assert next_step(snapshot) == expected


@pytest.mark.parametrize("case", CASES)
def test_deciding_twice_on_one_snapshot_gives_the_same_step(case: str) -> None:
    snapshot, _ = CASES[case]
    assert next_step(snapshot) == next_step(snapshot)


def test_every_step_is_in_the_table() -> None:
    decided = {type(step) for _, step in CASES.values()}
    assert set(Step.__args__) - decided == {RecordFailure, Store}


@pytest.mark.parametrize(
    ("error", "stage", "facts", "failures", "until"),
    [
        (Unreachable("no response"), Unplaced(may_exist=True), {}, 0, SECOND),
        (Unreachable("no response"), Placed(is_ready=True), {}, 3, 8 * SECOND),
        (Unreachable("no response"), POLLED, {}, 30, 10 * MINUTE),
        (refused("serverInternal", status=500), Placed(), {}, 0, SECOND),
        (refused("accountDoesNotExist"), Unplaced(), {"is_distrusted": True}, 0, SECOND),
        (refused("alreadyReplaced"), Unplaced(replaces_nothing=True), {}, 0, SECOND),
        (LIMIT, Unplaced(), {"concerns_others": True}, 0, SECOND),
        (LIMIT, Unplaced(), {"concerns_others": False}, 0, SECOND),
        (LIMIT, Placed(), {}, 0, SECOND),
        (NAMED, Placed(), {}, 5, HOUR),
        (refused("rateLimited", retry_after=NOW - HOUR), Placed(), {}, 5, SECOND),
    ],
)
def test_an_error_that_waiting_mends_is_recorded_and_pauses_the_order(
    error: Unreachable | Refused, stage: Stage, facts: dict[str, Any], failures: int, until: timedelta
) -> None:
    status = BLANK if isinstance(stage, Unplaced) else PENDING
    snapshot = known(failing(error, **facts), memory(stage, failures=failures), status=status)
    step = next_step(snapshot)
    named = error.retry_after if isinstance(error, Refused) else None
    assert isinstance(step, RecordFailure)
    assert step == next_step(snapshot)
    assert (step.error, step.named) == (error, named)
    assert step.is_about_names is (facts.get("concerns_others") is False)
    assert step.annotations[names.ACME_ATTEMPTS] == "2026-11-23T11:59:59Z"
    assert (names.NOT_BEFORE in step.annotations) is (named is not None)
    pause = Pause(NOW + until, NOW, is_ours=named is None)
    complaint = str(error) if isinstance(error, Refused) and not isinstance(stage, Unplaced) else ""
    expected = memory(stage, failures=failures + 1, pause=pause, complaint=complaint)
    assert step.hold.memory == expected
    assert step.hold.until == NOW + until


def certificate(*dns_names: str, duration: timedelta = HOUR) -> tuple[Downloaded, CsrFacts]:
    """A certificate for those names, issued two hours ago, and the request for it."""
    key = keys.generate(keys.KeyPlan(keys.KeyAlgorithm.ECDSA))
    csr = build_csr(CsrPlan(common_name="Root Y", dns_names=dns_names), key)
    pem = signing.self_sign(csr, key=key, duration=duration, is_ca=False, usages=(), now=NOW - 2 * HOUR)
    return Downloaded(pem, read_chain(pem)), read_csr(csr)


def stored(downloaded: Downloaded, csr: CsrFacts, issuer: ResolvedIssuer = ISSUER) -> Step:
    """The step after that download."""
    facts = replace(RESUMED, issuer=issuer, current=VALID, downloaded=downloaded, csr=csr)
    snapshot = placed(facts, POLLED)
    assert next_step(snapshot) == next_step(snapshot)
    return next_step(snapshot)


def test_a_certificate_that_answers_the_request_is_stored() -> None:
    downloaded, csr = certificate("a.example.org", duration=3 * HOUR)
    assert stored(downloaded, csr) == Store(downloaded)


def test_a_missing_preferred_chain_is_reported() -> None:
    downloaded, csr = certificate("a.example.org", duration=3 * HOUR)
    step = stored(downloaded, csr, CHOOSY)
    assert isinstance(step, Store)
    assert 'no chain that "Root X" has issued' in step.event


def test_a_certificate_that_does_not_answer_the_request_is_not_stored() -> None:
    downloaded, csr = certificate("a.example.org")
    other, wider = certificate("a.example.org", "b.example.org", duration=3 * HOUR)
    assert stored(other, csr) == Fail("errored", "the server returned a certificate for another key")
    assert stored(downloaded, csr) == Fail("errored", "the server returned a certificate that has expired")
    fewer = dataclasses.replace(other.chain[0], dns_names=("a.example.org",))
    assert stored(dataclasses.replace(other, chain=(fewer,)), wider) == Fail(
        "errored", "the server returned a certificate without b.example.org"
    )


def test_after_a_restart_the_annotations_show_the_pause() -> None:
    asked = {names.ACME_ATTEMPTS: "2026-11-23T11:59:57Z,2026-11-23T11:59:59Z,2026-11-23T13:00:00Z"}
    order = Order(metadata=msgspec.structs.replace(META, annotations=asked), spec=SPEC)
    assert recalled(order, NOW) == Memory("u", failures=2, pause=Pause(NOW + SECOND, None, is_ours=True))
    named = {**asked, names.NOT_BEFORE: "2026-11-23T12:30:00Z"}
    order = Order(metadata=msgspec.structs.replace(META, annotations=named), spec=SPEC)
    assert recalled(order, NOW).pause == Pause(NOW + 30 * MINUTE, None, is_ours=False)


def test_the_stage_agrees_with_the_order() -> None:
    memories = Memories()
    new = Order(metadata=META, spec=SPEC)
    with_url = msgspec.structs.replace(new, status=PENDING)
    assert memories.of(new, NOW).stage == Unplaced()
    assert memories.of(with_url, NOW).stage == Placed()
    memories.keep(new, memory(Unplaced(may_exist=True)))
    assert memories.of(with_url, NOW).stage == Placed()
    memories.keep(new, memory(POLLED))
    assert memories.of(with_url, NOW).stage == POLLED
    assert memories.of(new, NOW).stage == Unplaced()
