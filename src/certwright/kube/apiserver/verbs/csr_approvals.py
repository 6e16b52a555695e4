"""Who may approve: CertificateRequests of cert-manager, and CertificateSigningRequests of Kubernetes.

Adding the condition Approved or Denied to a CertificateRequest needs the verb `approve` on the resource
`signers` of cert-manager.io, named after the issuer: all issuers of a kind (`issuers.cert-manager.io/*`) or
this one (`issuers.cert-manager.io/NAMESPACE.NAME`). A CertificateSigningRequest names its signer itself;
there it is `approve` and `sign` on `signers` of certificates.k8s.io.

Source: cert-manager `pkg/webhook/admission/certificaterequest/approval`; Kubernetes documentation, admission
plug-ins CertificateApproval, CertificateSigning, CertificateSubjectRestriction.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from certwright.kube.api.errors import DENIED, Details, Forbidden
from certwright.kube.apiserver.auth.auth import MASTERS, go_quoted
from certwright.kube.apiserver.auth.authorizer import refused
from certwright.kube.apiserver.model.authorization import Action, Authorizer
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.util.http_messages import Identity

Json = dict[str, Any]

GROUP = "cert-manager.io"
KUBERNETES = "certificates.k8s.io"
_TYPES = ("Approved", "Denied")
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


def may_approve(authorizer: Authorizer, registry: Registry, user: Identity, request: Json) -> bool:
    """Whether `user` may approve or deny what `request` (a CertificateRequest) asks for; nobody may where
    its issuer is of a kind that is not served."""
    return any(
        authorizer.allows(user, Action("approve", GROUP, "signers", name=name))
        for name in _signers(registry, request)
    )


def concerns(definition: ResourceDefinition) -> bool:
    """Whether there is anything to approve in objects of this kind."""
    kind = definition.kind
    return (kind == "CertificateRequest" and definition.group == GROUP) or (
        kind == "CertificateSigningRequest" and definition.group == KUBERNETES
    )


def check(
    authorizer: Authorizer,
    registry: Registry,
    user: Identity,
    subresource: str,
    new: Json,
    old: Json | None,
) -> None:
    """Return when nothing was approved, denied or signed, or `user` may do so. Raises `Forbidden`."""
    if new["kind"] == "CertificateRequest":
        _check_request(authorizer, registry, user, new, old)
    else:
        _check_signing_request(authorizer, user, subresource, new, old)


def _check_request(
    authorizer: Authorizer, registry: Registry, user: Identity, new: Json, old: Json | None
) -> None:
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
    # In the words of cert-manager's webhook, with the code of a missing permission.
    details = Details(name=new["metadata"].get("name", ""), group=GROUP, kind="certificaterequests")
    raise Forbidden(f"{DENIED}{why}", details=details)


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


def _check_signing_request(
    authorizer: Authorizer, user: Identity, subresource: str, new: Json, old: Json | None
) -> None:
    name, signer = new["metadata"].get("name", ""), new["spec"].get("signerName", "")
    if old is None:
        if signer == _CLIENT_SIGNER and MASTERS in _organizations(new):
            why = f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise refused(KUBERNETES, "certificatesigningrequests", name, why)
        return
    verb = "approve" if subresource == "approval" else "sign" if _signed(new) != _signed(old) else ""
    names = (signer, f"{signer.partition('/')[0]}/*")
    if verb and not any(authorizer.allows(user, Action(verb, KUBERNETES, "signers", name=n)) for n in names):
        why = f"user not permitted to {verb} requests with signerName {go_quoted(signer)}"
        raise refused(KUBERNETES, "certificatesigningrequests", name, why)


def _signed(request: Json) -> tuple[Any, Any]:
    status = request.get("status") or {}
    return status.get("certificate"), status.get("conditions")


def _organizations(request: Json) -> set[str]:
    """The groups that the wanted certificate would put its user into; none where the CSR cannot be read."""
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(request["spec"].get("request", "")))
    except (ValueError, binascii.Error):
        return set()
    return {str(name.value) for name in csr.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)}
