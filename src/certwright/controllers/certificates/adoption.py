"""Adoption of existing Secrets: some types are never written, others are adopted with a warning.

The right to create a Certificate need not include any right to the Secrets of its namespace. So a Secret that
another part of the cluster works with, as its type says, is left alone; the keys of any other one are
replaced, as cert-manager does, but never silently."""

from __future__ import annotations

from typing import Final

from certwright.controllers.certificates.draft import Draft
from certwright.controllers.certificates.managed_fields import owned_by_us
from certwright.controllers.certificates.snapshot import Snapshot, Verdict
from certwright.kube.api import conditions
from certwright.kube.api.core import Secret
from certwright.resources import names, reasons

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


def decide(snapshot: Snapshot, draft: Draft) -> None:
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
