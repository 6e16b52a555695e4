"""Names of Orders, computed, so that the Order of a request is read without a list.

Loads `cryptography`: not for commands that start quickly.
"""

from __future__ import annotations

from typing import Any

import msgspec

from certwright.kube.util.decoders import convert
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.resources.acme import order_name, order_spec
from certwright.resources.issuer import ACMEIssuer
from certwright.resources.request import CertificateRequest

Json = dict[str, Any]


def order_names(request: Json, issuer: Json) -> tuple[str, ...]:
    """See `related.OrderNames`; none where the request or the issuer cannot be read."""
    try:
        typed = convert(request, CertificateRequest)
        acme = convert((issuer.get("spec") or {}).get("acme"), ACMEIssuer)
        csr = read_csr(typed.spec.request)
    except (msgspec.ValidationError, PkiError):
        return ()
    names = {"dns_names": csr.dns_names, "ip_addresses": csr.ip_addresses}
    first = order_name(typed.metadata.name, order_spec(typed, acme, common_name=csr.common_name, **names))
    return first, f"{first}-{typed.metadata.uid[:8]}"
