"""How schemas are named in OpenAPI documents, and how an object's own schema is dressed for them.

Source: the names that Kubernetes' documents use; Kubernetes API reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.kinds import core_schemas as meta
from certwright.apiserver.kinds.native import NativeSchema
from certwright.apiserver.kinds.native_openapi import component_name, components

Json = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"

OBJECT_META = f"{_META}.ObjectMeta"
LIST_META = f"{_META}.ListMeta"
DELETE_OPTIONS = f"{_META}.DeleteOptions"
STATUS = f"{_META}.Status"
PATCH = f"{_META}.Patch"

_PACKAGES = {
    "apiextensions.k8s.io": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions",
}


def schema_name(definition: ResourceDefinition, kind: str) -> str:
    """`io.k8s.api.core.v1.Secret`; for custom resources the group backwards, `io.cert-manager.v1.Issuer`."""
    if isinstance(definition.schema, NativeSchema):
        return f"{component_name(definition.schema.message).rpartition('.')[0]}.{kind}"
    package = _PACKAGES.get(definition.group) or ".".join(reversed(definition.group.split(".")))
    return f"{package}.{definition.version}.{kind}"


def group_version_kind(definition: ResourceDefinition, kind: str = "") -> Json:
    """What `x-kubernetes-group-version-kind` holds."""
    return {"group": definition.group, "version": definition.version, "kind": kind or definition.kind}


def own_schemas(
    definition: ResourceDefinition, metadata: Json, refer: Callable[[str], Json]
) -> Iterator[tuple[str, Json]]:
    """The schema of a kind under its name, and those that it refers to (by `refer`, from their names)."""
    name = schema_name(definition, definition.kind)
    if not isinstance(definition.schema, NativeSchema):
        yield name, _dressed(definition, definition.schema.openapi, metadata)
        return
    for part, schema in components(definition.schema.message, lambda inner: refer(component_name(inner))):
        yield part, _dressed(definition, schema, metadata) if part == name else schema


def _dressed(definition: ResourceDefinition, own: Json, metadata: Json) -> Json:
    """The schema with apiVersion, kind and metadata in front."""
    properties = {
        "apiVersion": meta.API_VERSION,
        "kind": meta.KIND,
        "metadata": {"description": "The object's metadata.", **metadata},
    }
    return {
        **own,
        "properties": {**own.get("properties", {}), **properties},
        "x-kubernetes-group-version-kind": [group_version_kind(definition)],
    }
