"""The definition of a built-in kind."""

from __future__ import annotations

from typing import Any

from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.kinds.native_lists import MergeKeys
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
