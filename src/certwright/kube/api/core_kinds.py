"""Kubernetes' own kinds, as clients and controllers use them."""

from __future__ import annotations

from typing import Any, Final

from certwright.kube.api.core import ConfigMap, Event, Lease, Namespace, Secret, ServiceAccount
from certwright.kube.api.kinds import AnyKind, Kind

NAMESPACES: Final = Kind("", "v1", "Namespace", "namespaces", "namespace", False, Namespace, ("ns",))

SECRETS: Final = Kind("", "v1", "Secret", "secrets", "secret", True, Secret)

CONFIG_MAPS: Final = Kind("", "v1", "ConfigMap", "configmaps", "configmap", True, ConfigMap, ("cm",))

EVENTS: Final = Kind("", "v1", "Event", "events", "event", True, Event, ("ev",))

SERVICE_ACCOUNTS: Final = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True, ServiceAccount, ("sa",)
)

LEASES: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases", "lease", True, Lease)

SUBJECT_ACCESS_REVIEWS: Final[Kind[dict[str, Any]]] = Kind(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    "subjectaccessreview",
    False,
    dict,
)

CUSTOM_RESOURCE_DEFINITIONS: Final[Kind[dict[str, Any]]] = Kind(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    "customresourcedefinition",
    False,
    dict,
    ("crd", "crds"),
    ("api-extensions",),
)

CORE_KINDS: Final[tuple[AnyKind, ...]] = (
    NAMESPACES,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    SERVICE_ACCOUNTS,
    LEASES,
)
"""The kinds of Kubernetes itself that are served."""
