"""Side effects available to certificate steps: API writes, Events, log lines, key generation.

Each write puts its answer into the cache immediately, so that the same pass can continue from there. A create
whose name is taken is no error: the existing object is read into the cache, and the next round of the pass
judges it (our own, from before a crash; or another writer's).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Final

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.transforms import NeedsFullSecret, WithheldKey
from certwright.controllers.certificates import keystores
from certwright.controllers.certificates.draft import EventType, Rejected
from certwright.controllers.certificates.keystores import Store, Verdicts
from certwright.controllers.certificates.parsed import Facts, KeyFacts
from certwright.controllers.certificates.target import Content, Pair, configuration
from certwright.kit import logs
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.meta import CONTROLLER_REFERENCE, ObjectKey, changed_by_admission, removed_metadata
from certwright.kube.client.rest import Client
from certwright.kube.runtime.recorder import Recorder
from certwright.kube.util.executor import Executor
from certwright.pki import csr, keys
from certwright.resources import names, reasons
from certwright.resources.certificate import Certificate
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest
from certwright.resources.retry import read_retry
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUER_SETS, ISSUERS

CHANGED: Final = "ChangedByAdmission"


def changed_on_create(what: str, parts: Sequence[str]) -> Rejected:
    """The error for an object that the server stored changed, so that it is unusable and was deleted."""
    return Rejected(
        CHANGED,
        f"{changed_by_admission(what, parts)} It was deleted; the next attempt follows within an hour",
    )


class Did(Enum):
    """What a step has done to other objects. `WROTE`: an object that every step must see before another step
    acts. `HANDED_ON`: an object that a later step or another controller continues from, and no decision about
    the status depends on. `CLEARED`: the remains of an issuance, which no other step reads, are deleted."""

    NOTHING = "nothing"
    WROTE = "wrote"
    HANDED_ON = "handed on"
    CLEARED = "cleared"


class Effects:
    """The writes, the Events and the expensive cryptography of the certificate steps.

    Every method that writes raises `resources.errors.ApiError` or `Unreachable`, `Conflict` where the object
    has changed since the cache read it.
    """

    def __init__(
        self, client: Client, caches: Caches, facts: Facts, executor: Executor, recorder: Recorder
    ) -> None:
        self._client = client
        self._caches = caches
        self._facts = facts
        self._executor = executor
        self._recorder = recorder
        self._fitting = Verdicts()

    async def create_next_key(self, certificate: Certificate, secret: Secret) -> bool:
        """Create the Secret and return True, or read the existing Secret of that name and return False.

        Deletes the Secret and raises `Rejected` if the server stored it without its owner or its key.
        """
        meta = secret.metadata
        try:
            made = await self._client.create(SECRETS, secret)
        except AlreadyExists:
            self._caches.secrets.put(await self._client.get(SECRETS, meta.name, meta.namespace))
            return False
        self._caches.secrets.put(made)
        removed = removed_metadata(meta, made.metadata)
        what = f'Secret "{meta.name}", which contains the next private key'
        if made.data != secret.data or CONTROLLER_REFERENCE in removed:
            await self.delete_secret(made)
            raise changed_on_create(what, removed if made.data == secret.data else ("its data",))
        if removed:
            text = f"{changed_by_admission(what, removed)} The issuance continues without"
            self.send_event(certificate, "Warning", CHANGED, text)
        return True

    async def restore_label(self, secret: Secret) -> bool:
        """See `Secrets.restore_label`."""
        return await self._caches.secrets.restore_label(secret)

    async def apply_secret(self, certificate: Certificate, seen: Secret | None, content: Content) -> Secret:
        """Bring the target Secret to that content (server-side apply); `seen`: the Secret of the decision.

        With `seen` None, no fields of other managers are taken: a Secret created since then raises
        `Conflict`, and is judged first. Raises `NeedsFullSecret` if the content depends on a Secret without
        its private key.
        """
        if isinstance(content.data[names.TLS_PRIVATE_KEY_KEY], WithheldKey):
            raise NeedsFullSecret
        config = configuration(certificate, seen, content)
        made = await self._client.apply(
            SECRETS, config, field_manager=names.SECRET_FIELD_MANAGER, force=seen is not None
        )
        self._caches.secrets.put(made)
        return made

    async def annotate(self, certificate: Certificate, annotations: Mapping[str, str | None]) -> Certificate:
        """Set annotations of the Certificate; None removes one."""
        meta = certificate.metadata
        patch = {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
        written = await self._client.patch(CERTIFICATES, meta.name, meta.namespace, patch)
        if written.metadata.resource_version == meta.resource_version:
            # An admission webhook has removed them: another round would only repeat the request.
            return certificate
        self._caches.certificates.put(written)
        return written

    async def is_current(self, certificate: Certificate) -> bool:
        """Whether the API server has the Certificate in this very version; the cache then has the
        server's."""
        meta = certificate.metadata
        try:
            current = await self._client.get(CERTIFICATES, meta.name, meta.namespace)
        except NotFound:
            self._caches.certificates.forget(certificate)
            return False
        self._caches.certificates.put(current)
        return (current.metadata.uid, current.metadata.resource_version) == (meta.uid, meta.resource_version)

    async def make_keystores(
        self, stores: Sequence[Store], pair: Pair, now: datetime, namespace: str
    ) -> dict[str, bytes]:
        """The files of these key stores. Raises `Blocked` if a key store cannot be made."""
        if not stores:
            return {}
        made = await self._executor.run(lambda: keystores.make(stores, pair, now), namespace)
        for store in stores:
            self._fitting.remember(store, pair, made, fits=True)
        return made

    async def keystore_fits(
        self, store: Store, pair: Pair, data: Mapping[str, bytes], namespace: str
    ) -> bool:
        """Whether the files of this key store in `data` are as desired."""
        known = self._fitting.known(store, pair, data)
        if known is None:
            known = await self._executor.run(lambda: keystores.fits(store, pair, data), namespace)
            self._fitting.remember(store, pair, data, fits=known)
        return known

    async def delete_secret(self, secret: Secret) -> None:
        """Delete the Secret, unless another Secret has its name now."""
        meta = secret.metadata
        try:
            await self._client.delete(SECRETS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass
        self._caches.secrets.forget(secret)
        self._facts.forget_key(secret.data.get(names.TLS_PRIVATE_KEY_KEY, b""))

    def has_request(self, namespace: str, name: str) -> bool:
        """Whether a CertificateRequest of that name is known, regardless of its owner."""
        return ObjectKey(namespace, name) in self._caches.requests.cache

    def active_member(self, certificate: Certificate) -> IssuerReference | None:
        """The active member of the Certificate's issuer set; None if it has no set, or the set no such
        member."""
        reference, namespace = certificate.spec.issuer_ref, certificate.metadata.namespace
        issuer_set = self._caches.sets.find(reference, namespace) if reference.is_set else None
        return issuer_set.status.active if issuer_set is not None else None

    async def create_request(self, request: CertificateRequest) -> CertificateRequest | None:
        """Create the request and return it, or cache the existing request of that name and return None."""
        meta = request.metadata
        try:
            made = await self._client.create(CERTIFICATE_REQUESTS, request)
        except AlreadyExists:
            existing = await self._client.get(CERTIFICATE_REQUESTS, meta.name, meta.namespace)
            self._caches.requests.put(existing)
            return None
        self._caches.requests.put(made)
        return made

    async def delete_request(self, request: CertificateRequest) -> None:
        """Delete the request, unless another request has its name now."""
        meta = request.metadata
        try:
            await self._client.delete(CERTIFICATE_REQUESTS, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            pass
        self._caches.requests.forget(request)

    def send_event(self, certificate: Certificate, kind: EventType, reason: str, message: str) -> None:
        """Send an Event about the Certificate."""
        self._recorder.event(CERTIFICATES, certificate, kind, reason, message)

    async def new_key(self, plan: keys.KeyPlan, certificate: Certificate) -> bytes:
        """A new private key for the Certificate as PEM (PKCS#8)."""
        if plan.algorithm is keys.KeyAlgorithm.RSA:
            # RSA takes tens of milliseconds to seconds, so it runs off the event loop; other keys take less
            # than one. Keys have flows of their own: an issuance with a key does not wait for others' keys,
            # and the first key of a Certificate does not wait for keys of renewals.
            is_first = certificate.status.not_after is None
            flow = (certificate.metadata.namespace, "first key" if is_first else "key")
            key = await self._executor.run(lambda: keys.generate(plan), flow)
        else:
            key = keys.generate(plan)
        made = KeyFacts(key, keys.public_key_der(key), plan)
        return self._facts.encode(made, keys.KeyEncoding.PKCS8)

    async def new_csr(self, plan: csr.CsrPlan, key: KeyFacts, namespace: str) -> bytes:
        """A signing request as PEM. Raises `PkiError` where the plan contains what X.509 cannot express."""
        if key.is_slow:
            return await self._executor.run(lambda: csr.build_csr(plan, key.key), namespace)
        return csr.build_csr(plan, key.key)


_log = logging.getLogger(__name__)


def log_change(before: Certificate, after: Certificate) -> None:
    """Log what the write of a status has changed, if an operator needs to know."""
    old, new = before.status, after.status
    if new == old:
        return
    if new.revision != old.revision and new.revision is not None:
        _event(
            logging.INFO,
            "certificate renewed" if old.revision else "certificate issued",
            after,
            issuer=_issuer(after),
            secret=after.spec.secret_name,
            revision=new.revision,
            notAfter=new.not_after,
            renewal=new.renewal_time,
        )
    elif new.last_failure_time not in (None, old.last_failure_time):
        issuing = conditions.find(new.conditions, reasons.ISSUING)
        record = read_retry(after.metadata.annotations)
        _event(
            logging.WARNING,
            "issuance failed",
            after,
            issuer=_issuer(after),
            reason=issuing.reason if issuing is not None else None,
            attempts=new.failed_issuance_attempts or 1,
            nextAttempt=record.next_attempt if record is not None else None,
            notAfter=new.not_after,
            cause=issuing.message if issuing is not None else None,
        )
    elif _ready(before) is not _ready(after):
        ready = conditions.find(new.conditions, reasons.READY)
        if ready is None:
            return
        if ready.status == "True":
            _event(logging.INFO, "certificate ready", after, notAfter=new.not_after)
        elif _ready(before):
            # A changed spec is re-issued, which is the normal course.
            is_issuing = conditions.is_true(new.conditions, reasons.ISSUING)
            is_normal = is_issuing and ready.reason != reasons.EXPIRED
            level = logging.INFO if is_normal else logging.WARNING
            _event(level, "certificate not ready", after, reason=ready.reason, cause=ready.message)


def log_blocked(certificate: Certificate, reason: str, message: str) -> None:
    """Log that an issuance cannot continue."""
    _event(logging.WARNING, "issuance blocked", certificate, reason=reason, cause=message)


def _event(level: int, message: str, certificate: Certificate, **values: logs.Value) -> None:
    key = certificate.metadata.key
    logs.event(_log, level, message, subject=f"Certificate/{key}", certificate=str(key), **values)


def _issuer(certificate: Certificate) -> str:
    reference, namespace = certificate.spec.issuer_ref, certificate.metadata.namespace
    if reference.kind_or_default in (ISSUERS.kind, ISSUER_SETS.kind):
        return f"{reference.kind_or_default}/{namespace}/{reference.name}"
    # The scope of external kinds is unknown.
    return f"{reference.kind_or_default}/{reference.name}"


def _ready(certificate: Certificate) -> bool | None:
    """Whether it is Ready; None before the first verdict."""
    ready = conditions.find(certificate.status.conditions, reasons.READY)
    return ready.status == "True" if ready is not None else None
