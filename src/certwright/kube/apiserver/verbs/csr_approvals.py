"""Approval checks of Kubernetes' CertificateSigningRequests: the verbs `approve` and `sign` on `signers` of
certificates.k8s.io.

Source: Kubernetes documentation, admission plug-ins CertificateApproval, CertificateSigning,
CertificateSubjectRestriction.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from certwright.kube.api.quoting import quoted
from certwright.kube.apiserver.auth.auth import MASTERS
from certwright.kube.apiserver.auth.authorizer import refused
from certwright.kube.apiserver.model.authorization import Action, Authorizer
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.util.http_messages import Identity

Json = dict[str, Any]

KUBERNETES = "certificates.k8s.io"
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


def concerns(definition: ResourceDefinition) -> bool:
    """Whether objects of this kind need approval."""
    return definition.kind == "CertificateSigningRequest" and definition.group == KUBERNETES


def check(authorizer: Authorizer, user: Identity, subresource: str, new: Json, old: Json | None) -> None:
    """Return when nothing was approved, denied or signed, or `user` may do so. Raises `Forbidden`."""
    _check_signing_request(authorizer, user, subresource, new, old)


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
        why = f"user not permitted to {verb} requests with signerName {quoted(signer)}"
        raise refused(KUBERNETES, "certificatesigningrequests", name, why)


def _signed(request: Json) -> tuple[Any, Any]:
    status = request.get("status") or {}
    return status.get("certificate"), status.get("conditions")


def _organizations(request: Json) -> set[str]:
    """The organizations (groups) in the CSR's subject; none where the CSR cannot be read."""
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(request["spec"].get("request", "")))
    except (ValueError, binascii.Error):
        return set()
    return {str(name.value) for name in csr.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)}
