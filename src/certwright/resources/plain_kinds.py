"""Our kinds with objects as plain JSON.

For commands: loading no structs saves them a twentieth of their time, and they show fields of a newer server
instead of dropping them. `table.py` adds the structs for the controllers.
"""

from __future__ import annotations

from typing import Any, Final

from certwright.kube.api.kinds import Kind
from certwright.resources.names import ACME_GROUP, GROUP, SETS_GROUP

JsonKind = Kind[dict[str, Any]]
_OURS = ("cert-manager",)
_ACME = ("cert-manager", "cert-manager-acme")

CERTIFICATES: Final[JsonKind] = Kind(
    GROUP, "v1", "Certificate", "certificates", "certificate", True, dict, ("cert", "certs"), _OURS
)
CERTIFICATE_REQUESTS: Final[JsonKind] = Kind(
    GROUP,
    "v1",
    "CertificateRequest",
    "certificaterequests",
    "certificaterequest",
    True,
    dict,
    ("cr", "crs"),
    _OURS,
)
ISSUERS: Final[JsonKind] = Kind(GROUP, "v1", "Issuer", "issuers", "issuer", True, dict, ("iss",), _OURS)
CLUSTER_ISSUERS: Final[JsonKind] = Kind(
    GROUP, "v1", "ClusterIssuer", "clusterissuers", "clusterissuer", False, dict, ("ciss",), _OURS
)
ORDERS: Final[JsonKind] = Kind(ACME_GROUP, "v1", "Order", "orders", "order", True, dict, (), _ACME)
CHALLENGES: Final[JsonKind] = Kind(
    ACME_GROUP, "v1", "Challenge", "challenges", "challenge", True, dict, (), _ACME
)

ISSUER_SETS: Final[JsonKind] = Kind(
    SETS_GROUP, "v1alpha1", "IssuerSet", "issuersets", "issuerset", True, dict, (), _OURS
)
CLUSTER_ISSUER_SETS: Final[JsonKind] = Kind(
    SETS_GROUP,
    "v1alpha1",
    "ClusterIssuerSet",
    "clusterissuersets",
    "clusterissuerset",
    False,
    dict,
    (),
    _OURS,
)

DELIVERIES: Final[JsonKind] = Kind(
    SETS_GROUP, "v1alpha1", "Delivery", "deliveries", "delivery", True, dict, (), _OURS
)

CERTIFICATE_SIGNING_REQUESTS: Final[JsonKind] = Kind(
    "certificates.k8s.io",
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    "certificatesigningrequest",
    False,
    dict,
    ("csr",),
)
