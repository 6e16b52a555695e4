"""String formats that Kubernetes checks in the schema of a CustomResourceDefinition.

Other formats are ignored, as Kubernetes ignores those it does not know. Of Kubernetes' own list `isbn`,
`creditcard`, `ssn` and the colors are left out.

Source: Kubernetes API reference, JSONSchemaProps v1, `format`; kube-openapi `pkg/validation/strfmt`.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime
from urllib.parse import urlsplit

from certwright.kube.apiserver.base import object_names
from certwright.kube.util.durations import parse_duration
from certwright.kube.util.memo import remembering

_DATE_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
_HOSTNAME = re.compile(r"(?=.{1,255}$)[a-zA-Z0-9]([-a-zA-Z0-9]{0,62}\.?)*[a-zA-Z0-9]?\.?", re.ASCII)
_EMAIL = re.compile(r"[^@\s<>\"]+@[^@\s<>\"]+", re.ASCII)
_MAC = re.compile(r"[0-9a-f]{2}([:-][0-9a-f]{2}){5}|([0-9a-f]{4}\.){2}[0-9a-f]{4}", re.ASCII | re.IGNORECASE)


def _uuid(version: str = "[0-9a-f]", variant: str = "[0-9a-f]") -> Callable[[str], bool]:
    pattern = re.compile(
        rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{version}[0-9a-f]{{3}}-?{variant}[0-9a-f]{{3}}-?[0-9a-f]{{12}}",
        re.ASCII | re.IGNORECASE,
    )
    return lambda text: pattern.fullmatch(text) is not None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


_parses_as_time = _parses(datetime.fromisoformat)


# Many objects contain the same time.
@remembering(most=1024, longest=35)
def _date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _parses_as_time(text.upper())


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        return False
    return True


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


FORMATS: dict[str, Callable[[str], bool]] = {
    "byte": _base64,
    "cidr": _parses(lambda text: ipaddress.ip_network(text, strict=False) if "/" in text else int("")),
    "date": _parses(date.fromisoformat),
    "datetime": _date_time,
    "duration": _parses(parse_duration),
    "email": lambda text: _EMAIL.fullmatch(text) is not None,
    "hostname": lambda text: _HOSTNAME.fullmatch(text) is not None,
    "ipv4": _parses(ipaddress.IPv4Address),
    "ipv6": _parses(ipaddress.IPv6Address),
    "k8s-long-name": lambda text: object_names.dns_subdomain(text) is None,
    "k8s-short-name": lambda text: object_names.dns_label(text) is None,
    "mac": lambda text: _MAC.fullmatch(text) is not None,
    "password": lambda _: True,
    "uri": _uri,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
}


def check_for(name: str) -> Callable[[str], bool] | None:
    """The check of a format by its name in a schema, or None where it is not checked."""
    return FORMATS.get(name) or FORMATS.get(name.replace("-", ""))


_UNCHECKED = frozenset(
    {"bsonobjectid", "isbn", "isbn10", "isbn13", "creditcard", "ssn", "hexcolor", "rgbcolor"}
)


def is_known(name: str) -> bool:
    """Whether Kubernetes knows a string format, also one that is not checked here."""
    return check_for(name) is not None or name.replace("-", "") in _UNCHECKED
