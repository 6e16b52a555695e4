"""Admission warnings: probable mistakes or deceptions in an accepted Certificate.

None of them is an error, because cert-manager accepts it and a CA may.

Source: RFC 1123 §2.1 and RFC 5890 for host names; RFC 9525 §6.3 for wildcards; Unicode UAX #9 for marks that
change the direction of text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from certwright.kube.api.quoting import quoted
from certwright.kube.util.addresses import is_ip_address
from certwright.resources.certificate import Certificate, CertificateSpec

_MOST: Final = 10
"""Warnings about one Certificate."""
_CHECKED: Final = 1000
"""Names that are checked, which takes 10 ms; no public CA issues for more than 100."""
_LABEL: Final = re.compile(r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?", re.ASCII | re.IGNORECASE)
_MAX_NAME: Final = 253


def warnings(certificate: Certificate) -> list[str]:
    """One sentence per warning, with field and value."""
    sentences = [*_of_subject(certificate.spec), *_of_names(certificate.spec.dns_names, "spec.dnsNames")]
    sentences += _duplicates(certificate.spec)
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


def _of_names(names: Sequence[str], path: str) -> list[str]:
    return [
        f"{path}[{number}]: {quoted(name)} {problem}"
        for number, name in enumerate(names[:_CHECKED])
        if (problem := _problem(name))
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
