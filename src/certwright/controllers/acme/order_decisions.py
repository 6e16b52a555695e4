"""The next step of an Order, as a pure function of what is known about it.

`next_step` reads a frozen `Snapshot` and returns a `Step`. It neither waits nor changes anything, so that
deciding twice on one snapshot gives the same step. The steps of an Order that meets no error:

| stage | steps | the stage ends with |
|---|---|---|
| each pass | CheckRequest, ResolveIssuer, Resume | |
| Unplaced | CheckPredecessor (renewals), Admit, RecordAttempt, PlaceOrder, ReadAuthorizations | a URL |
| Placed | EnsureChallenges, then Hold until all are proven, Finalize | the CA has the signing request |
| Finalizing | PollOrder, then Rest or Hold until the CA has processed it | a certificate's URL |
| any | Download, Store | state `valid` |
| final | Forget | |
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_never

import msgspec
from msgspec.structs import replace

from certwright.acme.protocol.certificates import Download as Downloaded
from certwright.acme.protocol.errors import AcmeError, Refused
from certwright.acme.protocol.orders import Order as ServerOrder
from certwright.acme.protocol.origins import origin_of
from certwright.acme.protocol.problem import Reaction
from certwright.controllers.acme.announcing import RECURRING, Announced, growing
from certwright.controllers.acme.challenge_plan import full_name
from certwright.controllers.acme.identifiers import names_of_identity
from certwright.controllers.acme.order_requests import NotOrdered
from certwright.controllers.acme.order_state import (
    LONGEST_WAIT,
    OPEN_STATES,
    SHORTEST_WAIT,
    Finalizing,
    Placed,
    Unplaced,
    poll_delay,
    with_attempt,
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
from certwright.controllers.acme.provenance import is_of_another_account
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.retry.backoff import LONGEST_OBEYED
from certwright.kit.outgoing import quote
from certwright.kube.util.durations import doubled
from certwright.pki.certificates import CertificateFacts
from certwright.pki.csr import CsrFacts
from certwright.pki.errors import PkiError
from certwright.resources import migration, names
from certwright.resources.acme import ACMEAuthorization, OrderStatus
from certwright.resources.retry import rfc3339, with_not_before

# For an order that the server processes: at some CAs people review each.
_LONGEST_POLL = timedelta(hours=1)
_MOST_REASONS = 3
# Orders in a day whose certificates another client of the account got, e.g. a second installation.
_MOST_CONTESTED = 10


def next_step(known: Snapshot) -> Step:
    """The next step of an existing Order, whose memory is of the same UID."""
    order, facts = known.order, known.facts
    if order.metadata.deletion_timestamp is not None:
        return Forget()
    if order.status.is_final:
        # "An order whose state is final is never spoken of to the server again."
        return Forget(deletes_challenges=order.status.state == "valid")
    if (departure := facts.departure) is not None:
        # Another member of the set signs; nothing counts as a failure.
        marks = {names.ACME_SUPERSEDED: "true", names.MEMBER_NOT_BEFORE: rfc3339(departure.not_before)}
        return Fail("errored", departure.why, marks)
    if facts.problem is None:
        return CheckRequest()
    if facts.problem:
        # Its owner's appearance or approval wakes it.
        return _wait(known, Wait(facts.problem))
    if not facts.is_migrated and (former := migration.order_annotations(order)):
        return Migrate(former)
    match facts.issuer:
        case None:
            return ResolveIssuer()
        case Wait(is_final=True, why=why):
            return Fail("errored", why)
        case Wait() as wait:
            return _wait(known, wait)
        case ResolvedIssuer() as issuer:
            return _with_issuer(known, issuer)
        case _:
            assert_never(facts.issuer)


def _with_issuer(known: Snapshot, issuer: ResolvedIssuer) -> Step:
    order, facts = known.order, known.facts
    if facts.recorded is not None:
        return facts.recorded
    if facts.error is not None:
        return _failed(known, facts.error)
    account = {names.ACME_SERVER: issuer.client.directory_url, names.ACME_ACCOUNT: issuer.client.kid}
    if is_of_another_account(order.metadata.annotations, account) or facts.is_served is False:
        return _superseded(known, issuer)
    if not facts.is_resumed:
        memory = known.memory.at_account(issuer.client.directory_url + issuer.client.kid)
        pause = memory.pause
        if pause is not None and known.now < pause.until and not facts.is_hurried:
            return Rest(memory, pause.until)
        return Resume(replace(memory, pause=None))
    if order.status.url and names.ACME_SERVER not in order.metadata.annotations and facts.is_served is None:
        return CheckServer()
    if known.memory.failures:
        # An error is decided on above, so that the steps below end a pass without one.
        known = replace(known, memory=replace(known.memory, failures=0))
    match known.memory.stage:
        case Unplaced() as stage:
            return _unplaced(known, stage)
        case Placed():
            return _placed(known, issuer)
        case Finalizing():
            return _finalizing(known, issuer)
        case _:
            assert_never(known.memory.stage)


def _unplaced(known: Snapshot, stage: Unplaced) -> Step:
    facts, spec = known.facts, known.order.spec
    if facts.before is not None:
        other, until = facts.before
        why = f"the CA has this order for Order {other}, too; it is ordered again when that has ended"
        return Hold(replace(known.memory, stage=replace(stage, may_exist=False)), why, until)
    if facts.placed is not None:
        return ReadAuthorizations(_status_of(known.order.status, facts.placed), is_new=True)
    if facts.limit is not None:
        return _wait(known, facts.limit)
    if spec.replaces and facts.may_replace is None:
        return CheckPredecessor()
    replaces = spec.replaces if facts.may_replace and not stage.replaces_nothing else ""
    if not facts.is_admitted:
        return Admit(bool(replaces))
    if facts.asked_at is None:
        return RecordAttempt()
    born = known.order.metadata.creation_timestamp
    return PlaceOrder(replaces, stage.may_exist or born is None or born < known.began_at)


def _status_of(status: OrderStatus, placed: ServerOrder) -> OrderStatus:
    """The status once the order exists; its authorizations are known by their URLs only."""
    return msgspec.structs.replace(
        status,
        url=placed.url,
        finalize_url=placed.finalize,
        authorizations=tuple(ACMEAuthorization(url=url) for url in placed.authorizations),
        state=placed.status if placed.status in OPEN_STATES else "pending",
        reason="",
    )


def _placed(known: Snapshot, issuer: ResolvedIssuer) -> Step:
    facts, status = known.facts, known.order.status
    if not facts.is_described and any(
        not authorization.identifier for authorization in status.authorizations
    ):
        return ReadAuthorizations(status)
    if facts.no_solver:
        return _wait(known, Wait(facts.no_solver, facts.no_solver_until), event=facts.no_solver)
    if facts.challenges is None:
        return EnsureChallenges()
    if any(challenge.status.is_final and challenge.status.state != "valid" for challenge in facts.challenges):
        return PollOrder() if facts.current is None else _unprovable(known, facts.current)
    if facts.unproven:
        return Hold(replace(known.memory, announced=None), _reasons(known))
    if facts.finalized is None:
        return Finalize(Placed(is_ready=True))
    return _answered(known, issuer, facts.finalized)


def _reasons(known: Snapshot) -> str:
    """What the Challenges wait for."""
    waiting = [challenge for challenge in known.facts.unproven if challenge.status.reason]
    reason = "; ".join(
        f"{challenge.spec.dns_name}: {challenge.status.reason}" for challenge in waiting[:_MOST_REASONS]
    )
    more = len(waiting) - _MOST_REASONS
    return f"{reason}; and {more} more" if more > 0 else reason


def _unprovable(known: Snapshot, current: ServerOrder) -> Step:
    """The Challenges give the reason; the server decides whether the order has failed."""
    challenges = known.facts.challenges or ()
    failed = [
        challenge
        for challenge in challenges
        if challenge.status.is_final and challenge.status.state != "valid"
    ]
    why = "; ".join(f"{challenge.spec.dns_name}: {challenge.status.reason}" for challenge in failed)
    state = current.status if current.status in ("invalid", "expired") else "invalid"
    fails = Fail(state, why or _words(current))
    is_lost = all(challenge.status.state == "expired" for challenge in failed)
    return _order_again(known, fails, at_most=1) if is_lost else fails


def _finalizing(known: Snapshot, issuer: ResolvedIssuer) -> Step:
    facts = known.facts
    if facts.finalized is not None:
        return _answered(known, issuer, facts.finalized)
    if facts.current is None:
        return PollOrder()
    if facts.current.status == "ready":
        return Finalize(known.memory.stage)
    return _answered(known, issuer, facts.current)


def _answered(known: Snapshot, issuer: ResolvedIssuer, current: ServerOrder) -> Step:
    """The CA has the signing request, or had it before."""
    facts, stage = known.facts, known.memory.stage
    finalizing = stage if isinstance(stage, Finalizing) else Finalizing(known.now, polls=0)
    if facts.refusal is not None:
        finalizing = replace(finalizing, is_contested=True)
    if current.status == "valid" and current.certificate:
        if facts.downloaded is None or facts.csr is None:
            return Download(current.certificate, finalizing)
        return _downloaded(known, issuer.spec.preferred_chain, facts.downloaded, facts.csr)
    if current.status in ("pending", "invalid") and current.error is None and facts.authorizations is None:
        # A name is not proven, or not any more: the authorizations show which one.
        former = (authorization.url for authorization in known.order.status.authorizations)
        return CheckAuthorizations(current.authorizations or tuple(former))
    if current.status == "invalid":
        words = (known.memory.complaint, _words(current) + _unproven(known))
        fails = Fail("invalid", "; ".join(filter(None, words)))
        # All names were proven: an authorization has expired since.
        return fails if current.error is not None else _order_again(known, fails, at_most=1)
    return _poll_later(known, current, finalizing)


def _unproven(known: Snapshot) -> str:
    """The names without a valid authorization, as the end of a sentence."""
    waiting = [item for item in known.facts.authorizations or () if item.initial_state != "valid"]
    named = [f"{full_name(item)} is {item.initial_state or 'unknown'}" for item in waiting[:_MOST_REASONS]]
    return f": {', '.join(named)}" if named else ""


def _poll_later(known: Snapshot, current: ServerOrder, before: Finalizing) -> Step:
    """Poll an order that the server processes, or whose state RFC 8555 does not define."""
    now = known.now
    since = now - before.since
    delay = growing(since, at_least=poll_delay(before.polls), at_most=_LONGEST_POLL)
    until = max(now + delay, current.retry_after or now)
    state = current.status if current.status in OPEN_STATES else "processing"
    memory = replace(
        known.memory,
        stage=replace(before, polls=before.polls + 1, state=state),
        pause=Pause(until, None, is_ours=current.retry_after is None),
    )
    if since + (until - now) < RECURRING:
        return Rest(memory, until)
    why = "the ACME server is processing the order"
    if current.status != "processing":
        why = f'the ACME server calls the order "{quote(current.status, 40)}"{_unproven(known)}'
    return _announce(replace(known, memory=memory), Announced(why, until), until)


def _downloaded(known: Snapshot, preferred: str, downloaded: Downloaded, csr: CsrFacts) -> Step:
    wrong = wrong_certificate(downloaded.chain[0], csr, known.now)
    result = known.facts.verification
    if not wrong and result is not None and result.refusal:
        wrong = f"the server returned a certificate that no client accepts: {result.refusal}"
    if wrong:
        stage, fails = known.memory.stage, Fail("errored", wrong)
        is_contested = isinstance(stage, Finalizing) and stage.is_contested
        return _order_again(known, fails, at_most=_MOST_CONTESTED) if is_contested else fails
    if not preferred or downloaded.ends_with(preferred):
        return Store(downloaded)
    event = (
        f'The server offers no chain that "{preferred}" has issued (spec.acme.preferredChain of the issuer); '
        "its default chain is used"
    )
    return Store(downloaded, event)


def wrong_certificate(certificate: CertificateFacts, csr: CsrFacts, now: datetime) -> str:
    """Why the certificate must not be used, as a sentence; empty: it may."""
    if certificate.public_key_der != csr.public_key_der:
        return "the server returned a certificate for another key"
    missing = names_of_identity(csr) - names_of_identity(certificate)
    if missing:
        listed = ", ".join(sorted(name.value for name in missing))
        return f"the server returned a certificate without {listed}"
    if certificate.not_after <= now:
        return "the server returned a certificate that has expired"
    return ""


def _order_again(known: Snapshot, fails: Fail, *, at_most: int) -> Step:
    """Give up an Order that the CA has not refused: it has lost the order, or given the order's certificate
    to another client of the account. Its request makes the next one immediately, which is no failure; an
    Order fails after `at_most` such ones in a day."""
    if known.facts.superseded >= at_most:
        return fails
    reason = f"{fails.reason}; another Order takes its place"
    return Fail("errored", reason, {**fails.annotations, names.ACME_SUPERSEDED: "true"}, fails.is_answered)


def _superseded(known: Snapshot, issuer: ResolvedIssuer) -> Step:
    """End an Order of a server or account that the issuer no longer uses: no other server knows it, and no
    other account may read it. Its request makes the next one immediately (`RequestOrders`), and nothing
    counts as a failure, because the annotation is written first."""
    annotations = known.order.metadata.annotations
    if annotations.get(names.ACME_SUPERSEDED) == "true":
        return Fail("errored", "the issuer's profile or duration has changed; another Order takes its place")
    former = annotations.get(names.ACME_SERVER) or origin_of(known.order.status.url) or "another server"
    if former == issuer.client.directory_url:
        former = f"account {annotations.get(names.ACME_ACCOUNT, '')}"
    name = f'{issuer.view.kind} "{issuer.view.name}"'
    reason = f"{name} no longer uses {former}, where this order is; another Order takes its place"
    return Fail("errored", reason, {names.ACME_SUPERSEDED: "true"})


def _failed(known: Snapshot, error: AcmeError | NotOrdered | PkiError) -> Step:
    """A request to the CA has failed: the type of the error decides."""
    match error:
        case NotOrdered():
            return Fail("errored", str(error))
        case PkiError():
            return Fail("errored", f"spec.request cannot be used: {error}")
        case Refused():
            return _refused(known, error)
        case AcmeError():
            fails = error.reaction is Reaction.OUR_MISTAKE
            return Fail("errored", str(error)) if fails else _record_failure(known, error, None)
        case _:
            assert_never(error)


def _refused(known: Snapshot, error: Refused) -> Step:
    facts, memory, reaction = known.facts, known.memory, error.reaction
    stage, is_unplaced = memory.stage, not known.order.status.url
    is_about_content = 400 <= error.status < 500 and reaction not in (Reaction.WAIT, Reaction.ACCOUNT)
    # Pebble's answer about a certificate whose order it does not find is a serverInternal.
    fails_repeatedly = error.status >= 500 and memory.failures > 0
    if (
        facts.may_replace
        and (is_about_content or fails_repeatedly)
        and not error.is_limit
        and isinstance(stage, Unplaced)
        and not stage.replaces_nothing
    ):
        # CAs refuse `replaces` with many types. Without it the order counts against the CA's limits: they are
        # asked first.
        return Rest(replace(memory, stage=replace(stage, replaces_nothing=True)), known.now)
    if reaction is Reaction.ACCOUNT and not facts.is_distrusted:
        return DoubtAccount()
    if reaction in (Reaction.ORDER_FAILS, Reaction.OUR_MISTAKE):
        fails = Fail("errored", error.in_full, {names.ACME_PROBLEM: error.problem.name}, is_answered=True)
        is_lost = not is_unplaced and error.is_gone
        return _order_again(known, fails, at_most=1) if is_lost else fails
    if is_unplaced and error.is_limit and facts.concerns_others is None:
        return ReportLimit(error)
    return _record_failure(known, error, error.retry_after)


def _record_failure(known: Snapshot, error: AcmeError, named: datetime | None) -> Step:
    """Wait after a failure; `named`: until when, by the CA."""
    now, order, facts = known.now, known.order, known.facts
    failures = known.memory.failures + 1
    until = now + doubled(SHORTEST_WAIT, failures, cap=LONGEST_WAIT)
    annotations = with_attempt(order, facts.asked_at or now)
    if named is not None:
        until = max(min(named, now + LONGEST_OBEYED), now + SHORTEST_WAIT)
        annotations[names.NOT_BEFORE] = until.astimezone(UTC).isoformat()
        reason = with_not_before(str(error), until)
    else:
        reason = Announced.of(str(error), until, now).text
    pause = Pause(until, now, is_ours=named is None)
    complaint = str(error) if order.status.url and isinstance(error, Refused) else ""
    memory = replace(known.memory, failures=failures, pause=pause, announced=None, complaint=complaint)
    return RecordFailure(
        error=error,
        annotations=annotations,
        named=named,
        is_about_names=facts.concerns_others is False,
        hold=Hold(memory, reason, until),
    )


def _wait(known: Snapshot, wait: Wait, *, event: str = "") -> Step:
    if wait.is_brief:
        return Rest(known.memory, wait.until)
    announced = Announced.of(wait.why, None if wait.names_time else wait.until, known.now)
    return _announce(known, announced, wait.until, event=event)


def _announce(known: Snapshot, announced: Announced, until: datetime | None, *, event: str = "") -> Step:
    if not announced.is_news(known.memory.announced, known.now):
        return Rest(known.memory, until, event)
    return Hold(replace(known.memory, announced=announced), announced.text, until, event)


def _words(current: ServerOrder) -> str:
    if current.error is not None:
        return current.error.sentence_with_urn
    return f"the server calls the order {current.status}"
