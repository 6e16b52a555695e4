"""The kinds that are there before any CustomResourceDefinition is.

Source: Kubernetes API reference; what `kubectl api-resources` prints of a Kubernetes cluster.
"""

from __future__ import annotations

from certwright.apiserver import core_columns as columns
from certwright.apiserver import core_schemas as schemas
from certwright.apiserver import core_strategies as strategies
from certwright.apiserver import crd, names
from certwright.apiserver.definitions import ResourceDefinition, Strategy
from certwright.apiserver.registry import Registry
from certwright.apiserver.schema import Schema
from certwright.kit.clock import Clock

_META_KEYS: dict[tuple[str, ...], str] = {
    ("metadata", "ownerReferences"): "uid",
    ("metadata", "finalizers"): "",
}
"""Merge keys of strategic merge patches; an empty one says that values themselves are the keys."""

_EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "type",
)


def make_registry(clock: Clock) -> Registry:
    """A registry that holds the built-in kinds and takes CustomResourceDefinitions.

    The kind CustomResourceDefinition fills its own status (names accepted, established) when it is written,
    by what is in the registry then.
    """
    registry = Registry(crd.make_definitions)
    registry.set_builtin((*_core(), _lease(), _crd(crd.strategy(lambda: registry, clock))))
    return registry


def _core() -> tuple[ResourceDefinition, ...]:
    return (_config_map(), _event(), _namespace(), _secret(), _service_account())


def _config_map() -> ResourceDefinition:
    return ResourceDefinition(
        group="",
        version="v1",
        kind="ConfigMap",
        plural="configmaps",
        singular="configmap",
        short_names=("cm",),
        namespaced=True,
        schema=Schema(schemas.CONFIG_MAP),
        columns=columns.CONFIG_MAP,
        strategic=_META_KEYS,
        strategy=strategies.CONFIG_MAP,
    )


def _event() -> ResourceDefinition:
    return ResourceDefinition(
        group="",
        version="v1",
        kind="Event",
        plural="events",
        singular="event",
        short_names=("ev",),
        namespaced=True,
        schema=Schema(schemas.EVENT),
        columns=columns.EVENT,
        selectable_fields=_EVENT_FIELDS,
        strategic=_META_KEYS,
        strategy=strategies.EVENT,
    )


def _namespace() -> ResourceDefinition:
    return ResourceDefinition(
        group="",
        version="v1",
        kind="Namespace",
        plural="namespaces",
        singular="namespace",
        short_names=("ns",),
        namespaced=False,
        # A collection of namespaces cannot be deleted at one stroke.
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        schema=Schema(schemas.NAMESPACE),
        columns=columns.NAMESPACE,
        status_subresource=True,
        selectable_fields=("status.phase",),
        name_rule=names.dns_label,
        strategic={**_META_KEYS, ("status", "conditions"): "type"},
        strategy=strategies.NAMESPACE,
    )


def _secret() -> ResourceDefinition:
    return ResourceDefinition(
        group="",
        version="v1",
        kind="Secret",
        plural="secrets",
        singular="secret",
        namespaced=True,
        schema=Schema(schemas.SECRET),
        columns=columns.SECRET,
        selectable_fields=("type",),
        strategic=_META_KEYS,
        strategy=strategies.SECRET,
    )


def _service_account() -> ResourceDefinition:
    return ResourceDefinition(
        group="",
        version="v1",
        kind="ServiceAccount",
        plural="serviceaccounts",
        singular="serviceaccount",
        short_names=("sa",),
        namespaced=True,
        schema=Schema(schemas.SERVICE_ACCOUNT),
        columns=columns.SERVICE_ACCOUNT,
        strategic={**_META_KEYS, ("secrets",): "name", ("imagePullSecrets",): "name"},
    )


def _lease() -> ResourceDefinition:
    return ResourceDefinition(
        group="coordination.k8s.io",
        version="v1",
        kind="Lease",
        plural="leases",
        singular="lease",
        namespaced=True,
        schema=Schema(schemas.LEASE),
        columns=columns.LEASE,
        strategic=_META_KEYS,
        strategy=strategies.LEASE,
    )


def _crd(strategy: Strategy) -> ResourceDefinition:
    return ResourceDefinition(
        group="apiextensions.k8s.io",
        version="v1",
        kind="CustomResourceDefinition",
        plural="customresourcedefinitions",
        singular="customresourcedefinition",
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        namespaced=False,
        schema=Schema(schemas.CUSTOM_RESOURCE_DEFINITION),
        columns=columns.CUSTOM_RESOURCE_DEFINITION,
        status_subresource=True,
        has_generation=True,
        strategic=_META_KEYS,
        strategy=strategy,
        is_crd=True,
    )
