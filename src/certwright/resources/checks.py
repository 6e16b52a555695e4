"""Checks of single values, shared by the rules of several kinds. Each reports the error and the fix.

Source: as given at each; RFC 5321 §4.1.2 for mailboxes, X.660 for object identifiers.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported, required, too_long
from certwright.kube.api.naming import check_name
from certwright.kube.util.durations import format_duration, parse_duration
from certwright.kube.util.encoding import is_ip_address
from certwright.resources.certificate import KEY_USAGES
from certwright.resources.names import GROUP, SETS_GROUP
from certwright.resources.references import SET_KINDS, IssuerReference, SecretKeySelector

_LONGEST_NAME: Final = 253
"""Of an object or an API group (RFC 1123 subdomain)."""
_OID: Final = re.compile(
    r"(?:[01]\.(?:[0-9]|[1-3][0-9])|2\.(?:0|[1-9][0-9]*))(?:\.(?:0|[1-9][0-9]*))*", re.ASCII
)
_MAILBOX: Final = re.compile(r"[^\s@<>()\[\],;:\\\"]+@[^\s@<>()\[\],;:\\\"]+", re.ASCII)
_PEM_CERTIFICATE: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----\s+([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----"
)


def check_issuer_ref(ref: IssuerReference, path: str) -> list[FieldError]:
    """A name, and for our own group an existing kind; none longer than the names of objects are."""
    errors = [
        too_long(f"{path}.{name}", _LONGEST_NAME)
        for name, value in (("name", ref.name), ("kind", ref.kind), ("group", ref.group))
        if len(value or "") > _LONGEST_NAME
    ]
    if errors:
        return errors
    errors += check_given(ref.name, f"{path}.name", "must be specified; name the issuer that signs")
    if ref.group_or_default == GROUP and not ref.is_ours:
        errors.append(
            invalid(
                f"{path}.kind",
                ref.kind,
                f"must be one of Issuer or ClusterIssuer (did you forget to set {path}.group?)",
            )
        )
    if ref.group == SETS_GROUP and not ref.is_set:
        errors.append(invalid(f"{path}.kind", ref.kind, f"must be one of {' or '.join(SET_KINDS)}"))
    return errors


def check_given(text: str, path: str, fix: str) -> list[FieldError]:
    """A text that is not empty."""
    return [] if text else [required(path, fix)]


def check_one_given(parts: Iterable[object], path: str, names: str) -> list[FieldError]:
    """Exactly one of several parts is given (not None); `names` lists them for people."""
    count = sum(part is not None for part in parts)
    make = required if count == 0 else forbidden
    return [] if count == 1 else [make(path, f"give exactly one of {names}")]


def check_duration(text: str | None, path: str, *, minimum: timedelta | None = None) -> list[FieldError]:
    """A Go duration, of at least `minimum`; None is valid."""
    if text is None:
        return []
    try:
        value = parse_duration(text)
    except ValueError as error:
        return [invalid(path, text, str(error))]
    if minimum is not None and value < minimum:
        # Go's form without redundant zeros: 1h, 5m, 0s.
        shown = re.sub(r"(?<=[hm])0[ms].*", "", format_duration(minimum))
        return [invalid(path, text, f"must be at least {shown}")]
    return []


def check_one_of(value: str, path: str, known: Sequence[str]) -> list[FieldError]:
    """One of `known`, or empty."""
    return [not_supported(path, value, tuple(known))] if value and value not in known else []


def check_usages(usages: Sequence[str], path: str) -> list[FieldError]:
    """Key usages and extended key usages that the API knows."""
    return [
        not_supported(f"{path}[{number}]", usage, KEY_USAGES)
        for number, usage in enumerate(usages)
        if usage not in KEY_USAGES
    ]


def check_object_name(name: str, path: str, what: str) -> list[FieldError]:
    """A valid object name; `what` names the object in the error for a missing one."""
    if not name:
        return [required(path, f"must be specified; name {what}")]
    problem = check_name(name)
    return [invalid(path, name, problem)] if problem else []


def check_secret_key(ref: SecretKeySelector | None, path: str, *, key: bool = True) -> list[FieldError]:
    """A reference to an entry of a Secret, if given; without `key` the entry has a default."""
    if ref is None:
        return []
    errors = [] if ref.name else [required(f"{path}.name", "name the Secret")]
    if key and not ref.key:
        errors.append(required(f"{path}.key", "name the entry of the Secret"))
    return errors


def check_ip_address(text: str, path: str) -> list[FieldError]:
    """An IP address without a zone."""
    if not is_ip_address(text):
        return [invalid(path, text, "invalid IP address; write e.g. 192.0.2.1 or 2001:db8::1")]
    return [invalid(path, text, "must not have a zone (%)")] if "%" in text else []


def check_cidr(text: str, path: str) -> list[FieldError]:
    """A range of IP addresses in CIDR form."""
    try:
        if "/" in text:
            ipaddress.ip_network(text, strict=False)
            return []
    except ValueError:
        pass
    return [invalid(path, text, "is not a range of IP addresses; write e.g. 10.0.0.0/8")]


def check_email(text: str, path: str) -> list[FieldError]:
    """A bare mailbox: no display name, no angle brackets."""
    if _MAILBOX.fullmatch(text):
        return []
    return [
        invalid(path, text, "invalid email address: write only the address itself, e.g. user@example.com")
    ]


def check_visible(text: str, path: str, example: str) -> list[FieldError]:
    """Text without blanks and control characters; other scripts than ASCII are allowed."""
    if text and text.isprintable() and " " not in text:
        return []
    return [invalid(path, text, f"must not contain spaces or control characters, e.g. {example}")]


def check_uri(text: str, path: str) -> list[FieldError]:
    """Visible ASCII (RFC 5280 §4.2.1.6: uniformResourceIdentifier is an IA5String)."""
    if text.isascii():
        return check_visible(text, path, "spiffe://example.org/web")
    return [invalid(path, text, "must be ASCII; write other characters percent-encoded (RFC 3986 §2.1)")]


def check_oid(text: str, path: str) -> list[FieldError]:
    """An object identifier in dotted form."""
    if not text:
        return [required(path, "must be specified; give the object identifier of the name's type")]
    if _OID.fullmatch(text):
        return []
    return [invalid(path, text, "invalid oid syntax; write e.g. 1.3.6.1.4.1.311.20.2.3")]


def check_no_empty(values: Sequence[str], path: str) -> list[FieldError]:
    """A list without empty strings."""
    return [
        invalid(f"{path}[{number}]", value, "must not be empty; leave the item out")
        for number, value in enumerate(values)
        if not value
    ]


def check_ca_bundle(bundle: bytes, path: str) -> list[FieldError]:
    """At least one certificate in PEM. Checks only the outer structure; the consumer parses it."""
    if not bundle:
        return []
    for match in _PEM_CERTIFICATE.finditer(bundle):
        try:
            der = base64.b64decode(b"".join(match[1].split()), validate=True)
        except ValueError:
            continue
        # Every certificate is an ASN.1 SEQUENCE of more than 127 octets.
        if len(der) > 127 and der[0] == 0x30 and der[1] >= 0x80:
            return []
    detail = "holds no certificate; give one or more in PEM form, the whole base64-encoded"
    return [invalid(path, "<omitted>", detail)]
