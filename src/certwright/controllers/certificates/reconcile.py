"""Run the steps of one Certificate over one snapshot, and write its status once.

A pass is made of rounds. In each, every step first says how the status should be (`decide`, pure); that is
written if it differs; then the first step that has something else to write does so (`act`), and the next
round begins with the resulting state. The pass ends when no step has anything to write: all is done, or
something must be waited for. So a kill between any two writes leaves a state that an ordinary round begins
with. Where a step only hands on to the next one (a key to go with a request, a request to be signed), all
that was decided stands: the later steps continue in the same round, because another one would find nothing
new. A certificate that has been issued ends the pass, too; a later pass cleans up when the queue is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from certwright.controllers import table
from certwright.controllers.acme.ari_poller import AriPoller
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import SUFFIX_LENGTH, owner_value, secret_value
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_filter import working_on
from certwright.controllers.cache.transforms import NeedsFullSecret, is_complete
from certwright.controllers.certificates.contention import SecretContention
from certwright.controllers.certificates.draft import Blocked, Draft, Note, Rejected
from certwright.controllers.certificates.effects import Did, Effects, log_blocked, log_change
from certwright.controllers.certificates.issuing import Issuing
from certwright.controllers.certificates.keys import Keys, is_named_key
from certwright.controllers.certificates.keystores import password_secrets
from certwright.controllers.certificates.parsed import Facts, KeyFacts, NeedsVerification
from certwright.controllers.certificates.readiness import Readiness, RenewalInformation
from certwright.controllers.certificates.requests import Requests, Revisions
from certwright.controllers.certificates.secret_sync import SecretSync
from certwright.controllers.certificates.snapshot import Snapshot
from certwright.controllers.certificates.trigger import Trigger
from certwright.controllers.issuer_gate import IssuerGate
from certwright.controllers.settings import Settings
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.kube.api.errors import Forbidden, Invalid, NotFound
from certwright.kube.api.meta import ObjectKey, is_controlled_by
from certwright.kube.client.cache import revision_of
from certwright.kube.runtime.controller import Result
from certwright.kube.util.caches import Lru
from certwright.kube.util.durations import doubled
from certwright.pki.certificates import CertificateFacts
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.table import CERTIFICATES

# No pass of an issuance takes ten; more than this many means that two steps undo each other's work.
_MAX_ROUNDS = 30

SHORTEST_REJECTION, LONGEST_REJECTION = timedelta(minutes=1), timedelta(hours=1)
"""Between two attempts of a write that the API server or an admission webhook rejects."""
_REMEMBERED = 2048

_NO_SECRETS: Mapping[str, Secret] = {}


class Decides(Protocol):
    """A step that owns a part of the status."""

    def decide(self, snapshot: Snapshot, draft: Draft) -> None:
        """Change the draft's status to what it should be. MUST change nothing else: what the step is to
        remember is a note of the draft. Deciding twice on one snapshot gives the same draft."""


class Acts(Protocol):
    """A step that writes other objects."""

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Make at most one write that another step continues from, and say whether there was one, and what
        for. Idempotent."""


class Wakes(Protocol):
    """A step whose answer can change with time alone."""

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When to reconcile again though nothing has changed; None: never."""


class _Around(NamedTuple):
    """The Secrets that belong to a Certificate, its issuer, the one that signed, and the issuer's CA."""

    target: Secret | None
    named_key: Secret | None
    next_keys: Sequence[Secret]
    passwords: Mapping[str, Secret]
    issuer: Issuer | ClusterIssuer | None
    signer: Issuer | ClusterIssuer | None
    authority: tuple[CertificateFacts, ...]


class _Issued(Exception):
    """An issuance has succeeded. What is left of it, such as the Secret of its key, can wait."""


class NotSettling(Exception):
    """The steps of one Certificate do not settle; the text names it."""


class _Rejection(NamedTuple):
    of: tuple[object, ...]
    failures: int
    until: datetime


