"""Filters by shard: which Certificate an object belongs to, read from its bytes without decoding all of it.

Replicas that share the work (`shards.py`) need not cache each other's objects. An object that cannot be
parsed is kept, because its decoder reports the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import (
    Object,
    ObjectKey,
    ObjectMeta,
    Owned,
    OwnerReference,
    Struct,
    controller_of,
)
from certwright.kube.util.decoders import decoded_or_none, json_decoder
from certwright.resources import names
from certwright.resources.acme import Order
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES

Mine = Callable[[ObjectKey], bool]
"""Whether a Certificate or an issuer of that name is one that this replica works on."""
Keep = Callable[[msgspec.Raw], bool]


class _Owned(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _CertificateMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    owner_references: tuple[OwnerReference, ...] = ()


class _Owners(Struct, frozen=True):
    metadata: _CertificateMeta = _CertificateMeta()


class _Target(Struct, frozen=True):
    secret_name: str = ""


class _Failure(Struct, frozen=True):
    last_failure_time: str | None = None


class _Certificate(Struct, frozen=True):
    metadata: _CertificateMeta = _CertificateMeta()
    spec: _Target = _Target()
    status: _Failure = _Failure()


_owned: msgspec.json.Decoder[_Owned] = json_decoder(_Owned)
_owners: msgspec.json.Decoder[_Owners] = json_decoder(_Owners)
_certificate: msgspec.json.Decoder[_Certificate] = json_decoder(_Certificate)


def owning_certificate(obj: Owned) -> str | None:
    """The name of the Certificate that controls the object; None without one."""
    owner = controller_of(obj.metadata)
    if owner is None or owner.kind != CERTIFICATES.kind or owner.api_version != CERTIFICATES.api_version:
        return None
    return owner.name


def is_owned_by_certificate(raw: msgspec.Raw) -> bool:
    """Whether a Certificate controls the object."""
    obj = decoded_or_none(_owners, raw)
    return obj is not None and owning_certificate(obj) is not None


def owning_request(order: Order) -> ObjectKey | None:
    """The key of the CertificateRequest that controls the Order; None if another kind does, e.g. a
    CertificateSigningRequest, which may have the same name."""
    owner = controller_of(order.metadata)
    if owner is None or owner.kind != CERTIFICATE_REQUESTS.kind:
        return None
    return ObjectKey(order.metadata.namespace, owner.name)


def target_of(raw: msgspec.Raw) -> str:
    """`namespace/name` of the target Secret of a Certificate; empty for what cannot be read."""
    certificate = decoded_or_none(_certificate, raw)
    return "" if certificate is None else f"{certificate.metadata.namespace}/{certificate.spec.secret_name}"


def keep_certificates(mine: Mine, targeting: Callable[[str], Sequence[ObjectKey]]) -> Keep:
    """Keep Certificates that are `mine`, Certificates of an Ingress or the like that is `mine`, Certificates
    that share a target Secret with one of mine (`targeting` lists the Certificates of a target Secret), and
    Certificates whose last attempt failed, because they show the state of their issuers."""

    def keep(raw: msgspec.Raw) -> bool:
        certificate = decoded_or_none(_certificate, raw)
        if certificate is None or certificate.status.last_failure_time is not None:
            return True
        meta = certificate.metadata
        owners = (owner.name for owner in meta.owner_references if owner.controller)
        is_mine = any(mine(ObjectKey(meta.namespace, name)) for name in (meta.name, *owners))
        return is_mine or any(map(mine, targeting(f"{meta.namespace}/{certificate.spec.secret_name}")))

    return keep


def keep_requests(mine: Mine) -> Keep:
    """Keep the requests of Certificates that are `mine`, and requests without a Certificate whose own key
    is."""

    def keep(raw: msgspec.Raw) -> bool:
        request = decoded_or_none(_owned, raw)
        return request is None or mine(_belongs_to(request))

    return keep


def keep_secrets(mine: Mine) -> Keep:
    """Keep the Secrets of Certificates that are `mine`, and Secrets of no Certificate."""

    def keep(raw: msgspec.Raw) -> bool:
        secret = decoded_or_none(_owned, raw)
        if secret is None:
            return True
        named = secret.metadata.annotations.get(names.CERTIFICATE_NAME) or owning_certificate(secret)
        return not named or mine(ObjectKey(secret.metadata.namespace, named))

    return keep


def _belongs_to(obj: Object) -> ObjectKey:
    name = owning_certificate(obj)
    return ObjectKey(obj.metadata.namespace, obj.metadata.name if name is None else name)


_worked_on: ContextVar[tuple[AnyKind, ObjectKey] | None] = ContextVar("worked on", default=None)


@contextmanager
def working_on(kind: AnyKind, key: ObjectKey) -> Iterator[None]:
    """Within this context, writes by this task are own writes of that object's reconcile."""
    token = _worked_on.set((kind, key))
    try:
        yield
    finally:
        _worked_on.reset(token)


def is_own_write(kind: AnyKind, key: ObjectKey) -> bool:
    """Whether the current event is a write by the running reconcile of that very object. Watch events arrive
    in another task, and never are."""
    cached = _worked_on.get()
    return cached is not None and cached[0] is kind and cached[1] == key
