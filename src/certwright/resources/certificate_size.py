"""The size of what a Certificate asks for.

A signing request is neither built nor read beyond a limit (`pki/csr.py`), so a Certificate with more names is
never issued. It is refused, because every write of its status would take a hundred times as long as that of
another one. cert-manager reads no certificate of more than 36,500 bytes of PEM (`--max-certificate-size`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from certwright.kube.api.errors import FieldError, too_many
from certwright.resources.certificate import KEY_USAGES, CertificateSpec, NameConstraintItem, X509Subject

MAX_REQUEST_BYTES: Final = 64 * 1024
"""Of a signing request, DER; `pki.csr.MAX_BYTES`."""
_LEAST_BYTES: Final = 6
"""Of a name in it: tag, length, and four bytes of an IPv4 address."""


def check_size(spec: CertificateSpec) -> list[FieldError]:
    """The error of a spec whose names cannot fit into a signing request; empty if they may."""
    if len(spec.usages) > 2 * len(KEY_USAGES):
        return [too_many("spec.usages", len(spec.usages), 2 * len(KEY_USAGES))]
    lists = dict(_lists(spec))
    # At least: each text takes its tag and length too, and a DNS name in Unicode is longer when encoded.
    sizes = {path: sum(max(len(text) + 2, _LEAST_BYTES) for text in texts) for path, texts in lists.items()}
    if sum(sizes.values()) <= MAX_REQUEST_BYTES:
        return []
    largest = max(sizes, key=sizes.__getitem__)
    detail = (
        f"Too many: {len(lists[largest])}: a signing request may have {MAX_REQUEST_BYTES} bytes, some 3000 "
        "names; distribute them over several Certificates"
    )
    return [FieldError(largest, "FieldValueTooMany", detail)]


def _lists(spec: CertificateSpec) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "spec.dnsNames", spec.dns_names
    yield "spec.ipAddresses", _without_text(spec.ip_addresses)
    yield "spec.uris", spec.uris
    yield "spec.emailAddresses", spec.email_addresses
    yield "spec.otherNames", tuple(other.utf8_value for other in spec.other_names)
    subject = spec.subject or X509Subject()
    yield "spec.subject.organizations", subject.organizations
    yield "spec.subject.countries", subject.countries
    yield "spec.subject.organizationalUnits", subject.organizational_units
    yield "spec.subject.localities", subject.localities
    yield "spec.subject.provinces", subject.provinces
    yield "spec.subject.streetAddresses", subject.street_addresses
    yield "spec.subject.postalCodes", subject.postal_codes
    constraints = spec.name_constraints
    if constraints is not None:
        for part in ("permitted", "excluded"):
            path, items = f"spec.nameConstraints.{part}", getattr(constraints, part) or NameConstraintItem()
            yield f"{path}.dnsDomains", items.dns_domains
            yield f"{path}.ipRanges", _without_text(items.ip_ranges)
            yield f"{path}.emailAddresses", items.email_addresses
            yield f"{path}.uriDomains", items.uri_domains


def _without_text(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """As many empty texts: an address is shorter in a request than in its text."""
    return ("",) * len(addresses)
