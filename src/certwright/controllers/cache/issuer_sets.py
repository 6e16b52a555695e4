"""The informers of IssuerSets and ClusterIssuerSets, and look-ups by name and by member."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.resources.issuer_ref import IssuerReference
from certwright.resources.issuer_set import ClusterIssuerSet, IssuerSet
from certwright.resources.table import CLUSTER_ISSUER_SETS, CLUSTER_ISSUERS, ISSUER_SETS, ISSUERS

_BY_MEMBER: Final = "member"
AnySet = IssuerSet | ClusterIssuerSet


def issuer_value(kind: str, namespace: str, name: str) -> str:
    """The index value of an issuer or a set; those of the cluster have no namespace."""
    return f"{kind}/{namespace if kind in (ISSUERS.kind, ISSUER_SETS.kind) else ''}/{name}"


def members_of(found: AnySet) -> tuple[IssuerReference, ...]:
    """The members that may sign: Issuers of the set's own namespace and ClusterIssuers; of a ClusterIssuerSet
    ClusterIssuers only. Admission rejects others; they are left out here, in case it did not run."""
    kinds = (ISSUERS.kind, CLUSTER_ISSUERS.kind) if isinstance(found, IssuerSet) else (CLUSTER_ISSUERS.kind,)
    return tuple(one for one in found.spec.issuers if one.is_ours and one.kind_or_default in kinds)


class IssuerSets:
    """Follows the sets of one namespace or of all; with a namespace there are no ClusterIssuerSets. A server
    that does not serve these kinds has no sets."""

    def __init__(self, client: Client, clock: Clock, *, namespace: str) -> None:
        self.namespaced: Informer[IssuerSet] = Informer(
            client,
            ISSUER_SETS,
            clock,
            namespace=namespace,
            indexers={_BY_MEMBER: _members},
            is_optional=True,
        )
        self.cluster: Informer[ClusterIssuerSet] | None = None
        if not namespace:
            self.cluster = Informer(
                client, CLUSTER_ISSUER_SETS, clock, indexers={_BY_MEMBER: _members}, is_optional=True
            )

        self.changes = 0
        """How many changes of sets were seen: what was derived from them is valid while it stays."""
        for informer in self.informers:
            informer.add_handler(self._count)

    def _count(self, _old: AnySet | None, _new: AnySet | None) -> None:
        self.changes += 1

    @property
    def is_empty(self) -> bool:
        """Whether no set exists."""
        return not any(len(informer.cache) for informer in self.informers)

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """Both, or the one of the namespace."""
        return (self.namespaced,) if self.cluster is None else (self.namespaced, self.cluster)

    def find(self, reference: IssuerReference, namespace: str) -> AnySet | None:
        """The set that an object of `namespace` refers to; None where it does not exist."""
        if reference.kind == ISSUER_SETS.kind:
            return self.namespaced.cache.get(ObjectKey(namespace, reference.name))
        return self.cluster.cache.get(ObjectKey("", reference.name)) if self.cluster is not None else None

    def has_member(self, reference: IssuerReference, namespace: str, member: IssuerReference) -> bool:
        """Whether that set exists and has that member."""
        found = self.find(reference, namespace)
        return found is not None and any(member.same_issuer(one) for one in members_of(found))

    def with_member(self, issuer: str) -> list[AnySet]:
        """The sets with that issuer (see `issuer_value`) as a member."""
        found: list[AnySet] = []
        for informer in self.informers:
            found += informer.cache.by_index(_BY_MEMBER, issuer)
        return found


def kind_of(found: AnySet) -> str:
    """`IssuerSet` or `ClusterIssuerSet`."""
    return ISSUER_SETS.kind if isinstance(found, IssuerSet) else CLUSTER_ISSUER_SETS.kind


def value_of(found: AnySet) -> str:
    """The index value of a set."""
    return issuer_value(kind_of(found), found.metadata.namespace, found.metadata.name)


def _members(found: AnySet) -> Iterable[str]:
    namespace = found.metadata.namespace
    return {issuer_value(one.kind_or_default, namespace, one.name) for one in members_of(found)}
