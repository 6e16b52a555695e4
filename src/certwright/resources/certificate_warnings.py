"""Admission warnings: probable mistakes or deceptions in an accepted Certificate.

None of them is an error, because cert-manager accepts it and a CA may.

Source: RFC 1123 §2.1 and RFC 5890 for host names; RFC 9525 §6.3 for wildcards; Unicode UAX #9 for marks that
change the direction of text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from certwright.kube.util.durations import format_duration, parse_duration
from certwright.kube.util.encoding import is_ip_address, quoted
from certwright.resources.certificate import (
    Certificate,
    CertificateSpec,
    NameConstraintItem,
    NameConstraints,
)

_MOST: Final = 10
"""Warnings about one Certificate."""
_CHECKED: Final = 1000
"""Names that are checked, which takes 10 ms; no public CA issues for more than 100."""
_LABEL: Final = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_MAX_NAME: Final = 253
_SHORTEST_PART: Final = 20
"""A renewal after less than a twentieth of the lifetime is reported, …"""
_SOON: Final = timedelta(minutes=5)
"""… and one that soon."""


def warnings(certificate: Certificate) -> list[str]:
    """One sentence per warning, with field and value."""
    sentences = _of_subject(certificate.spec)
    for number, name in enumerate(certificate.spec.dns_names[:_CHECKED]):
        if problem := _problem(name):
            sentences.append(f"spec.dnsNames[{number}]: {quoted(name)} {problem}")
    sentences += _duplicates(certificate.spec)
    sentences += _redundant(certificate.spec.dns_names)
    sentences += _of_constraints(certificate.spec.name_constraints)
    sentences += _of_renewal(certificate.spec)
    if len(sentences) > _MOST:
        sentences[_MOST:] = [f"and {len(sentences) - _MOST} more warnings"]
    return sentences


def _of_subject(spec: CertificateSpec) -> list[str]:
    texts = [("spec.commonName", spec.common_name), ("spec.literalSubject", spec.literal_subject)]
    if (subject := spec.subject) is not None:
        for name, values in (
            ("organizations", subject.organizations),
            ("organizationalUnits", subject.organizational_units),
        ):
            texts += [(f"spec.subject.{name}[{number}]", value) for number, value in enumerate(values)]
    return [
        f"{path}: {quoted(text)} has characters that are not shown, such as control characters or marks that "
        "change the direction of text"
        for path, text in texts
        if not text.isprintable()
    ]


def _problem(name: str) -> str:
    """What is unusual about a DNS name; empty for a usual one."""
    if not name.isascii():
        return "is not ASCII: the certificate gets its form with xn--; check that every letter is meant"
    if mistaken := _mistaken(name):
        return mistaken
    host = name.removeprefix("*.")
    if "*" in host:
        return "has a * that is not its whole first label: CAs refuse it, and clients do not match it"
    if len(name) > _MAX_NAME:
        return f"is longer than {_MAX_NAME} characters: it cannot be a DNS name"
    if not all(map(_LABEL.fullmatch, host.removesuffix(".").split("."))):
        return "is not a host name: its parts must be 1 to 63 letters, digits and hyphens"
    if name.endswith("."):
        # RFC 5280 §4.2.1.6: "The name MUST be in the 'preferred name syntax'", which has no final dot.
        return "ends with a dot, which no client matches: leave the dot out"
    return ""


def _mistaken(name: str) -> str:
    """What a name is instead of a DNS name: an IP address, a URL, or a host with a port; empty for none."""
    if is_ip_address(name.removeprefix("[").removesuffix("]")):
        return "is an IP address, which clients do not look for among DNS names: put it under ipAddresses"
    if "://" in name:
        return "is a URL, which no client matches: write the host name alone, or put the URL under uris"
    host, colon, port = name.rpartition(":")
    if colon and host and port.isdecimal():
        return "has a port, which no client matches: a certificate is for a host, so leave the port out"
    return ""


def _redundant(names: Sequence[str]) -> list[str]:
    """Names that a wildcard beside them covers: Let's Encrypt refuses an order for both."""
    numbers = {name.lower().removesuffix("."): number for number, name in enumerate(names[:_CHECKED])}
    return [
        f"spec.dnsNames[{number}]: {quoted(name)} is covered by {quoted(wildcard)}: public CAs refuse an "
        "order for both"
        for name, number in numbers.items()
        if (wildcard := f"*.{name.partition('.')[2]}") in numbers and wildcard != name
    ]


def _of_constraints(constraints: NameConstraints | None) -> list[str]:
    """Constraints that permit or exclude nothing that a certificate can have."""
    if constraints is None:
        return []
    sentences = []
    for part in ("permitted", "excluded"):
        item = getattr(constraints, part) or NameConstraintItem()
        lists = {
            "dnsDomains": item.dns_domains,
            "uriDomains": item.uri_domains,
            "emailAddresses": item.email_addresses,
        }
        for field, values in lists.items():
            for number, text in enumerate(values):
                if problem := _constraint_problem(field, text):
                    where = f"spec.nameConstraints.{part}.{field}[{number}]"
                    sentences.append(f"{where}: {quoted(text)} {problem}")
    return sentences


def _constraint_problem(field: str, text: str) -> str:
    local, at, domain = text.rpartition("@")
    if field == "emailAddresses" and at:
        if not local or "*" in local:
            return f"matches no address: write {quoted(domain)} for all addresses of that host"
        text = domain
    host = text.removeprefix(".")
    if mistaken := _mistaken(host):
        return f"constrains nothing: it {mistaken.partition(',')[0]}; write a domain"
    if host.isascii() and not all(map(_LABEL.fullmatch, host.split("."))):
        return "constrains nothing, because it is not a domain; write e.g. example.com"
    return ""


def _of_renewal(spec: CertificateSpec) -> list[str]:
    """A renewal that begins soon after each issuance."""
    lifetime = spec.requested_duration
    if spec.renew_before is not None:
        field, wait = "renewBefore", lifetime - parse_duration(spec.renew_before)
    elif spec.renew_before_percentage is not None:
        field, wait = "renewBeforePercentage", lifetime * (100 - spec.renew_before_percentage) / 100
    else:
        return []
    if wait * _SHORTEST_PART >= lifetime and wait >= _SOON:
        return []
    return [
        f"spec.{field}: each certificate of {format_duration(lifetime)} is renewed after "
        f"{format_duration(wait)}; public CAs allow five renewals a week"
    ]


def _duplicates(spec: CertificateSpec) -> list[str]:
    lists = {
        "dnsNames": [name.removesuffix(".").lower() for name in spec.dns_names],
        "ipAddresses": spec.ip_addresses,
        "uris": spec.uris,
        "emailAddresses": spec.email_addresses,
    }
    return [
        f"spec.{path}: {quoted(name)} is listed {count} times"
        for path, names in lists.items()
        if len(set(names)) < len(names)
        for name, count in Counter(names).items()
        if count > 1
    ]
