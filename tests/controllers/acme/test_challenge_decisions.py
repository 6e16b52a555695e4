"""The next step of a Challenge: a table of what is known, and the step that follows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from certwright.acme.protocol.client import AcmeClient
from certwright.acme.protocol.errors import ForeignUrl, Identifier, Problem, Refused, Unreachable
from certwright.acme.protocol.orders import Authorization
from certwright.acme.protocol.orders import Challenge as Offered
from certwright.acme.solvers.contract import Check, NotYet, Ready, Solver, SolverError, Task
from certwright.controllers.acme.announcing import Announced
from certwright.controllers.acme.challenge_decisions import next_step
from certwright.controllers.acme.challenge_state import (
    Accepted,
    Memory,
    Prepared,
    Presented,
    Proven,
    Stage,
    Visible,
    Work,
)
from certwright.controllers.acme.challenge_steps import (
    Accept,
    AcquireSlot,
    Admit,
    CheckAuthor,
    Compare,
    Enter,
    Facts,
    Fail,
    Hold,
    NotifyOrder,
    Poll,
    Prepare,
    Present,
    Refuse,
    RemoveFinalizer,
    RemoveProof,
    ResolveIssuer,
    Rest,
    Settle,
    Snapshot,
    StartCheck,
    Step,
)
from certwright.controllers.acme.pause import Pause
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.acme.solver_factory import Means
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.acme import Challenge, ChallengeSpec, ChallengeStatus
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver as SolverSpec

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TASK = Task(type="http-01", identifier="a.example.org", token="t", key="t.k", uid="u")
# Decisions neither run a solver nor ask the CA.
MEANS = Means(cast(Solver, object()), cast(Check, object()))
ISSUER = ResolvedIssuer(cast(IssuerView, object()), cast(ACMEIssuer, object()), cast(AcmeClient, object()))

SPEC = ChallengeSpec(
    url="https://ca/chall",
    authorization_url="https://ca/authz",
    dns_name="a.example.org",
    type="HTTP-01",
    token="t",
    key="t.k",
    solver=SolverSpec(),
    issuer_ref=IssuerReference(name="acme"),
)
PATIENT = msgspec.structs.replace(SPEC, solver=SolverSpec(wait_instead_of_self_check="1m"))
META = ObjectMeta(name="c", namespace="n", uid="u")
DELETED = msgspec.structs.replace(META, deletion_timestamp=NOW)
FINALIZED = msgspec.structs.replace(DELETED, finalizers=("acme.cert-manager.io/finalizer",))
BLANK = ChallengeStatus()
NOTHING = Facts()
SHOWN = ChallengeStatus(state="pending", presented=True)
READY_TO_ASK = Facts(issuer=ISSUER, is_described=True, is_admitted=True)
WITH_SLOT = replace(READY_TO_ASK, has_slot=True)
LIMIT = Refused(Problem(type="urn:ietf:params:acme:error:rateLimited"), status=429)
NOT_READY = Refused(Problem(type="urn:ietf:params:acme:error:malformed", detail="no"), status=400)
NOT_YET = NotYet("404")


def work(stage: Stage, **changes: Any) -> Work:
    """The state of this process, which has asked the CA a minute ago."""
    return Work(TASK, MEANS, stage, **{"asked_at": NOW - MINUTE, **changes})


def authorization(status: str, *, challenge: str = "pending", **changes: Any) -> Authorization:
    """What the CA calls the authorization."""
    offered = Offered(SPEC.url, "http-01", "t", challenge)
    return Authorization(
        **{
            "url": SPEC.authorization_url,
            "status": status,
            "identifier": Identifier("dns", "a.example.org"),
            "challenges": (offered,),
            **changes,
        }
    )


def known(
    facts: Facts = NOTHING,
    current: Work | None = None,
    *,
    status: ChallengeStatus = BLANK,
    meta: ObjectMeta = META,
    spec: ChallengeSpec = SPEC,
    **changes: Any,
) -> Snapshot:
    """A snapshot at NOW."""
    challenge = Challenge(metadata=meta, spec=spec, status=status)
    memory = Memory("u", work=current, failures=changes.pop("failures", 0))
    return Snapshot(challenge=challenge, memory=memory, now=NOW, **{"facts": facts, **changes})


SHOWING = Presented(NOW - MINUTE)
SEEN = Visible(NOW - MINUTE)
DUE = Accepted(NOW - MINUTE, NOW - SECOND, polls=1, poll_at=NOW)
CASES: dict[str, tuple[Snapshot, Step]] = {
    "a new one needs its issuer": (known(), ResolveIssuer()),
    "an issuer that is no ACME issuer ends it": (
        known(Facts(issuer=Wait("no ACME", is_final=True))),
        Settle(state="errored", reason="no ACME"),
    ),
    "a failed Order ends it": (known(Facts(order_ended="ended")), Settle(state="errored", reason="ended")),
    "a failed Order ends one whose proof is presented": (
        known(Facts(order_ended="ended"), work(SHOWING)),
        RemoveProof(),
    ),
    "one that may be foreign is reported": (
        known(Facts(issuer=ISSUER, problem="foreign")),
        Refuse("foreign"),
    ),
    "one that this process has worked on has another issuer or Order now": (
        known(Facts(issuer=ISSUER, problem="Refused: spec.solver differs"), work(SHOWING)),
        Refuse("Given up, because the issuer or the Order has changed: spec.solver differs", has_worked=True),
    ),
    "one that is refused stays as it is": (
        known(Facts(issuer=ISSUER, problem="foreign", refused="foreign")),
        Settle(reason="foreign"),
    ),
    "one with an issuer asks the circuit breaker": (known(Facts(issuer=ISSUER)), Admit()),
    "a pause is kept": (
        known(Facts(issuer=ISSUER), work(SHOWING, pause=Pause(NOW + MINUTE, NOW, is_ours=True))),
        Rest(NOW + MINUTE),
    ),
    "a hurried one ends the pause": (
        known(
            Facts(issuer=ISSUER, is_hurried=True), work(SHOWING, pause=Pause(NOW + MINUTE, NOW, is_ours=True))
        ),
        Admit(),
    ),
    "a pause that is over": (
        known(Facts(issuer=ISSUER), work(SHOWING, pause=Pause(NOW, NOW, True))),
        Admit(),
    ),
    "the solver is built": (known(READY_TO_ASK), Prepare()),
    "one that was read for its Order is presented": (known(READY_TO_ASK, work(Prepared())), Present()),
    "one of an earlier process is compared with the CA": (
        known(READY_TO_ASK, work(Prepared(), asked_at=None), status=SHOWN),
        Compare(),
    ),
    "one that the CA does not offer is refused": (
        known(replace(READY_TO_ASK, compared=authorization("pending", challenges=())), work(Prepared())),
        Refuse("Refused: the ACME server does not offer this challenge for this name at https://ca/authz"),
    ),
    "one that the CA has judged already": (
        known(replace(READY_TO_ASK, compared=authorization("valid")), work(Prepared())),
        RemoveProof(keeps_slot=True, is_answered=True),
    ),
    "a presented one is self-checked": (known(READY_TO_ASK, work(SHOWING)), StartCheck(0)),
    "a self-check that is not due": (
        known(READY_TO_ASK, work(replace(SHOWING, checks=2, check_at=NOW + SECOND))),
        Rest(NOW + SECOND),
    ),
    "a self-check has failed": (
        known(READY_TO_ASK, work(SHOWING), check=NOT_YET),
        Enter(Presented(NOW - MINUTE, 1, NOW + SECOND / 4), NOT_YET),
    ),
    "a failed self-check is reported": (
        known(replace(READY_TO_ASK, not_yet=NOT_YET), work(replace(SHOWING, checks=1, check_at=NOW))),
        Hold(
            announced=Announced(
                "Waiting for HTTP-01 challenge propagation: 404; checked again within 10 seconds"
            ),
            until=NOW,
        ),
    ),
    "after hours without a self-check that passes, the CA is asked": (
        known(replace(READY_TO_ASK, not_yet=NOT_YET), work(SHOWING, asked_at=NOW - 7 * HOUR)),
        Poll(),
    ),
    "a self-check has passed": (known(READY_TO_ASK, work(SHOWING), check=Ready()), Enter(SEEN)),
    "a wait instead of the self-check is over": (
        known(READY_TO_ASK, work(SHOWING), spec=PATIENT),
        Enter(SEEN),
    ),
    "a visible one needs a slot": (known(READY_TO_ASK, work(SEEN)), AcquireSlot()),
    "a visible one without a slot waits": (
        known(replace(READY_TO_ASK, has_slot=False), work(SEEN)),
        Rest(),
    ),
    "the CA is notified": (known(WITH_SLOT, work(SEEN)), Accept()),
    "a refusal to accept is looked up": (known(replace(WITH_SLOT, refusal=NOT_READY), work(SEEN)), Poll()),
    "accepted before a crash": (
        known(
            replace(
                WITH_SLOT, refusal=NOT_READY, authorization=authorization("pending", challenge="processing")
            ),
            work(SEEN),
        ),
        Enter(Accepted(NOW - MINUTE, NOW)),
    ),
    "a refusal to accept stands": (
        known(replace(WITH_SLOT, refusal=NOT_READY, authorization=authorization("pending")), work(SEEN)),
        Fail(NOT_READY),
    ),
    "the first poll is planned": (
        known(WITH_SLOT, work(Accepted(NOW, NOW)), first_poll=SECOND / 2),
        Rest(NOW + SECOND / 2, Accepted(NOW, NOW, 1, NOW + SECOND / 2)),
    ),
    "a poll that is not due": (
        known(WITH_SLOT, work(replace(DUE, poll_at=NOW + SECOND))),
        Rest(NOW + SECOND),
    ),
    "a poll that is due": (known(WITH_SLOT, work(DUE)), Poll()),
    "a verdict": (
        known(replace(WITH_SLOT, authorization=authorization("invalid")), work(DUE)),
        RemoveProof(keeps_slot=True, is_answered=True),
    ),
    "a proof that only the Order needs to know": (
        known(
            replace(WITH_SLOT, authorization=authorization("valid"), is_removed=True),
            work(DUE),
            notifies_order=True,
        ),
        NotifyOrder(Proven(NOW), NOW + 10 * SECOND),
    ),
    "a proof that could not be removed": (
        known(replace(WITH_SLOT, authorization=authorization("valid"), is_removed=False), work(DUE)),
        Settle(
            state="valid",
            reason="Successfully authorized domain",
            is_presented=True,
            retry_at=NOW + SECOND,
            forgets=False,
        ),
    ),
    "a failed verdict": (
        known(replace(WITH_SLOT, authorization=authorization("revoked"), is_removed=True), work(DUE)),
        Settle(
            state="errored",
            reason="the authorization is revoked",
            event="the authorization is revoked",
        ),
    ),
    "a proof that is not written yet": (known(Facts(), work(Proven(NOW))), Rest(NOW + 10 * SECOND)),
    "a proof that is written at last": (
        known(Facts(), work(Proven(NOW - HOUR))),
        Settle(state="valid", reason="Successfully authorized domain"),
    ),
    "a final one with nothing presented": (
        known(status=ChallengeStatus(state="valid")),
        Rest(releases=True, forgets=True),
    ),
    "a final one of an earlier process": (
        known(status=ChallengeStatus(state="valid", presented=True)),
        CheckAuthor(),
    ),
    "a final one of this process": (
        known(Facts(), work(DUE), status=ChallengeStatus(state="valid", presented=True)),
        RemoveProof(),
    ),
    "a final one whose proof is removed": (
        known(Facts(is_removed=True), work(DUE), status=ChallengeStatus(state="valid", presented=True)),
        Settle(),
    ),
    "a removal that failed is retried": (
        known(
            Facts(is_removed=False),
            work(DUE),
            status=ChallengeStatus(state="valid", presented=True),
            failures=2,
        ),
        Rest(NOW + 4 * SECOND, is_failure=True),
    ),
    "a deleted one without our finalizer": (known(meta=DELETED), Rest(releases=True)),
    "a deleted one that is presented": (known(Facts(), work(SHOWING), meta=FINALIZED), RemoveProof()),
    "a deleted one of another author": (known(Facts(may_be_foreign=True), meta=FINALIZED), RemoveFinalizer()),
    "a deleted one whose proof is removed": (
        known(Facts(is_removed=True), work(SHOWING), meta=FINALIZED),
        RemoveFinalizer(),
    ),
    "a deleted one that is proven": (known(Facts(), work(Proven(NOW)), meta=FINALIZED), RemoveFinalizer()),
    "an error that ends it removes the proof first": (
        known(replace(WITH_SLOT, error=ForeignUrl("https://x/", "https://ca/")), work(SEEN)),
        RemoveProof(),
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


@pytest.mark.parametrize(
    ("error", "failures", "until", "is_ours"),
    [
        (Unreachable("no response"), 0, SECOND, True),
        (Unreachable("no response"), 3, 8 * SECOND, True),
        (LIMIT, 0, SECOND, True),
        (Refused(LIMIT.problem, status=429, retry_after=NOW + HOUR), 5, HOUR, False),
        (Refused(LIMIT.problem, status=429, retry_after=NOW - HOUR), 0, SECOND, False),
    ],
)
def test_an_error_that_waiting_mends_pauses_the_challenge(
    error: Unreachable | Refused, failures: int, until: timedelta, is_ours: bool
) -> None:
    step = next_step(known(replace(WITH_SLOT, error=error), work(SEEN), failures=failures))
    assert isinstance(step, Hold)
    assert (step.until, step.is_failure, step.releases) == (NOW + until, True, True)
    assert step.pause == Pause(NOW + until, NOW, is_ours=is_ours)


def test_a_solver_that_fails_is_built_again_unless_it_presents_something() -> None:
    facts = replace(READY_TO_ASK, error=SolverError("no such zone"))
    steps = [next_step(known(facts, current)) for current in (None, work(Prepared()), work(SHOWING))]
    assert [step.forgets for step in steps if isinstance(step, Hold)] == [False, True, False]
    assert {step.event for step in steps if isinstance(step, Hold)} == {
        "Error presenting challenge: no such zone"
    }
