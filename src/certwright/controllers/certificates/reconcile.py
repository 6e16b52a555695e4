"""Run the steps of one Certificate over one snapshot, and write its status once.

A pass consists of rounds. In a round, every step first decides the status (`decide`, pure), and the status is
written if it has changed. Then the first step with another object to write does so (`act`), and the next
round begins with the resulting state. The pass ends when no step has anything to write. A kill between any
two writes thus leaves a state that an ordinary round begins with.

A step that only hands on to the next step (a key for a request, a request to be signed) changes no decision,
so the later steps continue in the same round. An issued certificate ends the pass, too; a later pass cleans
up when the queue is idle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from certwright.controllers.acme.ari_poller import AriPoller
from certwright.controllers.authorities import Authorities
from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.indexes import SUFFIX_LENGTH, owner_value, secret_value
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_filter import working_on
from certwright.controllers.cache.transforms import NeedsFullSecret, is_complete
from certwright.controllers.certificates.contention import SecretContention
from certwright.controllers.certificates.draft import Blocked, Draft, Rejected
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
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
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
        """Set the draft's status. MUST change nothing else: state that the step has to remember is a note of
        the draft. Deciding twice on one snapshot gives the same draft."""


class Acts(Protocol):
    """A step that writes other objects."""

    async def act(self, snapshot: Snapshot, effects: Effects) -> Did:
        """Make at most one write that another step continues from, and return what was done. Idempotent."""


class Wakes(Protocol):
    """A step whose answer can change with time alone."""

    def wake_at(self, snapshot: Snapshot) -> datetime | None:
        """When to reconcile again though nothing has changed; None: never."""


class NotSettling(Exception):
    """The steps of the named Certificate undo each other's work."""


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
    """The steps of one pass, in order, by their capabilities."""

    deciders: Sequence[Decides]
    actors: Sequence[Acts]
    wakers: Sequence[Wakes]


