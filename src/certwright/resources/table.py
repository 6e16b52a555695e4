"""The kinds that the controllers use."""

from __future__ import annotations

from typing import Final

from certwright.kube.api.kinds import AnyKind, Kind
from certwright.resources.certificate import Certificate
from certwright.resources.challenge import Challenge
from certwright.resources.delivery import Delivery
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.issuer_set import ClusterIssuerSet, IssuerSet
from certwright.resources.names import ACME_GROUP, GROUP, SETS_GROUP
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

ISSUER_SETS: Final = Kind(
    SETS_GROUP, "v1alpha1", "IssuerSet", "issuersets", "issuerset", True, IssuerSet, (), _OURS
)
CLUSTER_ISSUER_SETS: Final = Kind(
    SETS_GROUP,
    "v1alpha1",
    "ClusterIssuerSet",
    "clusterissuersets",
    "clusterissuerset",
    False,
    ClusterIssuerSet,
    (),
    _OURS,
)

DELIVERIES: Final = Kind(
    SETS_GROUP, "v1alpha1", "Delivery", "deliveries", "delivery", True, Delivery, (), _OURS
)

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


OUR_KINDS: Final[tuple[AnyKind, ...]] = (
    CERTIFICATES,
    CERTIFICATE_REQUESTS,
    ISSUERS,
    CLUSTER_ISSUERS,
    ORDERS,
    CHALLENGES,
    ISSUER_SETS,
    CLUSTER_ISSUER_SETS,
    DELIVERIES,
)
"""The six kinds of cert-manager's API, the sets of issuers, and deliveries."""
