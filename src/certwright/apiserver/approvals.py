"""Who may approve: the conditions Approved and Denied of a CertificateRequest.

Adding one needs the verb `approve` on the resource `signers` of cert-manager.io, named after the issuer: all
issuers of a kind (`issuers.cert-manager.io/*`) or this one (`issuers.cert-manager.io/NAMESPACE.NAME`).

Source: cert-manager `pkg/webhook/admission/certificaterequest/approval`.
"""

from __future__ import annotations

from typing import Any

from certwright.apiserver.auth import Action
from certwright.apiserver.authorizer import Authorizer, refused
from certwright.apiserver.registry import Registry
from certwright.kit.exchange import Identity

Json = dict[str, Any]

GROUP = "cert-manager.io"
_TYPES = ("Approved", "Denied")


def may_approve(authorizer: Authorizer, registry: Registry, user: Identity, request: Json) -> bool:
    """Whether `user` may approve or deny what `request` (a CertificateRequest) asks for; nobody may where
    its issuer is of a kind that is not served."""
    return any(
        authorizer.allows(user, Action("approve", GROUP, "signers", name=name))
        for name in _signers(registry, request)
    )


def check(authorizer: Authorizer, registry: Registry, user: Identity, new: Json, old: Json | None) -> None:
    """Return when nothing was approved or denied, or `user` may do so. Raises `Forbidden`."""
    if _decisions(new) == _decisions(old or {}) or may_approve(authorizer, registry, user, new):
        return
    reference = new["spec"]["issuerRef"]
    shown = " ".join(str(reference.get(part, "")) for part in ("name", "kind", "group"))
    if _signers(registry, new):
        why = (
            f'status.conditions: Forbidden: user "{user.name}" does not have permissions to set '
            f"approved/denied conditions for issuer {{{shown}}}"
        )
    else:
        why = f"spec.issuerRef: Forbidden: referenced signer resource does not exist: {{{shown}}}"
    raise refused(GROUP, "certificaterequests", new["metadata"].get("name", ""), why)


def _decisions(request: Json) -> dict[str, Json]:
    found = (request.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition for condition in found if condition.get("type") in _TYPES}


def _signers(registry: Registry, request: Json) -> tuple[str, ...]:
    """The names of which one must be allowed; none where the issuer's kind is not served."""
    reference = request["spec"]["issuerRef"]
    definition = registry.by_kind(reference.get("group") or GROUP, reference.get("kind") or "Issuer")
    if definition is None:
        return ()
    name = reference.get("name", "")
    if definition.namespaced:
        name = f"{request['metadata'].get('namespace', '')}.{name}"
    return f"{definition.resource}/*", f"{definition.resource}/{name}"
