"""Approval of CertificateRequests: the verb `approve` on the resource `signers` of cert-manager.io.

The signer is named after the issuer: all issuers of a kind (`issuers.cert-manager.io/*`) or this one
(`issuers.cert-manager.io/NAMESPACE.NAME`).

Source: cert-manager `pkg/webhook/admission/certificaterequest/approval`.
"""

from __future__ import annotations

from typing import Any

from certwright.kube.api.errors import DENIED, Details, Forbidden
from certwright.kube.apiserver.model.definitions import Access
from certwright.kube.apiserver.model.routes import Action
from certwright.kube.util.http_messages import Identity
from certwright.resources.names import GROUP

Json = dict[str, Any]

_TYPES = ("Approved", "Denied")


def may_approve(access: Access, user: Identity, request: Json) -> bool:
    """Whether `user` may approve or deny `request` (a CertificateRequest); no user may where the kind of its
    issuer is not served."""
    return any(
        access.authorizer.allows(user, Action("approve", GROUP, "signers", name=name))
        for name in _signers(access, request)
    )


def check(access: Access, user: Identity, new: Json, old: Json | None) -> None:
    """Return when nothing was approved or denied, or `user` may do so. Raises `Forbidden`."""
    if _decisions(new) == _decisions(old or {}) or may_approve(access, user, new):
        return
    reference = new["spec"]["issuerRef"]
    shown = " ".join(str(reference.get(part, "")) for part in ("name", "kind", "group"))
    if _signers(access, new):
        why = (
            f'status.conditions: Forbidden: user "{user.name}" does not have permissions to set '
            f"approved/denied conditions for issuer {{{shown}}}"
        )
    else:
        why = f"spec.issuerRef: Forbidden: referenced signer resource does not exist: {{{shown}}}"
    # In the words of cert-manager's webhook, with the code of a missing permission.
    details = Details(name=new["metadata"].get("name", ""), group=GROUP, kind="certificaterequests")
    raise Forbidden(f"{DENIED}{why}", details=details)


def _decisions(request: Json) -> dict[str, Json]:
    conditions = (request.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition for condition in conditions if condition.get("type") in _TYPES}


def _signers(access: Access, request: Json) -> tuple[str, ...]:
    """The names of which one must be allowed; none where the issuer's kind is not served."""
    reference = request["spec"]["issuerRef"]
    definition = access.by_kind(reference.get("group") or GROUP, reference.get("kind") or "Issuer")
    if definition is None:
        return ()
    name = reference.get("name", "")
    if definition.namespaced:
        name = f"{request['metadata'].get('namespace', '')}.{name}"
    return f"{definition.resource}/*", f"{definition.resource}/{name}"
