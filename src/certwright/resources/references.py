"""References to other objects, by name.

Source: cert-manager `pkg/apis/meta/v1/types.go`; IssuerReference is in `issuer_ref.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from certwright.kube.api.docs import doc
from certwright.kube.api.meta import Struct


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
