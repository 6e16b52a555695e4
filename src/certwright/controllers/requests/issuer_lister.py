"""Issuer lister: the issuer of a request from the caches, whether it is ready, and the namespace of its
Secrets."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from certwright.controllers.cache.caches import Caches
from certwright.controllers.issuers import view_of
from certwright.issuers.contract import IssuerView
from certwright.kube.api import conditions
from certwright.kube.api.meta import ObjectKey
from certwright.kube.util.caches import Lru
from certwright.resources import reasons
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, Signer
from certwright.resources.table import CLUSTER_ISSUERS

# Deleted issuers are rarely looked up again.
_REMEMBERED = 1024


class IssuerState(msgspec.Struct, frozen=True):
    """An issuer as signing sees it: whether it can sign (None: not judged yet), and if not, why."""

    view: IssuerView
    ready: bool | None
    message: str


class _Known(NamedTuple):
    """An issuer, and what is derived from it."""

    issuer: Issuer | ClusterIssuer
    state: IssuerState


class KnownIssuers:
    """Lists issuers from `caches`. `enabled`: the controllers that run here. An issuer whose controller runs
    in another process counts as not ready until its status reports it."""

    def __init__(self, caches: Caches, enabled: frozenset[str], cluster_resource_namespace: str) -> None:
        self._caches = caches
        self._enabled = enabled
        self._cluster_resource_namespace = cluster_resource_namespace
        self._states: Lru[tuple[str, ObjectKey], _Known] = Lru(_REMEMBERED)

    def of_request(self, request: CertificateRequest) -> IssuerState | None:
        """The issuer of a request; None if it does not exist."""
        return self.find(request.spec.issuer_ref, request.metadata.namespace)

    def find(self, reference: IssuerReference, namespace: str) -> IssuerState | None:
        """The issuer that an object of `namespace` refers to; None where there is none of that name."""
        return self._state_of(reference.kind_or_default, namespace, reference.name)

    def of_signer(self, signer: Signer) -> IssuerState | None:
        """The issuer that a signer name means; None if it does not exist."""
        return self._state_of(signer.kind, signer.namespace, signer.name)

    def object_of(self, reference: IssuerReference, namespace: str) -> Issuer | ClusterIssuer | None:
        """The issuer itself, as the API server has it."""
        kind = reference.kind_or_default
        return self._object_at(kind, _key(kind, namespace, reference.name))

    def lacks(self, reference: IssuerReference, namespace: str) -> bool:
        """Whether it names an issuer or set of ours that does not exist, as far as is known here."""
        if reference.is_set:
            return self._caches.sets.find(reference, namespace) is None
        if reference.kind_or_default == CLUSTER_ISSUERS.kind and self._caches.cluster_issuers is None:
            return False
        return reference.is_ours and self.object_of(reference, namespace) is None

    def secrets_of(self, reference: IssuerReference, namespace: str) -> str:
        """The namespace of the Secrets of an issuer that an object of `namespace` refers to."""
        is_cluster = reference.kind_or_default == CLUSTER_ISSUERS.kind
        return self._cluster_resource_namespace if is_cluster else namespace

    def _object_at(self, kind: str, key: ObjectKey) -> Issuer | ClusterIssuer | None:
        informer = self._caches.issuers_of(kind)
        return informer.cache.get(key) if informer is not None else None

    def _state_of(self, kind: str, namespace: str, name: str) -> IssuerState | None:
        key = _key(kind, namespace, name)
        issuer = self._object_at(kind, key)
        if issuer is None:
            self._states.drop((kind, key))
            return None
        known = self._states.get((kind, key))
        # Asked some ten times for each certificate, and the same nearly always.
        if known is None or known.issuer is not issuer:
            judged_here = ("clusterissuers" if kind == CLUSTER_ISSUERS.kind else "issuers") in self._enabled
            state = IssuerState(view_of(kind, issuer), None if judged_here else False, "")
            if (ready := conditions.find(issuer.status.conditions, reasons.READY)) is not None:
                state = IssuerState(state.view, ready.status == "True", ready.message)
            known = self._states.put((kind, key), _Known(issuer, state))
        return known.state


def _key(kind: str, namespace: str, name: str) -> ObjectKey:
    return ObjectKey("" if kind == CLUSTER_ISSUERS.kind else namespace, name)
