"""Our kinds with objects as plain JSON.

For commands: loading no structs saves them a twentieth of their time, and they show fields of a newer server
instead of dropping them. `table.py` adds the structs for the controllers.
"""

from __future__ import annotations

from typing import Any, Final

from certwright.kube.api.kinds import Kind
from certwright.resources.names import ACME_GROUP, GROUP, SETS_GROUP

JsonKind = Kind[dict[str, Any]]
_ACME: Final = ("cert-manager-acme",)


def _kind(
    group: str, version: str, kind: str, plural: str, *short_names: str, also: tuple[str, ...] = ()
) -> JsonKind:
    namespaced = not kind.startswith("Cluster")
    categories = ("cert-manager", *also)
    return Kind(group, version, kind, plural, kind.lower(), namespaced, dict, short_names, categories)


CERTIFICATES: Final = _kind(GROUP, "v1", "Certificate", "certificates", "cert", "certs")
CERTIFICATE_REQUESTS: Final = _kind(GROUP, "v1", "CertificateRequest", "certificaterequests", "cr", "crs")
ISSUERS: Final = _kind(GROUP, "v1", "Issuer", "issuers", "iss")
CLUSTER_ISSUERS: Final = _kind(GROUP, "v1", "ClusterIssuer", "clusterissuers", "ciss")
ORDERS: Final = _kind(ACME_GROUP, "v1", "Order", "orders", also=_ACME)
CHALLENGES: Final = _kind(ACME_GROUP, "v1", "Challenge", "challenges", also=_ACME)

ISSUER_SETS: Final = _kind(SETS_GROUP, "v1alpha1", "IssuerSet", "issuersets")
CLUSTER_ISSUER_SETS: Final = _kind(SETS_GROUP, "v1alpha1", "ClusterIssuerSet", "clusterissuersets")

DELIVERIES: Final = _kind(SETS_GROUP, "v1alpha1", "Delivery", "deliveries")

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
