"""Keep the target Secret in sync with the spec between issuances: labels, annotations, output formats, key
stores, `ca.crt`, owner.

Wakes on:  Certificate; its Secret; Secrets with passwords of key stores
Reads:     snapshot
Writes:    target Secret; Certificate.status.conditions[Issuing] = False while a repair is impossible
Next:      –

A part that only we own and the spec no longer demands is removed. A part that others have added stays. A part
that the spec demands and others have set is set by us as well, so that it stays when they give it up. Key and
certificate are never touched. If another manager keeps reverting our writes, they are repeated at growing
intervals, and a condition names the manager.

Source: cert-manager `internal/controller/certificates/policies/checks.go` (the chain after an issuance).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from certwright.controllers.cache.transforms import (
    NeedsFullSecret,
    encoding_of,
    is_complete,
    same_certificate,
)
from certwright.controllers.certificates import keystores, rules, target
from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.effects import Did, Effects
from certwright.controllers.certificates.ownership import Part, Parts, lacking, others_that_set, owned_by_us
from certwright.controllers.certificates.parsed import KeyFacts
from certwright.controllers.certificates.snapshot import Rule, Snapshot, Verdict
from certwright.controllers.certificates.target import Content, Pair
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import Forbidden, Invalid
from certwright.kube.api.kinds import controller_reference
from certwright.kube.api.meta import Condition
from certwright.kube.util.caches import Lru
from certwright.kube.util.durations import doubled
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names, reasons
from certwright.resources.table import CERTIFICATES

CONFLICT: Final = "SecretConflict"
_OUR_REASONS = frozenset({CONFLICT, target.REFUSED, keystores.PASSWORD_NOT_FOUND, keystores.FAILED})

# A Secret that breaks one of these rules is issued again, or is not ours.
_REQUIRED: tuple[Rule, ...] = (
    rules.secret_does_not_exist,
    rules.secret_is_missing_data,
    rules.key_pair_is_invalid,
    rules.certificate_is_another,
    rules.secret_is_not_ours,
)
_WRITTEN_KEY = Part("data", names.TLS_PRIVATE_KEY_KEY)
_ISSUER_NOTES = (names.CERTIFICATE_NAME, names.ISSUER_NAME, names.ISSUER_KIND, names.ISSUER_GROUP)

# This many repairs of a Secret are immediate; people who try things out need fewer.
_FREE_REPAIRS = 5
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(minutes=1), timedelta(hours=1)
# After this long without a repair, earlier repairs are forgotten.
_QUIET = timedelta(hours=2)
_REMEMBERED = 2048


class _Judged(NamedTuple):
    """What a verdict "as desired" depends on."""

    secret: tuple[str, str]
    certificate: tuple[str, int]
    passwords: tuple[tuple[str, str], ...]
    ca_pem: bytes


@dataclass(slots=True)
class _Repairs:
    """How often a Secret was repaired for one generation of one revision. Kept in memory only: a restart
    allows a few more tries."""

    of: tuple[int, int]
    last: datetime
    count: int = 0
    is_sound: bool = False
    problem: Verdict | None = None

    @property
    def next_at(self) -> datetime:
        over = self.count - _FREE_REPAIRS
        return self.last + doubled(_SHORTEST_WAIT, over + 1, cap=_LONGEST_WAIT) if over >= 0 else self.last


class SecretSync:
    """The step that compares the target Secret with the desired content, and applies that where they differ.

    `owns_secrets` makes the Certificates own their target Secrets (`--enable-certificate-owner-ref`).
    """

    def __init__(self, *, owns_secrets: bool = False) -> None:
        self._owns_secrets = owns_secrets
        self._sound: Lru[str, _Judged] = Lru(_REMEMBERED)
        self._repairs: dict[str, _Repairs] = {}

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Report what keeps the Secret from being as desired; the message of a failed issuance takes
        precedence."""
        issuing = conditions.find(snapshot.certificate.status.conditions, reasons.ISSUING)
        if issuing is not None and (issuing.status == "True" or issuing.reason not in _OUR_REASONS):
            return
        problem = self._problem(snapshot, self._known_repairs(issuing, snapshot, draft), draft)
        if problem is None:
            if issuing is not None:
                draft.remove_condition(reasons.ISSUING)
        elif issuing is None or (issuing.reason, issuing.message) != problem:
            draft.set_condition(reasons.ISSUING, "False", problem.reason, problem.message, now=snapshot.now)
            if issuing is None or issuing.reason != problem.reason:
                draft.add_event("Warning", problem.reason, problem.message)

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Apply the desired content where the Secret differs from it."""
        secret = snapshot.secret
        if snapshot.is_issuing or secret is None:
            return Did.NOTHING
        meta = snapshot.certificate.metadata
        uid = meta.uid
        judged = _Judged(
            (secret.metadata.uid, secret.metadata.resource_version),
            (uid, meta.generation),
            tuple((s.metadata.uid, s.metadata.resource_version) for s in snapshot.passwords.values()),
            target.in_rest(snapshot),
        )
        if self._sound.get(uid) == judged or rules.first(_REQUIRED, snapshot) is not None:
            return Did.NOTHING
        content = await self._content(snapshot, secret, judged.ca_pem, effects)
        if not (differing := differences(secret, content)):
            self._sound.put(uid, judged)
            if (earlier := self._repairs.get(uid)) is not None:
                earlier.is_sound = True
            return Did.NOTHING
        repairs = self._repairs_of(snapshot)
        repairs.is_sound = False
        if snapshot.now < repairs.next_at:
            return Did.WROTE if _record_conflict(repairs, snapshot, secret, differing) else Did.NOTHING
        try:
            await effects.apply_secret(snapshot.certificate, secret, content)
        except (Invalid, Forbidden) as refused:
            self._count(repairs, snapshot, at_least=_FREE_REPAIRS)
            repairs.problem = Verdict(target.REFUSED, target.refusal(snapshot, refused))
        else:
            self._count(repairs, snapshot)
            if repairs.problem is not None and repairs.problem.reason == target.REFUSED:
                repairs.problem = None
        return Did.WROTE

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """The time of the next try, or of the end of the conflict."""
        repairs = self._repairs.get(snapshot.certificate.metadata.uid)
        if repairs is None or repairs.problem is None or repairs.next_at <= snapshot.now:
            return None
        return repairs.next_at

    def _problem(self, snapshot: Snapshot, repairs: _Repairs | None, draft: Draft) -> Verdict | None:
        spec = snapshot.certificate.spec
        if spec.keystores is not None and rules.first(_REQUIRED, snapshot) is None:
            for blocked in keystores.desired(spec, snapshot.passwords).missing.values():
                return Verdict(blocked.reason, blocked.message)
        if repairs is None or repairs.problem is None:
            return None
        if snapshot.now < repairs.next_at or not repairs.is_sound:
            return repairs.problem
        # The next try is due, and none is needed.
        draft.note(self._forget, snapshot.certificate.metadata.uid)
        return None

    def _known_repairs(self, existing: Condition | None, snapshot: Snapshot, draft: Draft) -> _Repairs | None:
        """The repairs so far; after a restart, those of a conflict that only the status shows."""
        uid = snapshot.certificate.metadata.uid
        repairs = self._repairs.get(uid)
        if repairs is None and existing is not None and existing.reason in (CONFLICT, target.REFUSED):
            repairs = self._repairs_of(snapshot)
            repairs.count, repairs.problem = _FREE_REPAIRS, Verdict(existing.reason, existing.message)
            draft.note(self._remember, uid, repairs)
        return repairs

    def _remember(self, uid: str, repairs: _Repairs) -> None:
        self._repairs[uid] = repairs

    def _forget(self, uid: str) -> None:
        self._repairs.pop(uid, None)

    async def _content(self, snapshot: Snapshot, secret: Secret, ca_pem: bytes, effects: Effects) -> Content:
        certificate, current = snapshot.certificate, target.stored_pair(secret)
        spec = certificate.spec
        if (spec.keystores or spec.additional_output_formats) and not is_complete(secret):
            raise NeedsFullSecret
        key_pem, encoding = current.key_pem, spec.key.encoding_or_default
        # A key that another program has written stays in its encoding until the next issuance.
        if encoding_of(key_pem) != encoding and _WRITTEN_KEY in owned_by_us(secret):
            if not is_complete(secret):
                raise NeedsFullSecret
            assert isinstance(snapshot.key, KeyFacts), "_REQUIRED"
            key_pem = snapshot.facts.encode(snapshot.key, encoding)
        pair = Pair(key_pem, current.chain_pem, ca_pem)
        leaf = snapshot.leaf
        return target.desired_content(
            certificate,
            pair,
            leaf if isinstance(leaf, CertificateFacts) else None,
            issuer=_issuer_notes(snapshot, secret),
            keystores=await _keystores(snapshot, secret, pair, effects) if certificate.spec.keystores else {},
            owner=controller_reference(CERTIFICATES, certificate.metadata) if self._owns_secrets else None,
        )

    def _repairs_of(self, snapshot: Snapshot) -> _Repairs:
        meta, status = snapshot.certificate.metadata, snapshot.certificate.status
        of = (meta.generation, status.revision or 0)
        repairs = self._repairs.get(meta.uid)
        if repairs is None or repairs.of != of or snapshot.now - repairs.last > _QUIET:
            repairs = _Repairs(of, snapshot.now)
        return repairs

    def _count(self, repairs: _Repairs, snapshot: Snapshot, *, at_least: int = 0) -> None:
        if len(self._repairs) >= _REMEMBERED:
            # Most of them were single repairs, and of Certificates that may be deleted.
            old = snapshot.now - _QUIET
            self._repairs = {uid: entry for uid, entry in self._repairs.items() if entry.last > old}
        repairs.count = max(repairs.count + 1, at_least)
        repairs.last = snapshot.now
        self._repairs[snapshot.certificate.metadata.uid] = repairs


def differences(secret: Secret, content: Content) -> Parts:
    """The parts of the Secret that are not as desired: missing, different, ours but no longer desired, or
    desired and not ours."""
    meta, owner = secret.metadata, content.owner
    sections: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
        ("data", content.data, secret.data),
        ("labels", content.labels, meta.labels),
        ("annotations", content.annotations, meta.annotations),
        (
            "ownerReferences",
            {owner.uid: owner} if owner is not None else {},
            {existing.uid: existing for existing in meta.owner_references},
        ),
    )
    differing: set[Part] = {*lacking(secret, content.asked)}
    surplus: set[Part] = set()
    for name, desired, current in sections:
        differing |= {Part(name, key) for key, value in desired.items() if current.get(key) != value}
        surplus |= {Part(name, key) for key in current if key not in desired}
    return frozenset(differing | (surplus & owned_by_us(secret) if surplus else surplus))


async def _keystores(snapshot: Snapshot, secret: Secret, pair: Pair, effects: Effects) -> dict[str, bytes]:
    """Key store files: files that match the spec are kept, the others are rebuilt. Files whose password is
    missing are kept."""
    namespace = secret.metadata.namespace
    desired = keystores.desired(snapshot.certificate.spec, snapshot.passwords)
    kept, to_make = [*desired.missing], []
    for store in desired.stores:
        if await effects.keystore_fits(store, pair, secret.data, namespace):
            kept.append(store.files)
        else:
            to_make.append(store)
    made = await effects.make_keystores(to_make, pair, snapshot.now, namespace)
    return {name: secret.data[name] for files in kept for name in files if name in secret.data} | made


def _issuer_notes(snapshot: Snapshot, secret: Secret) -> dict[str, str]:
    """The signer of the certificate in the Secret, by the Secret's own annotations, because the spec may name
    another issuer by now."""
    notes = secret.metadata.annotations
    current = {key: notes[key] for key in _ISSUER_NOTES if key in notes}
    request = snapshot.current_request
    if len(current) == len(_ISSUER_NOTES) or request is None:
        return current
    stored_pem = secret.data.get(names.TLS_CERT_KEY)
    if not same_certificate(request, stored_pem) or snapshot.differences(request):
        return current
    return target.issuer_annotations(snapshot.certificate) | current


def _record_conflict(repairs: _Repairs, snapshot: Snapshot, secret: Secret, differing: Parts) -> bool:
    """Have `decide` report, in the next round, which manager changes what; return whether the report is
    new."""
    if repairs.problem is not None and repairs.problem.reason == target.REFUSED:
        return False
    who = " and ".join(f'"{name}"' for name in others_that_set(secret, differing)) or "another program"
    what = ", ".join(sorted(str(part) for part in differing))
    problem = Verdict(
        CONFLICT,
        f'Secret "{snapshot.certificate.spec.secret_name}" is repeatedly changed by {who}, otherwise '
        f"than this Certificate wants it: {what}. It is corrected at growing intervals of up to an hour.",
    )
    if repairs.problem is not None and repairs.problem.message == problem.message:
        return False
    repairs.problem = problem
    return True
