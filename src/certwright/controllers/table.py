"""The names of `--controllers`, each with its module: start here to find a controller.

The names are cert-manager's, so its flags still work. A separate controller of cert-manager is often a step
of a shared pass here; without its name the step is left out.

Source: cert-manager `cmd/controller/app/options/options.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from certwright.issuers.table import ISSUERS

SIGNERS: Final = "certificaterequests-issuer-"
CSR_SIGNERS: Final = "certificatesigningrequests-issuer-"
"""Both followed by the type of issuer in small letters."""

_STEPS = "controllers.certificates"

TABLE: Final[Mapping[str, str]] = {
    "issuers": "controllers.issuers",
    "clusterissuers": "controllers.issuers",
    # Not of cert-manager.
    "issuersets": "controllers.issuer_sets",
    "clusterissuersets": "controllers.issuer_sets",
    # The steps of one Certificate, in the order in which they run.
    "certificates-trigger": f"{_STEPS}.trigger",
    "certificates-key-manager": f"{_STEPS}.keys",
    "certificates-request-manager": f"{_STEPS}.requests",
    "certificates-issuing": f"{_STEPS}.issuing",
    "certificates-readiness": f"{_STEPS}.readiness",
    "certificates-revision-manager": f"{_STEPS}.requests",
    "certificates-metrics": "",
    "certificaterequests-approver": "controllers.requests.certificate_requests",
    "orders": "controllers.acme.orders",
    "challenges": "controllers.acme.challenges",
    "ingress-shim": "controllers.shims.reconcile",
    "gateway-shim": "controllers.shims.reconcile",
    "listenerset": "controllers.shims.reconcile",
    # A program of its own with cert-manager.
    "cainjector": "controllers.cainjector.reconcile",
    # Not of cert-manager; runs where a root is named.
    "deliveries": "controllers.deliveries.reconcile",
    "deliveries-lifecycle": "controllers.deliveries.lifecycle",
    **{f"{SIGNERS}{kind.lower()}": "controllers.requests.signing" for kind in ISSUERS},
    **{f"{CSR_SIGNERS}{kind.lower()}": "controllers.requests.signing_requests" for kind in ISSUERS},
}
"""The module of each, below `certwright.`; empty: it has no implementation of its own."""


def parse_enabled(text: str) -> frozenset[str]:
    """The names in a list such as `*,-certificaterequests-approver`; empty: none.

    `*` is every name except those of `CSR_SIGNERS`; `-name` leaves a name out wherever it stands. A list of
    omissions only implies `*`, as since cert-manager 1.16. Raises `ValueError` with a sentence for an unknown
    name.
    """
    items = [item for item in (part.strip() for part in text.split(",")) if item]
    for item in items:
        name = item.removeprefix("-")
        if item != "*" and name not in TABLE:
            raise ValueError(
                f'"{name}" is not the name of a controller; write *, -name to leave one out, or some of '
                f"{', '.join(TABLE)}"
            )
    chosen = {item for item in items if item in TABLE}
    if "*" in items or (items and not chosen):
        chosen |= {name for name in TABLE if not name.startswith(CSR_SIGNERS)}
    return frozenset(chosen - {item.removeprefix("-") for item in items if item.startswith("-")})


def signer_kinds(enabled: Iterable[str], family: str = SIGNERS) -> frozenset[str]:
    """The types of issuer, by their field in an issuer's spec in small letters, that may sign for `family`:
    CertificateRequests (`SIGNERS`) or Kubernetes' own (`CSR_SIGNERS`)."""
    return frozenset(name.removeprefix(family) for name in enabled if name.startswith(family))
