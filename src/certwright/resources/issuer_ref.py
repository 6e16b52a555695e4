"""Reference to the issuer of a certificate."""

from __future__ import annotations

from typing import Annotated, Final

from certwright.kube.api.docs import doc
from certwright.kube.api.meta import ObjectKey, Struct
from certwright.resources.names import GROUP, SETS_GROUP

SET_KINDS: Final = ("IssuerSet", "ClusterIssuerSet")


class IssuerReference(Struct, frozen=True, kw_only=True):
    """Names the issuer; kind and group have defaults which are applied when the reference is used."""

    name: Annotated[str, doc("Name of the issuer.")]
    kind: Annotated[
        str, doc("Kind of the issuer: Issuer (the default), ClusterIssuer, or an external one.")
    ] = ""
    group: Annotated[str, doc("API group of the issuer; cert-manager.io when it is left out.")] = ""

    @property
    def kind_or_default(self) -> str:
        """The kind, `Issuer` by default."""
        return self.kind or "Issuer"

    @property
    def group_or_default(self) -> str:
        """The group, `cert-manager.io` by default."""
        return self.group or GROUP

    @property
    def is_ours(self) -> bool:
        """Whether it names an Issuer or ClusterIssuer of our own group."""
        return self.group in ("", GROUP) and self.kind in ("", "Issuer", "ClusterIssuer")

    @property
    def is_of_our_group(self) -> bool:
        """Whether its group is cert-manager.io, whatever its kind."""
        return self.group in ("", GROUP)

    @property
    def is_set(self) -> bool:
        """Whether it names an IssuerSet or ClusterIssuerSet, one of whose members signs."""
        return self.group == SETS_GROUP and self.kind in SET_KINDS

    def same_issuer(self, other: IssuerReference) -> bool:
        """Whether both name the same issuer with defaults applied."""
        return (self.name, self.kind_or_default, self.group_or_default) == (
            other.name,
            other.kind_or_default,
            other.group_or_default,
        )


def reference_to(issuer: ObjectKey) -> IssuerReference:
    """The reference to an Issuer of our group, or, if the key has no namespace, to a ClusterIssuer."""
    kind = "Issuer" if issuer.namespace else "ClusterIssuer"
    return IssuerReference(name=issuer.name, kind=kind, group=GROUP)
