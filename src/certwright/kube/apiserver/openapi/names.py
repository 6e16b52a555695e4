"""Names of schemas in OpenAPI documents.

Source: the names that Kubernetes' documents use; Kubernetes API reference.
"""

from __future__ import annotations

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.kinds.native_openapi import component_name
from certwright.kube.apiserver.model.definitions import ResourceDefinition

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"

OBJECT_META = f"{_META}.ObjectMeta"
LIST_META = f"{_META}.ListMeta"
DELETE_OPTIONS = f"{_META}.DeleteOptions"
STATUS = f"{_META}.Status"
PATCH = f"{_META}.Patch"


def schema_name(definition: ResourceDefinition, kind: str) -> str:
    """`io.k8s.api.core.v1.Secret`; for custom resources the group backwards, `io.cert-manager.v1.Issuer`."""
    if isinstance(definition.schema, NativeSchema):
        return f"{component_name(definition.schema.message).rpartition('.')[0]}.{kind}"
    return f"{'.'.join(reversed(definition.group.split('.')))}.{definition.version}.{kind}"


def group_version_kind(definition: ResourceDefinition, kind: str = "") -> Json:
    """The value of `x-kubernetes-group-version-kind`."""
    return {"group": definition.group, "version": definition.version, "kind": kind or definition.kind}
