"""The kinds that this program reasons about."""

from __future__ import annotations

from typing import Any, Final

from certwright.kube.api.core import ConfigMap, Event, Lease, Namespace, Secret, ServiceAccount
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.resources.certificate import Certificate
from certwright.resources.challenge import Challenge
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.names import ACME_GROUP, GROUP
from certwright.resources.order import Order
from certwright.resources.request import CertificateRequest
from certwright.resources.signing_request import CertificateSigningRequest

_OURS = ("cert-manager",)
_ACME = ("cert-manager", "cert-manager-acme")

CERTIFICATES: Final = Kind(
    GROUP, "v1", "Certificate", "certificates", "certificate", True, Certificate, ("cert", "certs"), _OURS
)
CERTIFICATE_REQUESTS: Final = Kind(
    GROUP,
    "v1",
    "CertificateRequest",
    "certificaterequests",
    "certificaterequest",
    True,
    CertificateRequest,
    ("cr", "crs"),
    _OURS,
)
ISSUERS: Final = Kind(GROUP, "v1", "Issuer", "issuers", "issuer", True, Issuer, ("iss",), _OURS)
CLUSTER_ISSUERS: Final = Kind(
    GROUP, "v1", "ClusterIssuer", "clusterissuers", "clusterissuer", False, ClusterIssuer, ("ciss",), _OURS
)
ORDERS: Final = Kind(ACME_GROUP, "v1", "Order", "orders", "order", True, Order, (), _ACME)
CHALLENGES: Final = Kind(ACME_GROUP, "v1", "Challenge", "challenges", "challenge", True, Challenge, (), _ACME)

NAMESPACES: Final = Kind("", "v1", "Namespace", "namespaces", "namespace", False, Namespace, ("ns",))
SECRETS: Final = Kind("", "v1", "Secret", "secrets", "secret", True, Secret)
CONFIG_MAPS: Final = Kind("", "v1", "ConfigMap", "configmaps", "configmap", True, ConfigMap, ("cm",))
EVENTS: Final = Kind("", "v1", "Event", "events", "event", True, Event, ("ev",))
SERVICE_ACCOUNTS: Final = Kind(
    "", "v1", "ServiceAccount", "serviceaccounts", "serviceaccount", True, ServiceAccount, ("sa",)
)
LEASES: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases", "lease", True, Lease)

CERTIFICATE_SIGNING_REQUESTS: Final = Kind(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    "certificatesigningrequest",
    False,
    CertificateSigningRequest,
    ("csr",),
)
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

OUR_KINDS: Final[tuple[AnyKind, ...]] = (
    CERTIFICATES,
    CERTIFICATE_REQUESTS,
    ISSUERS,
    CLUSTER_ISSUERS,
    ORDERS,
    CHALLENGES,
)
"""The six kinds of cert-manager's API."""

CORE_KINDS: Final[tuple[AnyKind, ...]] = (
    NAMESPACES,
    SECRETS,
    CONFIG_MAPS,
    EVENTS,
    SERVICE_ACCOUNTS,
    LEASES,
)
"""The kinds of Kubernetes itself that are served."""
