"""One pass over a Challenge: a table of what is known, and what the reconciler does, writes and keeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from certwright.acme.protocol.errors import ForeignUrl, Identifier, Problem, Refused, Unreachable
from certwright.acme.protocol.orders import Authorization
from certwright.acme.protocol.orders import Challenge as Offered
from certwright.acme.solvers.contract import NotYet, Ready, SolverError, Task
from certwright.controllers.acme.challenge_progress import (
    Accepted,
    Prepared,
    Presented,
    Proven,
    Stage,
    Visible,
    Work,
)
from certwright.controllers.acme.challenge_queues import SlotRequest
from certwright.controllers.acme.challenges import ChallengeReconciler, ChallengeTools
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.waits import Pause, Wait
from certwright.issuers.contract import IssuerView
from certwright.kube.api.meta import ObjectMeta
from certwright.resources import names
from certwright.resources.acme import Challenge, ChallengeSpec, ChallengeStatus
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.solver import Solver as SolverSpec
from controllers.acme.passes import Around

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
TASK = Task(type="http-01", identifier="a.example.org", token="t", key="t.k", uid="u")
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
PATIENT = replace(SPEC, solver=SolverSpec(wait_instead_of_self_check="1m"))
META = ObjectMeta(name="c", namespace="n", uid="u")
DELETED = replace(META, deletion_timestamp=NOW)
FINALIZED = replace(DELETED, finalizers=("acme.cert-manager.io/finalizer",))
NAMED = replace(META, annotations={names.NOT_BEFORE: (NOW + HOUR).isoformat()})
BLANK = ChallengeStatus()
SHOWN = ChallengeStatus(state="pending", presented=True)
FINAL = ChallengeStatus(state="valid", presented=True)
URN = "urn:ietf:params:acme:error:"
LIMIT = Refused(Problem(type=f"{URN}rateLimited"), status=429)
NOT_READY = Refused(Problem(type=f"{URN}malformed", detail="no", status=400), status=400)
NO_ACCOUNT = Refused(Problem(type=f"{URN}accountDoesNotExist"), status=400)
FOREIGN = ForeignUrl("https://x/", "https://ca/")
GIVEN_UP = "Given up, because the issuer or the Order has changed"

SHOWING = Presented(NOW - MINUTE)
SEEN = Visible(NOW - MINUTE)
DUE = Accepted(NOW - MINUTE, NOW - SECOND, polls=1, poll_at=NOW)
OURS = Pause(NOW + MINUTE, NOW, is_ours=True)


def authorization(status: str, *, challenge: str = "pending", **changes: Any) -> Authorization:
    """The authorization at the CA."""
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


PENDING, VALID = authorization("pending"), authorization("valid")


@dataclass
class Given:
    """A Challenge, how far this process has come with it, and what the CA, the solver (each by the request's
    name) and the other parts answer."""

    stage: Stage | None = None
    answers: Mapping[str, Any] = field(default_factory=dict)
    status: ChallengeStatus = BLANK
    meta: ObjectMeta = META
    spec: ChallengeSpec = SPEC
    failures: int = 0
    work: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Did:
    """What the pass did, in order; what it changed of the status; how far it has come (None: the work is
    forgotten), and when the Challenge is woken."""

    what: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage | None = None
    wakes: datetime | None = None
    failures: int = 0


class Driver(Around):
    """A `ChallengeReconciler` whose surroundings answer as `given` says."""

    def __init__(self, given: Given) -> None:
        challenge = Challenge(metadata=given.meta, spec=given.spec, status=given.status)
        super().__init__(challenge, given.answers, NOW)
        client = SimpleNamespace(
            directory_url="https://ca/", kid="kid", run=self._run, key=SimpleNamespace(thumbprint="k")
        )
        issuer = ResolvedIssuer(cast(IssuerView, object()), cast(ACMEIssuer, object()), cast(Any, client))
        solver = SimpleNamespace(present=self.later("present"), clean_up=self.later("clean_up"))
        self.solver = cast(Any, solver), cast(Any, object())
        gate = SimpleNamespace(
            admit_continuation=lambda _: self.answer("admit_continuation"),
            ends_pause=lambda *_: self.answer("ends_pause", False),
            record_answer=lambda _: self.log.append("answered"),
            record_failure=lambda _challenge, error, _named: self.log.append("failure"),
        )
        origin = SimpleNamespace(
            problem=lambda *_: self.answer("problem", ""),
            problem_of_clean_up=self.later("", "problem_of_clean_up", ""),
            is_described=lambda _: self.answer("is_described", True),
            order_ended=lambda _: self.answer("order_ended", ""),
        )
        notifies = self.answer("notifies", False)
        tools = ChallengeTools(
            origin=cast(Any, origin),
            resolve_issuer=self.later("", "issuer", issuer),
            find_solver=self.later("", "solver", self.solver),
            circuit_gate=cast(Any, gate),
            wake=lambda _: None,
            enqueue_order=(lambda _: self.log.append("notify")) if notifies else None,
        )
        self.reconciler = ChallengeReconciler(self.informer, self.toolbox, tools, AcmeOptions())
        self.reconciler._status = self.committer
        checks = SimpleNamespace(
            start=lambda _key, _run, *, attempt, flow: self.log.append(f"check {attempt}"),
            peek=lambda _: self.answer("check"),
            pop=lambda _: self.answer("check"),
            forget=lambda _: None,
        )
        self.reconciler.checks = cast(Any, checks)
        if self.answer("slots") == "taken":
            self.reconciler.slots.acquire(SlotRequest(META.key, "o", ("a.example.org", "HTTP-01")))
            other = replace(META, name="other").key
            self.reconciler.slots.release(META.key)
            self.reconciler.slots.acquire(SlotRequest(other, "o", ("a.example.org", "HTTP-01")))
        progress = replace(self.reconciler._tracker.of(self.obj), failures=given.failures)
        if given.stage is not None:
            made = Work(TASK, *self.solver, given.stage, asked_at=NOW - MINUTE)
            progress = replace(progress, work=dataclasses.replace(made, **given.work))
        self.reconciler._tracker.keep(self.obj, progress)

    async def outcome(self) -> Did:
        """Run the pass."""
        result = await self.reconciler.reconcile(self.obj.metadata.key)
        progress = self.reconciler._tracker.of(self.obj)
        stage = progress.work.stage if progress.work is not None else None
        return Did(" ".join(self.log), self.changed_status(), stage, result.wake_at, progress.failures)

    async def _run(self, request: Callable[..., Any], *_arguments: Any) -> Any:
        self.log.append(request.__name__.partition("_")[0])
        return self.answer(self.log[-1], PENDING)

    async def patch(self, _kind: Any, _name: str, _namespace: str, patch: dict[str, Any]) -> Challenge:
        """Record new annotations, and that our finalizer is removed."""
        logged = {"annotations": "annotate", "finalizers": "release"}
        self.log.append(" ".join(logged[name] for name in patch["metadata"] if name in logged))
        return cast(Challenge, self.obj)


PRESENTED = {"state": "pending", "presented": True, "presented_at": NOW - MINUTE}
NOT_SEEN = "Waiting for HTTP-01 challenge propagation: 404; checked again within 10 seconds"
OFFER = "Refused: the ACME server does not offer this challenge for this name at https://ca/authz"

CASES: dict[str, tuple[Given, Did]] = {
    # Before the issuer is known, or it is not ready.
    "an issuer that is no ACME issuer ends it": (
        Given(answers={"issuer": Wait("no ACME", is_final=True)}),
        Did("write", {"state": "errored", "reason": "no ACME"}),
    ),
    "an issuer that is not ready is waited for": (
        Given(answers={"issuer": Wait("not ready", NOW + MINUTE)}),
        Did(
            "write",
            {"state": "pending", "reason": "not ready; next step at 2026-11-22T12:01:00Z"},
            None,
            NOW + MINUTE,
        ),
    ),
    "a failed Order ends it": (
        Given(answers={"order_ended": "ended"}),
        Did("write", {"state": "errored", "reason": "ended"}),
    ),
    "a failed Order ends one whose proof is presented": (
        Given(SHOWING, {"order_ended": "ended"}),
        Did("clean_up write", {"state": "errored", "reason": "ended"}),
    ),
    "a proof that cannot be removed is kept, though the Order has failed": (
        Given(SHOWING, {"order_ended": "ended", "clean_up": SolverError("no")}, failures=1),
        Did("clean_up event CleanUpError", {}, SHOWING, NOW + 2 * SECOND, 2),
    ),
    "one that may be foreign is reported, and stays as it is": (
        Given(answers={"problem": "foreign"}),
        Did("event Refused write", {"reason": "foreign"}),
    ),
    "one that was reported is not reported again": (
        Given(answers={"problem": "foreign"}, status=ChallengeStatus(reason="foreign")),
        Did("write"),
    ),
    "one that this process has worked on has another issuer or Order now": (
        Given(SHOWING, {"problem": "Refused: spec.solver differs"}),
        Did("event Superseded clean_up write", {"reason": f"{GIVEN_UP}: spec.solver differs"}),
    ),
    "the circuit breaker lets it wait": (
        Given(SHOWING, {"admit_continuation": Wait("not asking the CA")}),
        Did("write", {**PRESENTED, "reason": "not asking the CA"}, SHOWING),
    ),
    "a pause is kept": (Given(SHOWING, work={"pause": OURS}), Did("", {}, SHOWING, NOW + MINUTE)),
    "a hurried one ends the pause": (
        Given(SHOWING, {"ends_pause": True}, work={"pause": OURS}),
        Did("check 0", {}, SHOWING),
    ),
    "a time that the CA has named is kept, hurried or not": (
        Given(SHOWING, {"ends_pause": True}, work={"pause": replace(OURS, is_ours=False)}),
        Did("", {}, SHOWING, NOW + MINUTE),
    ),
    "a pause that is over": (
        Given(SHOWING, work={"pause": replace(OURS, until=NOW)}),
        Did("check 0", {}, SHOWING),
    ),
    "a time that the CA has named to an earlier process is kept": (Given(meta=NAMED), Did(wakes=NOW + HOUR)),
    # Presented.
    "one that was read for its Order is presented": (Given(), Did("present check 0", {}, Presented(NOW))),
    "one of an earlier process is compared with the CA": (
        Given(status=SHOWN),
        Did("fetch present check 0", {}, Presented(NOW)),
    ),
    "one that this process has not read is compared with the CA": (
        Given(answers={"is_described": False}),
        Did("fetch present check 0", {}, Presented(NOW)),
    ),
    "a comparison that failed is not taken for one": (
        Given(Prepared(), {"fetch": Unreachable("no response")}, SHOWN, work={"asked_at": None}),
        Did("fetch failure annotate write", {"reason": "no response"}, Prepared(), NOW + SECOND, 1),
    ),
    "one that the CA does not offer is refused": (
        Given(answers={"is_described": False, "fetch": authorization("pending", challenges=())}),
        Did("fetch event Refused write", {"reason": OFFER}),
    ),
    "one that the CA has judged already": (
        Given(status=SHOWN, answers={"fetch": VALID}),
        Did(
            "fetch answered clean_up write",
            {"state": "valid", "presented": False, "reason": "Successfully authorized domain"},
        ),
    ),
    "a presented one is self-checked": (Given(SHOWING), Did("check 0", {}, SHOWING)),
    "a self-check that is not due": (
        Given(replace(SHOWING, checks=2, check_at=NOW + SECOND)),
        Did("", {}, replace(SHOWING, checks=2, check_at=NOW + SECOND), NOW + SECOND),
    ),
    "a failed self-check is reported": (
        Given(SHOWING, {"check": NotYet("404")}),
        Did(
            "write",
            {**PRESENTED, "reason": NOT_SEEN},
            Presented(NOW - MINUTE, 1, NOW + SECOND / 4),
            NOW + SECOND / 4,
        ),
    ),
    "after hours without a self-check that passes, the CA is asked": (
        Given(
            SHOWING,
            {"check": NotYet("404"), "fetch": authorization("expired")},
            work={"asked_at": NOW - 7 * HOUR},
        ),
        Did(
            "fetch answered clean_up write event Failed",
            {"state": "expired", "reason": "the authorization is expired"},
        ),
    ),
    "a wait instead of the self-check": (
        Given(Presented(NOW), spec=PATIENT),
        Did(
            "write",
            {
                **PRESENTED,
                "presented_at": NOW,
                "reason": "Waiting until 2026-11-22T12:01:00Z before the CA is notified "
                "(waitInsteadOfSelfCheck)",
            },
            Presented(NOW),
            NOW + MINUTE,
        ),
    ),
    # Visible.
    **{
        f"the CA is notified {when}": (
            given,
            Did("accept", {}, Accepted(NOW - MINUTE, NOW, 1, NOW + SECOND / 10), NOW + SECOND / 10),
        )
        for when, given in {
            "when a self-check has passed": Given(SHOWING, {"check": Ready()}),
            "when the wait instead of the self-check is over": Given(SHOWING, spec=PATIENT),
            "when there is a slot": Given(SEEN),
        }.items()
    },
    "a visible one without a slot waits": (Given(SEEN, {"slots": "taken"}), Did("", {}, SEEN)),
    "accepted before a crash": (
        Given(SEEN, {"accept": NOT_READY, "fetch": authorization("pending", challenge="processing")}),
        Did("accept fetch", {}, Accepted(NOW - MINUTE, NOW, 1, NOW + SECOND / 10), NOW + SECOND / 10),
    ),
    "proven by another challenge since": (
        Given(SEEN, {"accept": NOT_READY, "fetch": VALID}),
        Did(
            "accept fetch answered clean_up write",
            {"state": "valid", "reason": "Successfully authorized domain"},
        ),
    ),
    "a refusal to accept stands": (
        Given(SEEN, {"accept": NOT_READY}),
        Did(
            "accept fetch answered clean_up write event Failed",
            {"state": "errored", "reason": f"no [400 {URN}malformed]"},
            SEEN,
        ),
    ),
    # Accepted.
    "a poll that is not due": (
        Given(replace(DUE, poll_at=NOW + SECOND)),
        Did("", {}, replace(DUE, poll_at=NOW + SECOND), NOW + SECOND),
    ),
    "a poll without a verdict": (
        Given(DUE),
        Did("fetch", {}, replace(DUE, polls=2, poll_at=NOW + SECOND / 4), NOW + SECOND / 4),
    ),
    "a poll without a verdict, after which the CA names a time": (
        Given(DUE, {"fetch": authorization("pending", retry_after=NOW + HOUR)}),
        Did(
            "fetch annotate write",
            {
                **PRESENTED,
                "state": "processing",
                "processing": True,
                "reason": "Waiting for the CA's verdict; next step at 2026-11-22T13:00:00Z",
            },
            replace(DUE, polls=2, poll_at=NOW + HOUR),
            NOW + HOUR,
        ),
    ),
    "a verdict": (
        Given(
            DUE,
            {
                "fetch": authorization(
                    "invalid",
                    challenges=(
                        Offered(
                            SPEC.url,
                            "http-01",
                            "t",
                            "invalid",
                            Problem(type=f"{URN}dns", detail="no", status=400),
                        ),
                    ),
                )
            },
        ),
        Did(
            "fetch answered clean_up write event Failed",
            {"state": "invalid", "reason": f"Error accepting authorization: no [400 {URN}dns]"},
        ),
    ),
    "a verdict that the API does not know": (
        Given(DUE, {"fetch": authorization("revoked")}),
        Did(
            "fetch answered clean_up write event Failed",
            {"state": "errored", "reason": "the authorization is revoked"},
        ),
    ),
    "a proof that only the Order needs to know": (
        Given(DUE, {"fetch": VALID, "notifies": True}),
        Did("fetch answered clean_up notify", {}, Proven(NOW), NOW + 10 * SECOND),
    ),
    "a proof that could not be removed": (
        Given(DUE, {"fetch": VALID, "notifies": True, "clean_up": SolverError("no")}),
        Did(
            "fetch answered clean_up event CleanUpError write",
            {"state": "valid", "reason": "Successfully authorized domain", "presented": True},
            replace(DUE),
            NOW + SECOND,
        ),
    ),
    "a proof that is not written yet": (Given(Proven(NOW)), Did("", {}, Proven(NOW), NOW + 10 * SECOND)),
    "a proof that is written at last": (
        Given(Proven(NOW - HOUR)),
        Did("write", {"state": "valid", "reason": "Successfully authorized domain"}),
    ),
    # Final, or being deleted.
    "a final one with nothing presented": (Given(SEEN, status=ChallengeStatus(state="valid")), Did()),
    "a final one of an earlier process": (Given(status=FINAL), Did("clean_up write", {"presented": False})),
    "a final one of an earlier process, and perhaps of another author": (
        Given(status=FINAL, answers={"problem_of_clean_up": "foreign"}),
        Did("event CleanUpSkipped"),
    ),
    "a final one of this process": (Given(DUE, status=FINAL), Did("clean_up write", {"presented": False})),
    "a removal that failed is retried": (
        Given(DUE, {"clean_up": SolverError("no")}, FINAL, failures=2),
        Did("clean_up event CleanUpError", {}, DUE, NOW + 4 * SECOND, 3),
    ),
    "a deleted one without our finalizer": (Given(meta=DELETED), Did()),
    "a deleted one that is presented": (Given(SHOWING, meta=FINALIZED), Did("clean_up release")),
    "a deleted one whose proof cannot be removed": (
        Given(SHOWING, {"clean_up": SolverError("no")}, meta=FINALIZED),
        Did("clean_up event CleanUpError", {}, SHOWING, NOW + SECOND, 1),
    ),
    "a deleted one of another author": (
        Given(answers={"problem_of_clean_up": "foreign"}, meta=FINALIZED),
        Did("release"),
    ),
    "a deleted one that is proven": (Given(Proven(NOW), meta=FINALIZED), Did("release")),
    # Errors.
    "an error that ends it removes the proof first": (
        Given(SEEN, {"accept": FOREIGN}),
        Did("accept clean_up write event Failed", {"state": "errored", "reason": str(FOREIGN)}, SEEN),
    ),
    "an authorization that the CA has lost": (
        Given(DUE, {"fetch": Refused(NOT_READY.problem, status=404)}),
        Did(
            "fetch answered clean_up write event Failed",
            {"state": "expired", "reason": f"no [400 {URN}malformed]"},
            DUE,
        ),
    ),
    **{
        f"a solver that fails is built again {when}": (
            Given(
                stage,
                {
                    "present": SolverError("no such zone"),
                    "solver": SolverError("no such zone"),
                    "check": Ready(),
                },
            ),
            Did(
                f"{what} event PresentError write".strip(),
                {"state": "pending", "reason": "Error presenting challenge: no such zone"},
                None,
                NOW + SECOND,
                1,
            ),
        )
        for when, stage, what in (
            ("if it could not be built", None, ""),
            ("if it presents nothing", Prepared(), "present"),
        )
    },
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_pass_does_follows_from_what_is_known(case: str) -> None:
    given, expected = CASES[case]
    assert await Driver(given).outcome() == expected


@pytest.mark.parametrize(
    ("error", "failures", "until", "is_ours"),
    [
        (Unreachable("no response"), 0, SECOND, True),
        (Unreachable("no response"), 3, 8 * SECOND, True),
        (NO_ACCOUNT, 0, SECOND, True),
        (LIMIT, 0, SECOND, True),
        (Refused(LIMIT.problem, status=429, retry_after=NOW + HOUR), 5, HOUR, False),
        (Refused(LIMIT.problem, status=429, retry_after=NOW - HOUR), 0, SECOND, False),
    ],
)
async def test_an_error_that_waiting_mends_pauses_the_challenge(
    error: Unreachable | Refused, failures: int, until: timedelta, is_ours: bool
) -> None:
    driver = Driver(Given(SEEN, {"accept": error}, failures=failures))
    did = await driver.outcome()
    assert did.what == "accept failure annotate write"
    assert (did.wakes, did.failures, did.stage) == (NOW + until, failures + 1, SEEN)
    work = driver.reconciler._tracker.of(driver.obj).work
    assert work is not None
    assert work.pause == Pause(NOW + until, NOW, is_ours=is_ours)
    assert len(driver.reconciler.slots) == 0
