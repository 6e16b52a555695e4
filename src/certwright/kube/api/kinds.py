"""Kinds: how each is named in a path, in YAML and in a table, and which struct decodes it."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from certwright.kube.api.meta import ObjectMeta, OwnerReference

T = TypeVar("T")


class Kind(msgspec.Struct, Generic[T], frozen=True):
    """A kind in one version, and the type that its objects are decoded to.

    `type` is a struct for the kinds that this program reasons about, and `dict` for all others (found by
    discovery, used by the command line).
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    type: type[T]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`group/version`, or only the version for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """`plural.group`, or only the plural for the core group, as kubectl and error texts write it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """The URL path of the collection, or of one object, or of its subresource.

        `namespace` None or empty means all namespaces (or a cluster-scoped kind).
        """
        path = f"/apis/{self.group}/{self.version}/" if self.group else f"/api/{self.version}/"
        if self.namespaced and namespace:
            path += f"namespaces/{namespace}/"
        path += self.plural
        if name:
            path += f"/{name}"
        return f"{path}/{subresource}" if subresource else path


AnyKind = Kind[Any]


def controller_reference(kind: AnyKind, owner: ObjectMeta) -> OwnerReference:
    """An owner reference: the object is made for the owner of that kind, and deleted with it."""
    return OwnerReference(
        api_version=kind.api_version,
        kind=kind.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
        block_owner_deletion=True,
    )