class _Rejections:
    """Growing waits after rejected writes of an issuance; in memory only, so that a restart allows one more
    attempt and no more. They end with a change of the spec or of the target Secret, and by `renew`."""

    def __init__(self) -> None:
        self._of: Lru[str, _Rejection] = Lru(_REMEMBERED)

    def count(self, before: Snapshot, after: Snapshot) -> None:
        """Record that a write was rejected. `after` has the target Secret as this may have left it."""
        uid, former = before.certificate.metadata.uid, self._of.get(before.certificate.metadata.uid)
        is_same = former is not None and former.of == self._cause(before)
        failures = former.failures + 1 if former is not None and is_same else 1
        wait = doubled(SHORTEST_REJECTION, failures, cap=LONGEST_REJECTION)
        self._of.put(uid, _Rejection(self._cause(after), failures, before.now + wait))

    def retry_at(self, snapshot: Snapshot) -> datetime | None:
        """Until when the issuance in progress waits; None: it does not."""
        rejection = self._of.get(snapshot.certificate.metadata.uid)
        if rejection is None or not snapshot.is_issuing or rejection.of != self._cause(snapshot):
            return None
        return rejection.until if rejection.until > snapshot.now else None

    @staticmethod
    def _cause(snapshot: Snapshot) -> tuple[object, ...]:
        certificate, secret = snapshot.certificate, snapshot.secret
        issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
        return (
            certificate.metadata.generation,
            snapshot.next_revision,
            issuing.last_transition_time if issuing is not None else None,
            (secret.metadata.uid, secret.metadata.resource_version) if secret is not None else None,
        )


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of one pass by what they do, each in order."""

    deciders: Sequence[Decides]
    actors: Sequence[Acts]
    wakers: Sequence[Wakes]


class CertificateReconciler:
    """Brings one Certificate from the actual to the desired state. The steps are those of
    `controllers/table.py`, in order, without those that are disabled."""

    def __init__(
        self,
        steps: Steps,
        toolbox: Toolbox,
        *,
        caches: Caches,
        facts: Facts,
        authorities: Authorities,
        suffix: Callable[[int], str],
    ) -> None:
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._steps = steps
        self._caches = caches
        self._facts = facts
        self._effects = Effects(toolbox.client, caches, facts, toolbox.executor, toolbox.recorder)
        self._status = toolbox.status_of(caches.certificates)
        self._rejections = _Rejections()
        self._client = toolbox.client
        self._executor = toolbox.executor
        self._authorities = authorities
        self._now = toolbox.now
        self._suffix = suffix

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass. Raises what the writes raise; the queue retries."""
        # Each write is followed by a round that sees it.
        with working_on(CERTIFICATES, key):
            return await self._pass(key)

    async def _pass(self, key: ObjectKey) -> Result:
        await self._delete_orphans(key, self._caches.certificates.cache.get(key))
        full_secret: Secret | None = None
        for _ in range(_MAX_ROUNDS):
            certificate = self._caches.certificates.cache.get(key)
            if certificate is None or certificate.metadata.deletion_timestamp is not None:
                self.dependents.keep_only(key, ())
                return Result()
            await self._caches.complete_requests(certificate)
            await self._caches.find_rivals(certificate)
            around = _with_key(await self._surroundings(certificate), full_secret)
            if self._has_changed(certificate):
                # The Certificate has changed during a GET of a Secret.
                continue
            try:
                snapshot = await self._round(self._snapshot(certificate, around))
            except NeedsFullSecret:
                full_secret = await self._caches.secrets.get(_target_of(certificate))
                continue
            except NeedsVerification as needed:
                await self._facts.verify(needed, self._now(), self._executor, key.namespace)
                continue
            except _Issued:
                return Result(when_idle=True)
            if snapshot is not None:
                self._strip_idle(snapshot)
                return Result(wake_at=self._wake_at(snapshot))
        raise NotSettling(f"Certificate {key} is still changing after {_MAX_ROUNDS} rounds")

    async def _round(self, snapshot: Snapshot) -> Snapshot | None:
        """One round; returns the final snapshot where nothing was written, None where something was. Raises
        `_Issued` once the status says that the certificate is issued."""
        draft = decide(self._steps.deciders, snapshot)
        try:
            written = await self._commit(snapshot.certificate, draft)
        except NotFound:
            # Deleted since the snapshot; its watch event is on its way.
            return snapshot
        log_change(snapshot.certificate, written)
        for event in draft.events:
            self._effects.send_event(written, event.type, event.reason, event.message)
        _apply(draft.notes)
        if written.status.revision != snapshot.certificate.status.revision:
            raise _Issued
        # The name of the next key may just have been chosen: read its Secret.
        seen = snapshot
        if written is not snapshot.certificate:
            seen = self._snapshot(written, await self._surroundings(written), is_fresh=True)
        try:
            # What one step has written may matter to another before it.
            return await self._act(seen, is_news=written is not snapshot.certificate)
        except Blocked as blocked:
            rejection = blocked
        except (Invalid, Forbidden) as refused:
            if not seen.is_issuing:
                raise
            rejection = Rejected(refused.reason, refused.message)
        if isinstance(rejection, Rejected):
            before, around = seen, await self._surroundings(seen.certificate)
            seen = self._snapshot(before.certificate, around)
            self._rejections.count(before, seen)
        # The owner of the Certificate should read why.
        await self._report(rejection, seen)
        return seen

    async def _act(self, seen: Snapshot, *, is_news: bool) -> Snapshot | None:
        """Run `act` of the steps. Returns the final snapshot, or None where another round must follow: if
        `is_news`, unless a step hands on, which is done while issuing only, when all has been decided."""
        certificate = seen.certificate
        if self._rejections.retry_at(seen) is not None:
            return None if is_news else seen
        for actor in self._steps.actors:
            did = await actor.act(seen, self._effects)
            if did is Did.WROTE:
                return None
            if did is Did.HANDED_ON:
                around = await self._surroundings(certificate)
                if self._has_changed(certificate):
                    return None
                seen, is_news = self._snapshot(certificate, around, is_fresh=seen.is_fresh), False
        return None if is_news else seen

    async def _commit(self, certificate: Certificate, draft: Draft) -> Certificate:
        """Write the annotations, then the status: a failure that is visible has its record."""
        changed = draft.certificate
        if draft.annotations:
            certificate = await self._effects.annotate(certificate, draft.annotations)
            changed = msgspec.structs.replace(certificate, status=changed.status)
        return await self._status.commit(CERTIFICATES, certificate, changed)

    def _has_changed(self, certificate: Certificate) -> bool:
        cached = self._caches.certificates.cache.revision(certificate.metadata.key)
        return cached != revision_of(certificate)

    async def _report(self, blocked: Blocked, snapshot: Snapshot) -> None:
        certificate = snapshot.certificate
        issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
        if issuing is None or issuing.message == blocked.message:
            return
        draft = Draft(certificate)
        draft.set_condition(
            reasons.ISSUING, issuing.status, issuing.reason, blocked.message, now=snapshot.now
        )
        written = await self._status.commit(CERTIFICATES, certificate, draft.certificate)
        self._effects.send_event(written, "Warning", blocked.reason, blocked.message)
        log_blocked(written, blocked.reason, blocked.message)

    def _strip_idle(self, snapshot: Snapshot) -> None:
        """Strip from memory what is not needed before the next issuance."""
        if snapshot.is_issuing or not conditions.is_true(
            snapshot.certificate.status.conditions, reasons.READY
        ):
            return
        secret = snapshot.secret
        key = snapshot.key if secret is not None and is_complete(secret) else None
        if secret is not None and isinstance(key, KeyFacts) and self._caches.strip_key(secret, key.public):
            self._facts.forget_key(secret.data[names.TLS_PRIVATE_KEY_KEY])
        for request in snapshot.requests:
            if is_complete(request):
                self._caches.strip_request(request)

    def _wake_at(self, snapshot: Snapshot) -> datetime | None:
        moments = [step.wake_at(snapshot) for step in self._steps.wakers]
        moments.append(self._rejections.retry_at(snapshot))
        return min((moment for moment in moments if moment is not None), default=None)

    async def _surroundings(self, certificate: Certificate) -> _Around:
        meta, secrets = certificate.metadata, self._caches.secrets
        named = certificate.status.next_private_key_secret_name
        issuer = self._authorities.issuer_of(certificate)
        return _Around(
            target=await secrets.look(_target_of(certificate)),
            named_key=await secrets.look(ObjectKey(meta.namespace, named)) if named else None,
            next_keys=await secrets.next_keys_of(owner_value(*meta.key)),
            passwords=await self._passwords(certificate) if certificate.spec.keystores else _NO_SECRETS,
            issuer=issuer,
            signer=issuer or self._authorities.signer_of(certificate),
            authority=await self._authorities.of(issuer) if issuer is not None else (),
        )

    async def _passwords(self, certificate: Certificate) -> dict[str, Secret]:
        meta, secrets = certificate.metadata, {}
        keys = [ObjectKey(meta.namespace, name) for name in password_secrets(certificate.spec)]
        for key in keys:
            self.dependents.add(meta.key, key)
            if (secret := await self._caches.secrets.get(key)) is not None:
                secrets[key.name] = secret
        self.dependents.keep_only(meta.key, keys)
        return secrets

    def _snapshot(self, certificate: Certificate, around: _Around, *, is_fresh: bool = False) -> Snapshot:
        meta, caches = certificate.metadata, self._caches
        owner = owner_value(meta.namespace, meta.name)
        target = secret_value(meta.namespace, certificate.spec.secret_name)
        named = around.named_key
        next_keys = [s for s in around.next_keys if is_controlled_by(s.metadata, meta.uid)]
        if named is not None and named not in next_keys and is_named_key(named, meta.uid):
            next_keys.append(named)
        return Snapshot(
            certificate=certificate,
            now=self._now(),
            facts=self._facts,
            secret=around.target,
            requests=tuple(r for r in caches.requests_of(owner) if is_controlled_by(r.metadata, meta.uid)),
            next_keys=tuple(next_keys),
            named_key=named,
            rivals=tuple(caches.certificates_for(target, but=meta.key)),
            issuer=around.issuer,
            signer=around.signer,
            authority=around.authority,
            passwords=around.passwords,
            is_fresh=is_fresh,
            suffix=self._suffix(SUFFIX_LENGTH),
        )

    async def _delete_orphans(self, key: ObjectKey, certificate: Certificate | None) -> None:
        """Delete what a Certificate of this name left behind when it was deleted.

        Kubernetes' garbage collector does the same, where it runs. The API server is asked first, because the
        caches of different kinds are not of the same moment.
        """
        uid = certificate.metadata.uid if certificate else ""
        owner = owner_value(*key)
        requests = [r for r in self._caches.requests_of(owner) if not is_controlled_by(r.metadata, uid)]
        next_keys = await self._caches.next_keys_of(owner)
        secrets = [s for s in next_keys if not is_controlled_by(s.metadata, uid)]
        if not requests and not secrets:
            return
        alive = await self._live_uid(key)
        for request in requests:
            if not is_controlled_by(request.metadata, alive):
                await self._effects.delete_request(request)
        for secret in secrets:
            if not is_controlled_by(secret.metadata, alive):
                await self._effects.delete_secret(secret)

    async def _live_uid(self, key: ObjectKey) -> str:
        try:
            certificate = await self._client.get(CERTIFICATES, key.name, key.namespace)
        except NotFound:
            return ""
        self._caches.certificates.put(certificate)
        return certificate.metadata.uid


