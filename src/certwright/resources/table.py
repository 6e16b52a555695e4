"""The kinds that the controllers use."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec import structs

from certwright.kube.api.kinds import AnyKind, Kind
from certwright.resources import plain_kinds
from certwright.resources.acme import Challenge, Order
from certwright.resources.certificate import Certificate
from certwright.resources.delivery import Delivery
from certwright.resources.issuer import ClusterIssuer, ClusterIssuerSet, Issuer, IssuerSet
from certwright.resources.request import CertificateRequest, CertificateSigningRequest

T = TypeVar("T")


def typed(kind: AnyKind, struct: type[T]) -> Kind[T]:
    """The kind, with its objects decoded to that struct."""
    return structs.replace(kind, type=struct)


CERTIFICATES: Final = typed(plain_kinds.CERTIFICATES, Certificate)
CERTIFICATE_REQUESTS: Final = typed(plain_kinds.CERTIFICATE_REQUESTS, CertificateRequest)
ISSUERS: Final = typed(plain_kinds.ISSUERS, Issuer)
CLUSTER_ISSUERS: Final = typed(plain_kinds.CLUSTER_ISSUERS, ClusterIssuer)
ORDERS: Final = typed(plain_kinds.ORDERS, Order)
CHALLENGES: Final = typed(plain_kinds.CHALLENGES, Challenge)
ISSUER_SETS: Final = typed(plain_kinds.ISSUER_SETS, IssuerSet)
CLUSTER_ISSUER_SETS: Final = typed(plain_kinds.CLUSTER_ISSUER_SETS, ClusterIssuerSet)
DELIVERIES: Final = typed(plain_kinds.DELIVERIES, Delivery)
CERTIFICATE_SIGNING_REQUESTS: Final = typed(
    plain_kinds.CERTIFICATE_SIGNING_REQUESTS, CertificateSigningRequest
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
