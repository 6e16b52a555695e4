"""The informers of IssuerSets and ClusterIssuerSets, and look-ups by name and by member."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.resources.issuer import ClusterIssuerSet, IssuerSet
from certwright.resources.references import IssuerReference
from certwright.resources.table import CLUSTER_ISSUER_SETS, CLUSTER_ISSUERS, ISSUER_SETS, ISSUERS

_BY_MEMBER: Final = "member"
AnySet = IssuerSet | ClusterIssuerSet


def issuer_value(kind: str, namespace: str, name: str) -> str:
    """The index value of an issuer or a set; those of the cluster have no namespace."""
    return f"{kind}/{namespace if kind in (ISSUERS.kind, ISSUER_SETS.kind) else ''}/{name}"


def members_of(issuer_set: AnySet) -> tuple[IssuerReference, ...]:
    """The members that may sign: Issuers of the set's own namespace and ClusterIssuers; of a ClusterIssuerSet
    only ClusterIssuers. Others are left out, in case admission, which rejects them, did not run."""
    kinds = (
        (ISSUERS.kind, CLUSTER_ISSUERS.kind) if isinstance(issuer_set, IssuerSet) else (CLUSTER_ISSUERS.kind,)
    )
    return tuple(
        member for member in issuer_set.spec.issuers if member.is_ours and member.kind_or_default in kinds
    )


class IssuerSets:
    """Follows the sets of one namespace (then without ClusterIssuerSets) or of all. A server that does not
    serve these kinds has no sets."""

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
        """The set that an object of `namespace` refers to; None if it does not exist."""
        if reference.kind == ISSUER_SETS.kind:
            return self.namespaced.cache.get(ObjectKey(namespace, reference.name))
        return self.cluster.cache.get(ObjectKey("", reference.name)) if self.cluster is not None else None

    def has_member(self, reference: IssuerReference, namespace: str, member: IssuerReference) -> bool:
        """Whether the set exists and has the member."""
        issuer_set = self.find(reference, namespace)
        return issuer_set is not None and any(member.same_issuer(other) for other in members_of(issuer_set))

    def with_member(self, issuer: str) -> list[AnySet]:
        """The sets with that issuer (see `issuer_value`) as a member."""
        sets: list[AnySet] = []
        for informer in self.informers:
            sets += informer.cache.by_index(_BY_MEMBER, issuer)
        return sets


def kind_of(issuer_set: AnySet) -> str:
    """`IssuerSet` or `ClusterIssuerSet`."""
    return ISSUER_SETS.kind if isinstance(issuer_set, IssuerSet) else CLUSTER_ISSUER_SETS.kind


def value_of(issuer_set: AnySet) -> str:
    """The index value of a set."""
    return issuer_value(kind_of(issuer_set), issuer_set.metadata.namespace, issuer_set.metadata.name)


def _members(issuer_set: AnySet) -> Iterable[str]:
    namespace = issuer_set.metadata.namespace
    return {issuer_value(member.kind_or_default, namespace, member.name) for member in members_of(issuer_set)}
