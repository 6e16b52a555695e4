"""The definition of a built-in kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from certwright.kube.apiserver.kinds.messages import fields, keywords
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.model.definitions import ResourceDefinition

_CREATED_BY_PUT = frozenset(
    {
        "clusterrolebindings", "clusterroles", "endpoints", "events", "leases", "limitranges", "rolebindings",
        "roles", "services",
    }
)  # fmt: skip


def native_kind(api_version: str, kind: str, plural: str, **more: Any) -> ResourceDefinition:
    """A built-in kind, stored as Go's types would decode it."""
    group, _, version = api_version.rpartition("/")
    schema = NativeSchema(api_version, kind)
    settings: dict[str, Any] = {
        "namespaced": True,
        "unconditional_update": True,
        "create_on_update": plural in _CREATED_BY_PUT,
        "schema": schema,
        "strategic": MergeKeys(schema),
        **more,
    }
    return ResourceDefinition(
        group=group, version=version, kind=kind, plural=plural, singular=kind.lower(), **settings
    )


class MergeKeys(Mapping[tuple[str, ...], str]):
    """The merge keys of strategic merge patches by path, collected when the first patch comes. An empty key:
    the values are the keys."""

    def __init__(self, schema: NativeSchema) -> None:
        self._schema = schema

    @cached_property
    def _keys(self) -> dict[tuple[str, ...], str]:
        return dict(_collect(self._schema.message, (), frozenset()))

    def __getitem__(self, path: tuple[str, ...]) -> str:
        return self._keys[path]

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _collect(
    message: str, path: tuple[str, ...], above: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = keywords(message).get("properties", {})
    for field in fields(message):
        here, words = (*path, field.name), properties.get(field.name, {})
        if field.repeated and "merge" in words.get("x-kubernetes-patch-strategy", "").split(","):
            yield here, words.get("x-kubernetes-patch-merge-key", "")
        if field.is_message and field.type not in above:
            yield from _collect(field.type, here, above | {message})
