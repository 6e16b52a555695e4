"""The names of `--controllers`, one row for each: start here to find a controller.

The names are cert-manager's, so that its flags can be kept. Where cert-manager runs a separate controller, we
often run a step of a shared pass; leaving a name out leaves that part out.

Source: cert-manager `cmd/controller/app/options/options.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec


class Row(msgspec.Struct, frozen=True):
    """One name. `module` is its implementation, below `certwright.`; empty: there is none. `default` says
    whether `*` includes it."""

    name: str
    module: str = ""
    default: bool = True


ISSUERS: Final = "issuers"
CLUSTER_ISSUERS: Final = "clusterissuers"
ISSUER_SETS: Final = "issuersets"
CLUSTER_ISSUER_SETS: Final = "clusterissuersets"
TRIGGER: Final = "certificates-trigger"
KEYS: Final = "certificates-key-manager"
REQUESTS: Final = "certificates-request-manager"
ISSUING: Final = "certificates-issuing"
READINESS: Final = "certificates-readiness"
REVISIONS: Final = "certificates-revision-manager"
APPROVER: Final = "certificaterequests-approver"
SIGNERS: Final = "certificaterequests-issuer-"
CSR_SIGNERS: Final = "certificatesigningrequests-issuer-"
"""Both followed by the kind of issuer in small letters."""
ORDERS: Final = "orders"
CHALLENGES: Final = "challenges"
INGRESS_SHIM: Final = "ingress-shim"
GATEWAY_SHIM: Final = "gateway-shim"
LISTENER_SETS: Final = "listenerset"
CA_INJECTOR: Final = "cainjector"
DELIVERIES: Final = "deliveries"

_STEPS = "controllers.certificates"

TABLE: Final[tuple[Row, ...]] = (
    Row(ISSUERS, "controllers.issuers"),
    Row(CLUSTER_ISSUERS, "controllers.issuers"),
    # Not of cert-manager.
    Row(ISSUER_SETS, "controllers.issuer_sets"),
    Row(CLUSTER_ISSUER_SETS, "controllers.issuer_sets"),
    # The steps of one Certificate, in the order in which they run.
    Row(TRIGGER, f"{_STEPS}.trigger"),
    Row(KEYS, f"{_STEPS}.keys"),
    Row(REQUESTS, f"{_STEPS}.requests"),
    Row(ISSUING, f"{_STEPS}.issuing"),
    Row(READINESS, f"{_STEPS}.readiness"),
    Row(REVISIONS, f"{_STEPS}.requests"),
    Row("certificates-metrics"),
    Row(APPROVER, "controllers.requests.certificate_requests"),
    Row(f"{SIGNERS}ca", "controllers.requests.signing"),
    Row(f"{SIGNERS}selfsigned", "controllers.requests.signing"),
    Row(f"{SIGNERS}acme", "controllers.requests.signing"),
    Row(f"{SIGNERS}vault", "controllers.requests.signing"),
    Row(f"{SIGNERS}venafi", "controllers.requests.signing"),
    Row(ORDERS, "controllers.acme.orders"),
    Row(CHALLENGES, "controllers.acme.challenges"),
    Row(INGRESS_SHIM, "controllers.shims.reconcile"),
    Row(GATEWAY_SHIM, "controllers.shims.reconcile"),
    Row(LISTENER_SETS, "controllers.shims.reconcile"),
    # A program of its own with cert-manager.
    Row(CA_INJECTOR, "controllers.cainjector.reconcile"),
    # Not of cert-manager; runs where a root is named.
    Row(DELIVERIES, "controllers.deliveries.reconcile"),
    Row(f"{CSR_SIGNERS}ca", "controllers.requests.signing_requests", default=False),
    Row(f"{CSR_SIGNERS}selfsigned", "controllers.requests.signing_requests", default=False),
    Row(f"{CSR_SIGNERS}vault", "controllers.requests.signing_requests", default=False),
    Row(f"{CSR_SIGNERS}venafi", "controllers.requests.signing_requests", default=False),
    Row(f"{CSR_SIGNERS}acme", "controllers.requests.signing_requests", default=False),
)

_NAMES = tuple(row.name for row in TABLE)


def parse_enabled(text: str) -> frozenset[str]:
    """The names that a list such as `*,-certificaterequests-approver` stands for; empty: none.

    `*` is every name that is on by default, `-name` leaves one out wherever it stands in the list. A list
    that only leaves out means `*` too, as since cert-manager 1.16. Raises `ValueError` with a sentence for a
    name that does not exist.
    """
    items = [item for item in (part.strip() for part in text.split(",")) if item]
    for item in items:
        name = item.removeprefix("-")
        if item != "*" and name not in _NAMES:
            raise ValueError(
                f'"{name}" is not the name of a controller; write *, -name to leave one out, or some of '
                f"{', '.join(_NAMES)}"
            )
    chosen = {item for item in items if item in _NAMES}
    if "*" in items or (items and not chosen):
        chosen |= {row.name for row in TABLE if row.default}
    return frozenset(chosen - {item.removeprefix("-") for item in items if item.startswith("-")})


def signer_kinds(enabled: Iterable[str], family: str = SIGNERS) -> frozenset[str]:
    """The kinds of issuer, by their field in an issuer's spec in small letters, that may sign for `family`:
    CertificateRequests (`SIGNERS`) or Kubernetes' own (`CSR_SIGNERS`)."""
    return frozenset(name.removeprefix(family) for name in enabled if name.startswith(family))