def decide(deciders: Iterable[Decides], snapshot: Snapshot) -> Draft:
    """The status as all steps want it, with the Events and notes to apply after its write."""
    draft = Draft(snapshot.certificate)
    for step in deciders:
        step.decide(snapshot, draft)
        snapshot = snapshot.seeing(draft.certificate)
    return draft


def _apply(notes: Iterable[Note]) -> None:
    for note in notes:
        note.apply(*note.args)


def _with_key(around: _Around, full_secret: Secret | None) -> _Around:
    """With the private key too, if `full_secret` is the very Secret that was read."""
    seen = around.target
    if seen is None or full_secret is None:
        return around
    if (seen.metadata.uid, revision_of(seen)) != (full_secret.metadata.uid, revision_of(full_secret)):
        return around
    return around._replace(target=full_secret)


def _target_of(certificate: Certificate) -> ObjectKey:
    return ObjectKey(certificate.metadata.namespace, certificate.spec.secret_name)


S = TypeVar("S")


def enabled_steps(
    names: frozenset[str],
    settings: Settings,
    gate: IssuerGate,
    poller: AriPoller,
    has_failed_at: Callable[[datetime], bool],
) -> Steps:
    """The steps whose names (see `controllers/table.py`) are enabled. `has_failed_at`: see `Issuing`."""

    def enabled(*steps: tuple[str, S]) -> list[S]:
        return [step for name, step in steps if name in names]

    limits, owns_secrets = settings.limits, settings.certificate_owner_references
    contention, trigger = SecretContention(limits), Trigger(limits, gate.hold_of)
    keys, requests = Keys(settings.acme.policy), Requests(settings.copied_annotation_prefixes)
    issuing = Issuing(limits, owns_secrets=owns_secrets, has_failed_at=has_failed_at)
    secret_sync = SecretSync(owns_secrets=owns_secrets)
    readiness, revisions = Readiness(), Revisions()
    renewal_info = RenewalInformation(poller)
    return Steps(
        deciders=enabled(
            (table.TRIGGER, contention),
            (table.TRIGGER, trigger),
            (table.KEYS, keys),
            (table.ISSUING, issuing),
            (table.ISSUING, secret_sync),
            (table.READINESS, renewal_info),
            (table.READINESS, readiness),
        ),
        actors=enabled(
            (table.KEYS, keys),
            (table.REQUESTS, requests),
            (table.ISSUING, issuing),
            (table.ISSUING, secret_sync),
            (table.REVISIONS, revisions),
            (table.READINESS, renewal_info),
        ),
        wakers=enabled(
            (table.TRIGGER, trigger),
            (table.ISSUING, issuing),
            (table.ISSUING, secret_sync),
            (table.READINESS, renewal_info),
            (table.READINESS, readiness),
        ),
    )
