"""The member of an IssuerSet that signs a request: the first member that can, in the order of the set.

A request stays with its member while the member works, and as long as its Order exists there. It fails over
for failures that the circuit breaker counts as the issuer's, and for rate limits; never for a failure about
its names. An Order that the CA has accepted is given up only after the CA has been failing for a while.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from certwright.controllers.backoff import LONGEST_OBEYED
from certwright.controllers.cache.caches import Caches, signer_reference
from certwright.controllers.cache.indexes import awaits_signature
from certwright.controllers.cache.issuer_sets import AnySet, members_of
from certwright.controllers.cache.shard_filter import owning_request
from certwright.controllers.issuer_gate import IssuerGate, applicant_of, key_of
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.issuers.table import kind_of
from certwright.kube.api import conditions
from certwright.resources import names, reasons
from certwright.resources.acme import Order
from certwright.resources.issuer import read_member
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest
from certwright.resources.retry import parse_moment


class Failover(NamedTuple):
    """An Order is given up for another member: the reason, and until when the present member is avoided."""

    why: str
    not_before: datetime


FindFailover = Callable[[Order, bool, datetime | None], Awaitable[Failover | datetime | None]]
"""See `Members.find_failover`."""

AVOIDED_FOR: Final = timedelta(minutes=1)
"""How long a request is not sent again to a member that failed it."""
PATIENCE: Final = timedelta(minutes=10)
"""How long a member may be failing until the orders that it has taken are given up."""
# Shorter waits for a rate limit are not worth another CA.
_SHORT_WAIT: Final = timedelta(minutes=1)
# Since when an issuer that does not exist cannot sign.
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)

Forbids = Callable[[IssuerReference, CertificateRequest], Awaitable[str]]
"""Why CAA records forbid that member to issue for the request, in a sentence; empty: they do not, as far as
known."""


class MemberProblem(NamedTuple):
    """Why a member cannot sign, as the end of a sentence, and the fix; `since` when, if known.
    `is_unchecked`: the check of the issuer follows immediately, and wakes the request and the set."""

    why: str
    fix: str = ""
    since: datetime | None = None
    is_unchecked: bool = False


class NoMember(NamedTuple):
    """No member can sign a request now: the Event's reason, a sentence, and when to try again (None: when
    something changes). `is_announced` False: the wait ends before it would be read."""

    reason: str
    message: str
    again_at: datetime | None = None
    is_announced: bool = True


def display_name(member: IssuerReference) -> str:
    """The member in a sentence: `ClusterIssuer "letsencrypt"`."""
    return f'{member.kind_or_default} "{member.name}"'


async def _forbids_nothing(member: IssuerReference, request: CertificateRequest) -> str:
    del member, request
    return ""


class Members:
    """The members of IssuerSets, and the choice of one for each request. `kinds` are the kinds of issuers
    that sign here."""

    def __init__(
        self,
        caches: Caches,
        issuers: KnownIssuers,
        gate: IssuerGate,
        *,
        kinds: Collection[str],
        now: Callable[[], datetime],
        forbids: Forbids = _forbids_nothing,
    ) -> None:
        self._caches = caches
        self._issuers = issuers
        self._gate = gate
        self._kinds = kinds
        self._now = now
        self._forbids = forbids

    def problem_of(self, member: IssuerReference, namespace: str) -> MemberProblem | None:
        """Why a member of a set in that namespace signs nothing now; None: it works, or may be tried."""
        state, issuer = self._issuers.find(member, namespace), self._issuers.object_of(member, namespace)
        if state is None or issuer is None:
            where = f" in namespace {namespace}" if member.kind_or_default == "Issuer" else ""
            return MemberProblem(f"does not exist{where}", "create it or remove it from the set", _LONG_AGO)
        kind = kind_of(state.view.spec)
        if kind.lower() not in self._kinds:
            return MemberProblem("is of a type that this process does not sign for", "see --controllers")
        if state.ready is None:
            return MemberProblem("has not been checked yet", is_unchecked=True)
        if not state.ready:
            ready = conditions.find(issuer.status.conditions, reasons.READY)
            since = ready.last_transition_time if ready is not None else None
            why = f"is not ready: {state.message}" if state.message else "is not ready"
            return MemberProblem(why, since=since)
        breaker = self._gate.breaker_of(member, namespace)
        if breaker is not None and breaker.is_open and breaker.probe_at is not None:
            return MemberProblem("is failing", since=breaker.opened_at)
        return None

    async def choose(
        self, request: CertificateRequest, *, without: IssuerReference | None = None
    ) -> IssuerReference | NoMember:
        """The member that signs the request, except `without`."""
        reference, namespace = request.spec.issuer_ref, request.metadata.namespace
        issuer_set = self._caches.sets.find(reference, namespace)
        if issuer_set is None:
            text = f'{reference.kind.lower()}.{reference.group} "{reference.name}" not found'
            return NoMember("IssuerNotFound", f'Referenced "{reference.kind}" not found: {text}')
        if without is None and (fixed := self._fixed_member(request, issuer_set)) is not None:
            return fixed
        problems: list[str] = []
        moments: list[datetime] = []
        forbidden: list[IssuerReference] = []
        for member in self._in_order(request, issuer_set):
            if without is not None and member.same_issuer(without):
                continue
            problem = self.problem_of(member, namespace)
            if problem is not None and problem.is_unchecked:
                return NoMember("IssuerNotReady", f"{display_name(member)} {problem.why}", is_announced=False)
            why = problem.why if problem is not None else self._limit_of(request, member, moments)
            if not why and (why := await self._forbids(member, request)):
                forbidden.append(member)
            applicant = applicant_of(request, member)
            if not why and self._gate.may_join(applicant):
                if without is None:
                    self._leave_former_member(request, member)
                    self._gate.join(applicant)
                return member
            problems.append(f"{display_name(member)} {why or 'is failing'}")
        if forbidden and without is None:
            # The CA has the last word on its CAA records, and its refusal is reported like any other.
            return forbidden[0]
        why = "; ".join(problems) or "it has no members"
        text = f'No member of {reference.kind} "{reference.name}" can sign now: {why}'
        return NoMember("IssuerNotReady", text, min(moments, default=None))

    def sent_to(self, request: CertificateRequest, member: IssuerReference) -> CertificateRequest:
        """The request as the member receives it, with the member in place of the set. Only the server that
        issued a certificate knows it, so a request to another server names no certificate to replace (RFC
        9773 §5)."""
        spec, notes = msgspec.structs.replace(request.spec, issuer_ref=member), request.metadata.annotations
        sent = msgspec.structs.replace(request, spec=spec)
        certificate = self._caches.certificates.cache.get(key_of(request))
        former = signer_reference(self._caches, certificate) if certificate is not None else None
        if names.REPLACES not in notes or (former is not None and former.same_issuer(member)):
            return sent
        kept = {key: value for key, value in notes.items() if key != names.REPLACES}
        meta = msgspec.structs.replace(request.metadata, annotations=kept)
        return msgspec.structs.replace(sent, metadata=meta)

    async def find_failover(
        self, order: Order, has_failed: bool, limited_until: datetime | None
    ) -> Failover | datetime | None:
        """A `Failover` if the waiting Order is given up so that another member signs; else when to check
        again (None: when something changes).

        `has_failed`: the Order has just failed at its member. `limited_until`: the end of the member's rate
        limit.
        """
        owner, sets = owning_request(order), self._caches.sets
        request = self._caches.requests.cache.get(owner) if owner is not None and not sets.is_empty else None
        if request is None or not request.spec.issuer_ref.is_set or not awaits_signature(request):
            return None
        reference, member, now = request.spec.issuer_ref, order.spec.issuer_ref, self._now()
        namespace, applicant = order.metadata.namespace, applicant_of(request, member)
        problem, why, patience_ends = self.problem_of(member, namespace), "", None
        if not sets.has_member(reference, namespace, member):
            why = "is not a member of the set"
        elif order.status.url:
            if problem is not None and problem.since is not None:
                patience_ends = problem.since + PATIENCE
                why = problem.why if patience_ends <= now else ""
        elif limited_until is not None and limited_until - now > _SHORT_WAIT:
            why = "has reached a rate limit"
        elif has_failed:
            why = "has not accepted the order"
        elif problem is not None:
            why = problem.why
        elif not self._gate.may_join(applicant):
            why = "is failing"
        if not why:
            return patience_ends
        if isinstance(other := await self.choose(request, without=member), NoMember):
            return other.again_at
        self._gate.leave(applicant)
        sentence = (
            f'{display_name(member)} {why}; {reference.kind} "{reference.name}" has another member sign'
        )
        return Failover(sentence, max(limited_until or now, now + AVOIDED_FOR))

    def leaves_server_at(self, request: CertificateRequest) -> datetime | None:
        """When a request that a Venafi server has accepted may fail over; None: its member works, or there is
        no such request."""
        member = read_member(request.metadata.annotations)
        if member is None or names.VENAFI_PICKUP_ID not in request.metadata.annotations:
            return None
        problem = self.problem_of(member, request.metadata.namespace)
        return problem.since + PATIENCE if problem is not None and problem.since is not None else None

    def _leave_former_member(self, request: CertificateRequest, member: IssuerReference) -> None:
        """Remove the request from its former member's waiting applicants, because it goes to `member`."""
        former, namespace = read_member(request.metadata.annotations), request.metadata.namespace
        if former is None or former.same_issuer(member):
            return
        if self._caches.sets.has_member(request.spec.issuer_ref, namespace, former):
            self._gate.leave(applicant_of(request, former))

    def _fixed_member(self, request: CertificateRequest, issuer_set: AnySet) -> IssuerReference | None:
        """The member that the request stays with whatever the member's state: its Order is there, or its
        server processes it."""
        members = members_of(issuer_set)
        has_begun = [
            order.spec.issuer_ref
            for order in self._caches.orders_of(request.metadata)
            if order.metadata.annotations.get(names.ACME_SUPERSEDED) != "true"
        ]
        if names.VENAFI_PICKUP_ID in request.metadata.annotations:
            recorded, leaves_at = read_member(request.metadata.annotations), self.leaves_server_at(request)
            stays = recorded is not None and (leaves_at is None or leaves_at > self._now())
            has_begun += [recorded] if recorded is not None and stays else []
        return next((member for member in members if any(map(member.same_issuer, has_begun))), None)

    def _in_order(self, request: CertificateRequest, issuer_set: AnySet) -> list[IssuerReference]:
        """The members, in the order in which the request tries them: its present member, the set's active
        member, the others."""
        members = members_of(issuer_set)
        first = (read_member(request.metadata.annotations), issuer_set.status.active)
        order = [
            member for preferred in first if preferred for member in members if member.same_issuer(preferred)
        ]
        return list(dict.fromkeys([*order, *members]))

    def _limit_of(self, request: CertificateRequest, member: IssuerReference, moments: list[datetime]) -> str:
        """Why this request is not sent to a member that works; adds to `moments` when that ends."""
        now, failed_at = self._now(), self._gate.failed_at(applicant_of(request, member))
        ends = [failed_at + AVOIDED_FOR] if failed_at is not None else []
        for order in self._caches.orders_of(request.metadata):
            text = order.metadata.annotations.get(names.MEMBER_NOT_BEFORE, "")
            if order.spec.issuer_ref.same_issuer(member) and (end := parse_moment(text)) is not None:
                ends.append(min(end, now + LONGEST_OBEYED))
        avoided_until = max(ends, default=None)
        if avoided_until is None or avoided_until <= now:
            return ""
        moments.append(avoided_until)
        breaker = self._gate.breaker_of(member, request.metadata.namespace)
        cause = f": {breaker.message}" if breaker is not None and breaker.message else ""
        return f"has failed this request or limits it{cause}"