class CertificateReconciler:
    """Reconciles Certificates, one at a time. The steps are the enabled ones of `controllers/table.py`, in
    order."""

    def __init__(
        self,
        steps: Steps,
        toolbox: Toolbox,
        *,
        caches: Caches,
        authorities: Authorities,
        suffix: Callable[[int], str],
    ) -> None:
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._steps = steps
        self._caches = caches
        facts = self._facts = Facts()
        self._effects = Effects(toolbox.client, caches, facts, toolbox.executor, toolbox.recorder)
        self._status = toolbox.status_of(caches.certificates)
        self._rejections = _Rejections()
        self._client = toolbox.client
        self._executor = toolbox.executor
        self._authorities = authorities
        self._now = toolbox.now
        self._suffix = suffix

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass. Raises the errors of its writes; the queue retries."""
        with working_on(CERTIFICATES, key):
            await self._delete_orphans(key, self._caches.certificates.cache.get(key))
            full_secret: Secret | None = None
            for _ in range(_MAX_ROUNDS):
                certificate = self._caches.certificates.cache.get(key)
                if certificate is None or certificate.metadata.deletion_timestamp is not None:
                    self.dependents.keep_only(key, ())
                    return Result()
                await self._caches.complete_requests(certificate)
                await self._caches.find_rivals(certificate)
                snapshot = await self._read(certificate, full_secret=full_secret)
                if self._has_changed(certificate):
                    # The Certificate has changed during a GET of a Secret.
                    continue
                try:
                    result = await self._round(snapshot)
                except NeedsFullSecret:
                    full_secret = await self._caches.secrets.get(_target_of(certificate))
                    continue
                except NeedsVerification as needed:
                    await self._facts.verify(needed, self._now(), self._executor, key.namespace)
                    continue
                if result is not None:
                    return result
            raise NotSettling(f"Certificate {key} is still changing after {_MAX_ROUNDS} rounds")

    async def _round(self, snapshot: Snapshot) -> Result | None:
        """Decide, write the status, and act. Returns how the pass ends; None: another round must see what was
        written."""
        draft, certificate = decide(self._steps.deciders, snapshot), snapshot.certificate
        changed, current = draft.certificate, certificate
        try:
            if draft.annotations:
                # Before the status: a failure that is visible has its record.
                current = await self._effects.annotate(certificate, draft.annotations)
                changed = msgspec.structs.replace(current, status=changed.status)
            written = await self._status.commit(CERTIFICATES, current, changed)
        except NotFound:
            # Deleted since the snapshot; its watch event is on its way.
            return Result()
        log_change(certificate, written)
        for event in draft.events:
            self._effects.send_event(written, event.type, event.reason, event.message)
        for note in draft.notes:
            note.apply(*note.args)
        if written.status.revision != certificate.status.revision:
            # What is left of the issuance, such as the Secret of its key, can wait.
            return Result(when_idle=True)
        # The name of the next key may just have been chosen: read its Secret.
        is_news = written is not certificate
        seen = await self._read(written, is_fresh=True) if is_news else snapshot
        try:
            for actor in self._steps.actors if self._rejections.retry_at(seen) is None else ():
                did = await actor.act(seen, self._effects)
                if did is Did.WROTE:
                    # An earlier step may depend on the write.
                    return None
                if did is Did.HANDED_ON:
                    # Only while issuing, when all has been decided: the later steps continue.
                    seen, is_news = await self._read(written, is_fresh=seen.is_fresh), False
                    if self._has_changed(written):
                        return None
            return None if is_news else self._finished(seen)
        except Blocked as error:
            blocked = error
        except (Invalid, Forbidden) as refused:
            if not seen.is_issuing:
                raise
            blocked = Rejected(refused.reason, refused.message)
        if isinstance(blocked, Rejected):
            before, seen = seen, await self._read(written)
            self._rejections.count(before, seen)
        # The owner of the Certificate should read why.
        await self._report(blocked, seen)
        return self._finished(seen)

    def _finished(self, snapshot: Snapshot) -> Result:
        """Nothing is left to write: when to look again, and what need not be in memory until then."""
        self._strip_idle(snapshot)
        moments = [step.wake_at(snapshot) for step in self._steps.wakers]
        moments.append(self._rejections.retry_at(snapshot))
        return Result(wake_at=min((moment for moment in moments if moment is not None), default=None))

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

    async def _read(
        self, certificate: Certificate, *, full_secret: Secret | None = None, is_fresh: bool = False
    ) -> Snapshot:
        """The snapshot of the Certificate, from the caches. The target Secret has its private key if
        `full_secret` is the same Secret at the same revision."""
        meta, caches, secrets = certificate.metadata, self._caches, self._caches.secrets
        named = certificate.status.next_private_key_secret_name
        issuer = self._authorities.issuer_of(certificate)
        target = await secrets.peek(_target_of(certificate))
        if target is not None and full_secret is not None:
            is_same = (target.metadata.uid, revision_of(target)) == (
                full_secret.metadata.uid,
                revision_of(full_secret),
            )
            target = full_secret if is_same else target
        named_key = await secrets.peek(ObjectKey(meta.namespace, named)) if named else None
        next_keys = [
            secret
            for secret in await secrets.next_keys_of(owner_value(*meta.key))
            if is_controlled_by(secret.metadata, meta.uid)
        ]
        if named_key is not None and named_key not in next_keys and is_named_key(named_key, meta.uid):
            next_keys.append(named_key)
        passwords = await self._passwords(certificate) if certificate.spec.keystores else _NO_SECRETS
        authority = await self._authorities.of(issuer) if issuer is not None else ()
        # No other task runs from here on: the rest is of one moment.
        requests = caches.requests_of(owner_value(*meta.key))
        rivals = caches.certificates_for(
            secret_value(meta.namespace, certificate.spec.secret_name), but=meta.key
        )
        return Snapshot(
            certificate=certificate,
            now=self._now(),
            facts=self._facts,
            secret=target,
            requests=tuple(r for r in requests if is_controlled_by(r.metadata, meta.uid)),
            next_keys=tuple(next_keys),
            named_key=named_key,
            rivals=tuple(rivals),
            issuer=issuer,
            signer=issuer or self._authorities.signer_of(certificate),
            authority=authority,
            passwords=passwords,
            is_fresh=is_fresh,
            suffix=self._suffix(SUFFIX_LENGTH),
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

    async def _delete_orphans(self, key: ObjectKey, certificate: Certificate | None) -> None:
        """Delete what a Certificate of this name left behind when it was deleted.

        Kubernetes' garbage collector does the same, where it runs. The API server is asked first, because the
        caches of different kinds are not of the same moment.
        """
        uid = certificate.metadata.uid if certificate else ""
        owner = owner_value(*key)
        requests = [r for r in self._caches.requests_of(owner) if not is_controlled_by(r.metadata, uid)]
        next_keys = await self._caches.secrets.next_keys_of(owner)
        secrets = [s for s in next_keys if not is_controlled_by(s.metadata, uid)]
        if not requests and not secrets:
            return
        alive = ""
        with suppress(NotFound):
            certificate = await self._client.get(CERTIFICATES, key.name, key.namespace)
            self._caches.certificates.put(certificate)
            alive = certificate.metadata.uid
        for request in requests:
            if not is_controlled_by(request.metadata, alive):
                await self._effects.delete_request(request)
        for secret in secrets:
            if not is_controlled_by(secret.metadata, alive):
                await self._effects.delete_secret(secret)


def decide(deciders: Iterable[Decides], snapshot: Snapshot) -> Draft:
    """The status as all steps want it, with the Events and notes to apply after its write."""
    draft = Draft(snapshot.certificate)
    for step in deciders:
        step.decide(snapshot, draft)
        snapshot = snapshot.with_certificate(draft.certificate)
    return draft


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
            ("certificates-trigger", contention),
            ("certificates-trigger", trigger),
            ("certificates-key-manager", keys),
            ("certificates-issuing", issuing),
            ("certificates-issuing", secret_sync),
            ("certificates-readiness", renewal_info),
            ("certificates-readiness", readiness),
        ),
        actors=enabled(
            ("certificates-key-manager", keys),
            ("certificates-request-manager", requests),
            ("certificates-issuing", issuing),
            ("certificates-issuing", secret_sync),
            ("certificates-revision-manager", revisions),
            ("certificates-readiness", renewal_info),
        ),
        wakers=enabled(
            ("certificates-trigger", trigger),
            ("certificates-issuing", issuing),
            ("certificates-issuing", secret_sync),
            ("certificates-readiness", renewal_info),
            ("certificates-readiness", readiness),
        ),
    )
