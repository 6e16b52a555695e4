"""Inject the CA that an annotation names into one object; the informers and event handlers.

Only annotated objects of these kinds are cached, and of each only its identity.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.cache.event_handlers import Add, key_of
from certwright.controllers.cache.secrets import Dependents
from certwright.controllers.cache.shard_filter import Mine
from certwright.controllers.cainjector.sources import CA, NoCA, NoRight, Reads, find_ca, merged
from certwright.controllers.cainjector.targets import Target, TargetMeta, injected, untyped
from certwright.controllers.toolbox import Toolbox
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.filtered_informer import PartialInformer
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Result
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import decoded_or_none, json_decoder
from certwright.resources.certificate import Certificate

FIELD_MANAGER: Final = "cert-manager-cainjector"
FAILED: Final = "CAInjectionFailed"
_RIGHTS_AFTER: Final = timedelta(minutes=5)
"""When a source that must not be read is tried again."""
_BY_CERTIFICATE: Final = "certificate"
_target: msgspec.json.Decoder[Target] = json_decoder(Target)


def follow_targets(client: Client, clock: Clock, kind: Kind[Target]) -> Informer[Target]:
    """An informer of the annotated objects of that kind, which the server may lack."""
    return PartialInformer(
        client,
        kind,
        clock,
        keep=_is_annotated,
        indexers={_BY_CERTIFICATE: lambda target: filter(None, (target.metadata.annotations.certificate,))},
        metadata_only=True,
        is_optional=True,
    )


def targets_of(informer: Informer[Target], certificate: ObjectKey) -> list[Target]:
    """The objects whose annotation names this Certificate."""
    return informer.cache.by_index(_BY_CERTIFICATE, str(certificate))


def enqueue_with_certificates(informer: Informer[Target], caches: Caches, add: Add) -> None:
    """Enqueue the objects that name a Certificate when it is created, deleted, or changes its Secret."""

    def changed(old: Certificate | None, new: Certificate | None) -> None:
        if old is not None and new is not None and old.spec.secret_name == new.spec.secret_name:
            return
        for target in targets_of(informer, key_of(old, new)):
            add(target.metadata.key)

    caches.certificates.add_handler(changed)


def _is_annotated(raw: msgspec.Raw) -> bool:
    target = decoded_or_none(_target, raw)
    # The informer reports what cannot be decoded.
    return target is None or target.metadata.annotations.is_given


class _Injected(msgspec.Struct, frozen=True):
    """The state of an object and its CA in which nothing needs to be written, `until` a time."""

    revision: str
    ca: bytes
    until: datetime | None

    def is_valid(self, revision: str, ca: bytes, now: datetime) -> bool:
        """Whether the object still needs nothing."""
        is_same = (self.revision, self.ca) == (revision, ca)
        return is_same and (self.until is None or self.until > now)


class CAInjector:
    """Injects CAs into the objects of one kind. Of several replicas, the replica of the Certificate injects
    its CA; `mine` None: there is one replica. `api_server_ca` is PEM, empty if unknown."""

    def __init__(
        self,
        informer: Informer[Target],
        caches: Caches,
        toolbox: Toolbox,
        *,
        api_server_ca: bytes,
        mine: Mine | None,
    ) -> None:
        self.dependents: Dependents[ObjectKey] = Dependents()
        self._informer = informer
        self._kind = informer.kind
        self._untyped = untyped(informer.kind)
        self._caches = caches
        self._toolbox = toolbox
        self._api_server_ca = api_server_ca
        self._is_mine = mine or (lambda _key: True)
        self._injected: dict[ObjectKey, _Injected] = {}
        self._reported: dict[ObjectKey, str] = {}

    async def reconcile(self, key: ObjectKey) -> Result:
        """Inject the CA, if the object lacks it. Raises the API server's errors."""
        target = self._informer.cache.get(key)
        if target is None or target.metadata.deletion_timestamp is not None:
            self.dependents.keep_only(key, ())
            self._injected.pop(key, None)
            self._reported.pop(key, None)
            return Result()
        reads = Reads(self._caches, self.dependents, key)
        try:
            ca = await find_ca(target.metadata.annotations, reads, self._api_server_ca)
        except NoCA as error:
            self.dependents.keep_only(key, reads.secrets)
            if self._reported.get(key) != str(error):
                self._reported[key] = str(error)
                self._toolbox.recorder.event(self._kind, target.for_events, "Warning", FAILED, str(error))
            return Result(wake_at=self._toolbox.now() + _RIGHTS_AFTER if isinstance(error, NoRight) else None)
        self.dependents.keep_only(key, reads.secrets)
        self._reported.pop(key, None)
        if not self._is_mine(ca.certificate or key):
            return Result()
        try:
            return Result(wake_at=await self._inject(key, target.metadata, ca))
        except NotFound:
            return Result()

    async def _inject(self, key: ObjectKey, meta: TargetMeta, ca: CA) -> datetime | None:
        now = self._toolbox.now()
        digest = sha256(b"".join(certificate.der for certificate in ca.certificates)).digest()
        known = self._injected.get(key)
        if known is not None and known.is_valid(meta.resource_version, digest, now):
            return known.until
        current = await self._toolbox.client.get(self._untyped, meta.name)
        expiries: list[datetime] = []

        def merge(existing: bytes) -> bytes:
            bundle = merged(existing, ca.certificates, now)
            expiries.extend(filter(None, (bundle.next_expiry,)))
            return bundle.pem

        fields = injected(self._kind, current, merge)
        if fields is not None:
            # The UID, because an apply would create an object that is deleted meanwhile.
            body = {"metadata": {"name": meta.name, "uid": current["metadata"]["uid"]}, **fields}
            current = await self._toolbox.client.apply(
                self._untyped, body, field_manager=FIELD_MANAGER, force=True
            )
        until = min(expiries, default=None)
        self._injected[key] = _Injected(current["metadata"]["resourceVersion"], digest, until)
        return until
