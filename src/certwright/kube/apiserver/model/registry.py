"""Registry of the resources that the server currently serves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from certwright.kube.apiserver.model.definitions import ResourceDefinition

MakeDefinitions = Callable[[dict[str, Any]], tuple[ResourceDefinition, ...]]
"""From a CustomResourceDefinition to its resource definitions; empty while it is not established."""


class Group(msgspec.Struct, frozen=True):
    """A group and its versions, the preferred one first."""

    name: str
    versions: tuple[str, ...]


class Registry:
    """All definitions, by path, by kind and by resource.

    `generation` grows with every change. `made` caches what is derived from the definitions (the
    discovery documents); every change clears it.
    """

    def __init__(self, make_definitions: MakeDefinitions) -> None:
        self._builtin: tuple[ResourceDefinition, ...] = ()
        self._make_definitions = make_definitions
        self._crds: dict[str, tuple[ResourceDefinition, ...]] = {}
        self.generation = 0
        self.made: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._index()

    def set_builtin(self, builtin: Iterable[ResourceDefinition]) -> None:
        """Replace the built-in kinds (one of them needs the registry, so they are set after its creation)."""
        self._builtin = tuple(builtin)
        self._index()

    def find(self, group: str, version: str, plural: str) -> ResourceDefinition | None:
        """The definition at a path."""
        return self._by_path.get((group, version, plural))

    def by_kind(self, group: str, kind: str) -> ResourceDefinition | None:
        """The definition of a kind in its preferred version."""
        return self._by_kind.get((group, kind))

    def by_resource(self, group: str, plural: str) -> ResourceDefinition | None:
        """The definition of a resource in its preferred version."""
        return self._by_resource.get((group, plural))

    def by_bucket(self, bucket: str) -> ResourceDefinition | None:
        """The definition of the objects in a bucket, in its preferred version."""
        group, _, plural = bucket.rpartition("/")
        return self.by_resource(group, plural)

    def all(self) -> tuple[ResourceDefinition, ...]:
        """Every version of every resource: built-in ones first, then by the CRDs' names."""
        return self._all

    def groups(self) -> tuple[Group, ...]:
        """The groups in discovery order (the core group, named "", first)."""
        return self._groups

    def in_version(self, group: str, version: str) -> tuple[ResourceDefinition, ...]:
        """The resources of one version of a group."""
        return tuple(d for d in self._all if d.group == group and d.version == version)

    def put_crd(self, crd: dict[str, Any]) -> None:
        """Serve a committed CustomResourceDefinition instead of its previous state.

        Its schemas may be JSON (`msgspec.Raw`).
        """
        name = crd["metadata"]["name"]
        made = self._make_definitions(crd)
        if made or name in self._crds:
            self._crds[name] = made
            self._index()

    def drop_crd(self, name: str) -> None:
        """Stop serving the CustomResourceDefinition of that name."""
        if self._crds.pop(name, None) is not None:
            self._index()

    def crd_kinds(self, name: str) -> tuple[ResourceDefinition, ...]:
        """The definitions from the CustomResourceDefinition of that name."""
        return self._crds.get(name, ())

    def _index(self) -> None:
        custom = [definition for name in sorted(self._crds) for definition in self._crds[name]]
        self._all = (*self._builtin, *custom)
        # Definitions are in order of preference, so the first version of a kind wins.
        self._by_path = {(d.group, d.version, d.plural): d for d in self._all}
        self._by_kind = {(d.group, d.kind): d for d in reversed(self._all)}
        self._by_resource = {(d.group, d.plural): d for d in reversed(self._all)}
        self._groups = _groups(self._all)
        self.made.clear()
        self.generation += 1


def _groups(definitions: tuple[ResourceDefinition, ...]) -> tuple[Group, ...]:
    by_group: dict[str, set[str]] = {}
    for definition in definitions:
        by_group.setdefault(definition.group, set()).add(definition.version)
    return tuple(
        Group(name, tuple(sorted(versions, key=version_rank))) for name, versions in by_group.items()
    )


_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")


def version_rank(version: str) -> tuple[int, int, int, str]:
    """A sort key that puts v2 before v1 before v1beta2 before v1alpha1 before anything else.

    Source: Kubernetes documentation, "Versions in CustomResourceDefinitions", version priority.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stage, -int(match[1]), -int(match[3] or 0), version)
