"""The issuers as the local copies know them: which is meant, whether it is ready, where its Secrets lie."""

from __future__ import annotations

from certwright.controllers import table
from certwright.controllers.caches import Caches
from certwright.controllers.issuers import view_of
from certwright.controllers.signing import IssuerState
from certwright.resources import conditions, reasons
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.meta import ObjectKey
from certwright.resources.request import CertificateRequest
from certwright.resources.signing_request import Signer
from certwright.resources.table import CLUSTER_ISSUERS


class KnownIssuers:
    """Looks issuers up in `caches`. `enabled` are the controllers at work here: an issuer whose controller is
    not among them is judged by somebody else, and counts as not ready until that one has said so."""

    def __init__(self, caches: Caches, enabled: frozenset[str], cluster_resource_namespace: str) -> None:
        self._caches = caches
        self._enabled = enabled
        self._cluster_resource_namespace = cluster_resource_namespace

    def of_request(self, request: CertificateRequest) -> IssuerState | None:
        """The issuer that a request is for; None where there is none of that name."""
        return self.find(request.spec.issuer_ref, request.metadata.namespace)

    def find(self, reference: IssuerReference, namespace: str) -> IssuerState | None:
        """The issuer that an object of `namespace` refers to; None where there is none of that name."""
        return self.of_signer(Signer(reference.kind_or_default, namespace, reference.name))

    def of_signer(self, signer: Signer) -> IssuerState | None:
        """The issuer that a signer name means; None where there is none of that name."""
        is_cluster = signer.kind == CLUSTER_ISSUERS.kind
        judged_here = (table.CLUSTER_ISSUERS if is_cluster else table.ISSUERS) in self._enabled
        reference = IssuerReference(name=signer.name, kind=signer.kind)
        if (issuer := self.object_of(reference, signer.namespace)) is None:
            return None
        view = view_of(signer.kind, issuer)
        ready = conditions.find(issuer.status.conditions, reasons.READY)
        if ready is None:
            return IssuerState(view, None if judged_here else False, "")
        return IssuerState(view, ready.status == "True", ready.message)

    def object_of(self, reference: IssuerReference, namespace: str) -> Issuer | ClusterIssuer | None:
        """The issuer itself, as the API server has it."""
        if reference.kind_or_default != CLUSTER_ISSUERS.kind:
            return self._caches.issuers.cache.get(ObjectKey(namespace, reference.name))
        informer = self._caches.cluster_issuers
        return informer.cache.get(ObjectKey("", reference.name)) if informer else None

    def secrets_of(self, reference: IssuerReference, namespace: str) -> str:
        """The namespace of the Secrets of an issuer that an object of `namespace` refers to."""
        is_cluster = reference.kind_or_default == CLUSTER_ISSUERS.kind
        return self._cluster_resource_namespace if is_cluster else namespace
