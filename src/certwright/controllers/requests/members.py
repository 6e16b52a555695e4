"""The member of an IssuerSet that signs a request: the first that can, in the order of the set.

A request stays with its member while that works, and while an Order of it exists there. It leaves for
failures that the circuit breaker counts as the issuer's, and for rate limits; never for what is about its
names.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.issuer_sets import AnySet, members_of
from certwright.controllers.requests.issuer_lister import KnownIssuers
from certwright.controllers.retry.gate import IssuerGate
from certwright.issuers.table import kind_of
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.issuer_set_member import read_member
from certwright.resources.request import CertificateRequest


class Trouble(NamedTuple):
    """Why a member cannot sign, after its name in a sentence, and what to do; `is_missing`: the issuer does
    not exist."""

    why: str
    fix: str = ""
    is_missing: bool = False


class NoMember(NamedTuple):
    """No member can sign a request now: the Event's reason, and a sentence."""

    reason: str
    message: str


def sent_to(request: CertificateRequest, member: IssuerReference) -> CertificateRequest:
    """The request as that member receives it: it names the member instead of the set."""
    return msgspec.structs.replace(request, spec=msgspec.structs.replace(request.spec, issuer_ref=member))


def words_of(member: IssuerReference) -> str:
    """The member in a sentence: `ClusterIssuer "letsencrypt"`."""
    return f'{member.kind_or_default} "{member.name}"'


class Members:
    """Chooses members. `kinds` are the kinds of issuers that sign here."""

    def __init__(
        self, caches: Caches, issuers: KnownIssuers, gate: IssuerGate, *, kinds: Collection[str]
    ) -> None:
        self._caches = caches
        self._issuers = issuers
        self._gate = gate
        self._kinds = kinds

    def trouble_of(self, member: IssuerReference, namespace: str) -> Trouble | None:
        """Why a member of a set in that namespace signs nothing now; None: it works, or may be tried."""
        state = self._issuers.find(member, namespace)
        if state is None:
            where = f" in namespace {namespace}" if member.kind_or_default == "Issuer" else ""
            return Trouble(f"does not exist{where}", "create it or remove it from the set", is_missing=True)
        kind = kind_of(state.view.spec)
        if kind.lower() not in self._kinds:
            return Trouble("is of a type that this process does not sign for", "see --controllers")
        if state.ready is None:
            return Trouble("has not been checked yet")
        if not state.ready:
            return Trouble(f"is not ready: {state.message}" if state.message else "is not ready")
        breaker = self._gate.breaker_of(member, namespace)
        if breaker is not None and breaker.is_open and breaker.probe_at is not None:
            return Trouble("is failing")
        return None

    def choose(self, request: CertificateRequest) -> IssuerReference | NoMember:
        """The member that the request is sent to."""
        reference, namespace = request.spec.issuer_ref, request.metadata.namespace
        found = self._caches.sets.find(reference, namespace)
        if found is None:
            text = f'{reference.kind.lower()}.{reference.group} "{reference.name}" not found'
            return NoMember("IssuerNotFound", f'Referenced "{reference.kind}" not found: {text}')
        troubles = []
        for member in self._in_order(request, found):
            trouble = self.trouble_of(member, namespace)
            if trouble is None:
                return member
            troubles.append(f"{words_of(member)} {trouble.why}")
        why = "; ".join(troubles) or "it has no members"
        text = f'No member of {reference.kind} "{reference.name}" can sign now: {why}'
        return NoMember("IssuerNotReady", text)

    def _in_order(self, request: CertificateRequest, found: AnySet) -> list[IssuerReference]:
        """The members, in the order in which this request tries them: first the one that it was sent to, then
        the set's active one."""
        members = members_of(found)
        first = (read_member(request.metadata.annotations), found.status.active)
        order = [one for wanted in first if wanted for one in members if one.same_issuer(wanted)]
        return list(dict.fromkeys([*order, *members]))
