"""Ownership of the target Secret and of its fields.

A Secret of a reserved type is never written. Another existing Secret is adopted with a warning, because the
right to create a Certificate need not include any right to the Secrets of its namespace. The owners of fields
are read from `managedFields`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.snapshot import Snapshot, Verdict
from certwright.kube.api import conditions
from certwright.kube.api.core import ManagedFields, Secret
from certwright.resources import names, reasons

_APPLY = "Apply"


class Part(NamedTuple):
    """One entry of a Secret: `data`, `labels` or `annotations`, and its key; `ownerReferences` and a UID."""

    section: str
    key: str

    def __str__(self) -> str:
        return (
            f"{self.section}[{self.key}]"
            if self.section == "data"
            else f"metadata.{self.section}[{self.key}]"
        )


Parts = frozenset[Part]
_SECTIONS = ("labels", "annotations", "ownerReferences")


def parts(
    *,
    data: Iterable[str] = (),
    labels: Iterable[str] = (),
    annotations: Iterable[str] = (),
    owners: Iterable[str] = (),
) -> Parts:
    """The parts with these keys; `owners` are UIDs."""
    sections = {"data": data, "labels": labels, "annotations": annotations, "ownerReferences": owners}
    return frozenset(Part(section, key) for section, keys in sections.items() for key in keys)


def owned_by_us(secret: Secret) -> Parts:
    """What we have applied to the Secret, and no other manager has taken over since."""
    entries = (e for e in secret.metadata.managed_fields if _is_ours(e))
    return frozenset().union(*(_parts(e) for e in entries))


def lacking(secret: Secret, asked: Parts) -> Parts:
    """The parts that we have not set. None without entries: an API server without managed fields would be
    sent the parts for ever."""
    return asked - owned_by_us(secret) if asked and secret.metadata.managed_fields else frozenset()


def others_that_set(secret: Secret, parts: Parts) -> tuple[str, ...]:
    """The sorted names of the other managers that own one of these parts."""
    entries = (e for e in secret.metadata.managed_fields if not _is_ours(e))
    return tuple(sorted({e.manager or "unnamed" for e in entries if _parts(e) & parts}))


def _is_ours(entry: ManagedFields) -> bool:
    return entry.manager == names.SECRET_FIELD_MANAGER and entry.operation == _APPLY


def _parts(entry: ManagedFields) -> Parts:
    return _read(bytes(entry.fields_v1)) if entry.fields_v1 is not None else frozenset()


@lru_cache(maxsize=1024)
def _read(fields: bytes) -> Parts:
    tree = msgspec.json.decode(fields)
    if not isinstance(tree, dict):
        return frozenset()
    meta = _below(tree, "metadata")
    owned = {Part("data", key) for key in _names(_below(tree, "data"))}
    for section in _SECTIONS:
        owned |= {Part(section, key) for key in _names(_below(meta, section))}
    return frozenset(owned)


def _below(tree: dict[str, Any], name: str) -> dict[str, Any]:
    below = tree.get(f"f:{name}")
    return below if isinstance(below, dict) else {}


def _names(tree: dict[str, Any]) -> list[str]:
    """Keys of a map (`f:name`), and UIDs of a list of owner references (`k:{"uid":"…"}`)."""
    plain = [key[2:] for key in tree if key.startswith("f:")]
    keyed = [msgspec.json.decode(key[2:]) for key in tree if key.startswith("k:")]
    return plain + [str(key["uid"]) for key in keyed if isinstance(key, dict) and "uid" in key]


RESERVED_TYPES: Final = frozenset(
    {
        "kubernetes.io/service-account-token",
        "bootstrap.kubernetes.io/token",
        "kubernetes.io/dockercfg",
        "kubernetes.io/dockerconfigjson",
        "kubernetes.io/basic-auth",
        "kubernetes.io/ssh-auth",
        "helm.sh/release.v1",
    }
)
"""Types of Secrets with credentials or state of other components, and never a certificate."""


def secret_has_reserved_type(snapshot: Snapshot) -> Verdict | None:
    """The target Secret is of a type that is never written."""
    secret = snapshot.secret
    if secret is None or secret.type not in RESERVED_TYPES:
        return None
    return Verdict(
        reasons.RESERVED_SECRET,
        f'Secret "{secret.metadata.name}" exists and is of type {secret.type}, which is never overwritten '
        "with a certificate; give this Certificate another spec.secretName",
    )


def decide_adoption(snapshot: Snapshot, draft: Draft) -> None:
    """Keep the condition `SecretAdopted`, with an Event when it begins; an Event too where a type forbids it.

    The condition is set before anything is written: afterwards the Secret looks like one of ours.
    """
    secret, certificate = snapshot.secret, snapshot.certificate
    condition = conditions.find(certificate.status.conditions, reasons.SECRET_ADOPTED)
    if secret is None:
        if condition is not None:
            draft.remove_condition(reasons.SECRET_ADOPTED)
        return
    if (reserved := secret_has_reserved_type(snapshot)) is not None:
        ready = conditions.find(certificate.status.conditions, reasons.READY)
        if ready is None or ready.message != reserved.message:
            draft.add_event("Warning", reserved.reason, reserved.message)
        return
    if not is_foreign(secret, certificate.metadata.name):
        return
    message = (
        f'Secret "{secret.metadata.name}" existed before and was not made for this Certificate; its tls.crt, '
        "tls.key and ca.crt belong to this Certificate now. If that was not intended, restore them from a "
        "backup and give this Certificate another spec.secretName"
    )
    if condition is None or condition.message != message:
        draft.set_condition(reasons.SECRET_ADOPTED, "True", reasons.FOREIGN_SECRET, message, now=snapshot.now)
        draft.add_event("Warning", reasons.SECRET_ADOPTED, message)


def is_foreign(secret: Secret, certificate: str) -> bool:
    """Whether the Secret was neither made nor last written for the Certificate of that name, here or by
    cert-manager."""
    return secret.metadata.annotations.get(names.CERTIFICATE_NAME) != certificate and not owned_by_us(secret)
