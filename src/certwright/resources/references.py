"""References to other objects, by name, and to the issuer of a certificate.

Source: cert-manager `pkg/apis/meta/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from certwright.kube.api.meta import ObjectKey, Struct, doc
from certwright.resources.names import GROUP, SETS_GROUP


class LocalObjectReference(Struct, frozen=True, kw_only=True):
    """The name of an object in the same namespace (ClusterIssuer: the cluster resource namespace)."""

    name: Annotated[str, doc("Name of the object.")]


class SecretKeySelector(Struct, frozen=True, kw_only=True):
    """One entry of a Secret."""

    name: Annotated[str, doc("Name of the Secret.")]
    key: Annotated[str, doc("Key of the entry in the Secret's data; some fields have a default for it.")] = ""


def given(ref: SecretKeySelector | None) -> SecretKeySelector | None:
    """`ref`, or None if its name is empty: typed Go clients write `{name: ""}` for an unset reference, and
    cert-manager treats it as unset."""
    return ref if ref is not None and (ref.name or ref.key) else None


def secret_names(part: object) -> set[str]:
    """The names of the Secrets that a part of a spec refers to, at any depth."""
    if isinstance(part, SecretKeySelector | LocalObjectReference):
        return {part.name} if part.name else set()
    if isinstance(part, tuple):
        return set().union(*map(secret_names, part))
    if isinstance(part, Mapping):
        return set().union(*map(secret_names, part.values()))
    if not isinstance(part, Struct):
        return set()
    names: set[str] = set()
    for field in part.__struct_fields__:
        value = getattr(part, field)
        # A whole Secret, as opposed to an entry of one, is mostly named by a plain string.
        names |= {value} if field == "secret_name" and value else secret_names(value)
    return names


class ServiceAccountRef(Struct, frozen=True, kw_only=True):
    """A ServiceAccount for which a token is requested."""

    name: Annotated[str, doc("Name of the ServiceAccount.")]
    audiences: Annotated[
        tuple[str, ...], doc("Audiences requested for the token, besides the default ones.")
    ] = ()


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
