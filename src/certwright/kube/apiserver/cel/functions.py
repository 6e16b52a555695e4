"""CEL functions of Kubernetes, on plain Python values.

A value of a type that CEL does not have (a quantity, an address) is a tuple of strings here, its text first;
the names in `CARRIERS` stand for those types in the declarations.

Source: Kubernetes documentation, "Common Expression Language in Kubernetes", CEL community and Kubernetes
libraries; apiserver `pkg/cel/library`; Kubernetes API reference, Quantity; https://semver.org; RFC 4291 §2.2,
RFC 5952 (addresses); apimachinery `pkg/util/validation` (formats).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from itertools import islice, pairwise
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from certwright.kube.api import naming
from certwright.kube.apiserver.base import object_names as names
from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.apiserver.cel.authz import AUTHZ_FUNCTIONS
from certwright.kube.apiserver.cel.overloads import ANY, Function, Raw, member, plain
from certwright.kube.util.patterns import find_all as all_matches


def _accepted_by(parse: Callable[..., object]) -> Callable[..., bool]:
    def accepts(*args: object) -> bool:
        try:
            parse(*args)
        except ValueError:
            return False
        return True

    return accepts


# --- quantities -------------------------------------------------------------------------------------------

# Possessive, because a text may have a million digits.
_QUANTITY = re.compile(
    r"([+-]?(?:\d++\.?\d*+|\.\d++))(?:([eE])([+-]?\d++)|([KMGTPE]i|[numkMGTPE])?)", re.ASCII
)
_LONGEST = 4_000  # Integers of more digits take quadratic time.
_BINARY = {
    unit: Decimal(1024) ** (power + 1) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_INT64 = range(-(2**63), 2**63)


def _parse(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or (match[3] and abs(int(match[3])) > 18):
        raise ValueError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    number = Decimal(match[1])
    if match[2]:
        return number.scaleb(int(match[3]))
    unit = match[4] or ""
    return number * _BINARY[unit] if unit in _BINARY else number.scaleb(_DECIMAL[unit])


def _canonical(value: Decimal) -> Raw:
    # Equal quantities have equal texts, so that CEL finds them equal.
    return (format(value.normalize(), "f") if value else "0",)


def _decimal(quantity: Raw | int) -> Decimal:
    return Decimal(quantity if isinstance(quantity, int) else quantity[0])


def _fits(quantity: Raw) -> bool:
    value = _decimal(quantity)
    return value == value.to_integral_value() and int(value) in _INT64


def _as_integer(quantity: Raw) -> int:
    if not _fits(quantity):
        raise ValueError("cannot convert value to integer")
    return int(_decimal(quantity))


def _sign(value: Any) -> int:
    return int(value > 0) - int(value < 0)


def _add(left: Raw, right: Raw | int) -> Raw:
    return _canonical(_decimal(left) + _decimal(right))


def _subtract(left: Raw, right: Raw | int) -> Raw:
    return _canonical(_decimal(left) - _decimal(right))


_TWO_QUANTITIES = ("Quantity", "Quantity")

QUANTITY_FUNCTIONS: dict[str, list[Function]] = {
    "quantity": [plain("string", gives="Quantity", run=lambda text: _canonical(_parse(text)))],
    "isQuantity": [plain("string", gives="bool", run=_accepted_by(_parse))],
    "sign": [member("Quantity", gives="int", run=lambda raw: _sign(_decimal(raw)))],
    "isInteger": [member("Quantity", gives="bool", run=_fits)],
    "asInteger": [member("Quantity", gives="int", run=_as_integer)],
    "asApproximateFloat": [member("Quantity", gives="double", run=lambda raw: float(_decimal(raw)))],
    "add": [member("Quantity", other, gives="Quantity", run=_add) for other in ("Quantity", "int")],
    "sub": [member("Quantity", other, gives="Quantity", run=_subtract) for other in ("Quantity", "int")],
    "isGreaterThan": [member(*_TWO_QUANTITIES, gives="bool", run=lambda a, b: _decimal(a) > _decimal(b))],
    "isLessThan": [member(*_TWO_QUANTITIES, gives="bool", run=lambda a, b: _decimal(a) < _decimal(b))],
    "compareTo": [member(*_TWO_QUANTITIES, gives="int", run=lambda a, b: _sign(_decimal(a) - _decimal(b)))],
}

# --- semantic versions ------------------------------------------------------------------------------------

_NUMBER = r"(?:0|[1-9]\d*)"
_MARK = rf"(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_MARK}(?:\.{_MARK})*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)
_LOOSE = re.compile(r"v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?", re.ASCII | re.DOTALL)

_Order = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


def _normalized(text: str) -> str:
    """Without a leading `v` and leading zeros, with all three numbers."""
    match = _LOOSE.fullmatch(text)
    if match is None:
        return text
    return ".".join(str(int(match[number] or 0)) for number in (1, 2, 3)) + (match[4] or "")


def _semver(text: str, normalize: bool = False) -> Raw:
    version = _normalized(text) if normalize else text
    if not _SEMVER.fullmatch(version):
        if version.count(".") < 2:
            raise ValueError("No Major.Minor.Patch elements found")
        raise ValueError(f'Invalid semantic version "{text}"')
    return (version,)


def _part(version: Raw, number: int) -> int:
    match = _SEMVER.fullmatch(version[0])
    assert match is not None, "made by semver()"
    return int(match[number])


def _order(version: Raw) -> _Order:
    match = _SEMVER.fullmatch(version[0])
    assert match is not None, "made by semver()"
    marks = tuple(
        (0, int(mark), "") if mark.isdigit() else (1, 0, mark) for mark in (match[4] or "").split(".") if mark
    )
    # A version with marks comes before the one without.
    return int(match[1]), int(match[2]), int(match[3]), not marks, marks


def _compare(version: Raw, other: Raw) -> int:
    a, b = _order(version), _order(other)
    return int(a > b) - int(a < b)


SEMVER_FUNCTIONS: dict[str, list[Function]] = {
    "semver": [
        plain("string", gives="Semver", run=_semver),
        plain("string", "bool", gives="Semver", run=_semver),
    ],
    "isSemver": [
        plain("string", gives="bool", run=_accepted_by(_semver)),
        plain("string", "bool", gives="bool", run=_accepted_by(_semver)),
    ],
    "isGreaterThan": [member("Semver", "Semver", gives="bool", run=lambda a, b: _compare(a, b) > 0)],
    "isLessThan": [member("Semver", "Semver", gives="bool", run=lambda a, b: _compare(a, b) < 0)],
    "compareTo": [member("Semver", "Semver", gives="int", run=_compare)],
    "major": [member("Semver", gives="int", run=lambda version: _part(version, 1))],
    "minor": [member("Semver", gives="int", run=lambda version: _part(version, 2))],
    "patch": [member("Semver", gives="int", run=lambda version: _part(version, 3))],
}


_Address = IPv4Address | IPv6Address


def _parse_ip(text: str) -> _Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        detail = f'ParseAddr("{text}"): unable to parse IP'
        raise ValueError(f'IP Address "{text}" parse error during conversion from string: {detail}') from None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped is not None:
            raise ValueError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def _ip(text: str) -> Raw:
    return (str(_parse_ip(text)),)


def _address(ip: Raw) -> _Address:
    return ipaddress.ip_address(ip[0])


def _is_global_unicast(ip: Raw) -> bool:
    address = _address(ip)
    # Go's sense: private addresses are global, too.
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or str(address) == "255.255.255.255"
    )


def _is_link_local_multicast(ip: Raw) -> bool:
    address = _address(ip)
    if isinstance(address, IPv4Address):
        return address in ipaddress.ip_network("224.0.0.0/24")
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 0x02


IP_FUNCTIONS: dict[str, list[Function]] = {
    "ip": [plain("string", gives="IP", run=_ip)],
    "isIP": [plain("string", gives="bool", run=_accepted_by(_parse_ip))],
    "ip.isCanonical": [plain("string", gives="bool", run=lambda text: str(_parse_ip(text)) == text)],
    "string": [plain("IP", gives="string", run=lambda ip: ip[0])],
    "family": [member("IP", gives="int", run=lambda ip: _address(ip).version)],
    "isUnspecified": [member("IP", gives="bool", run=lambda ip: _address(ip).is_unspecified)],
    "isLoopback": [member("IP", gives="bool", run=lambda ip: _address(ip).is_loopback)],
    "isLinkLocalMulticast": [member("IP", gives="bool", run=_is_link_local_multicast)],
    "isLinkLocalUnicast": [member("IP", gives="bool", run=lambda ip: _address(ip).is_link_local)],
    "isGlobalUnicast": [member("IP", gives="bool", run=_is_global_unicast)],
}

# --- networks ---------------------------------------------------------------------------------------------


def _cidr(text: str) -> Raw:
    address, slash, length = text.partition("/")
    wrong = f'network address parse error during conversion from string: netip.ParsePrefix("{text}")'
    if not slash:
        raise ValueError(f"{wrong}: no '/'")
    try:
        parsed = _parse_ip(address)
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}") from None
    if (
        not length.isascii()
        or not length.isdigit()
        or int(length) > parsed.max_prefixlen
        or length != str(int(length))
    ):
        raise ValueError(f'{wrong}: bad bits after slash: "{length}"')
    return str(parsed), length


def _network(cidr: Raw) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network("/".join(cidr), strict=False)


def _contains_ip(cidr: Raw, ip: Raw | str) -> bool:
    return _address(_ip(ip) if isinstance(ip, str) else ip) in _network(cidr)


def _contains_cidr(cidr: Raw, other: Raw | str) -> bool:
    outer, inner = _network(cidr), _network(_cidr(other) if isinstance(other, str) else other)
    return outer.version == inner.version and outer.overlaps(inner) and outer.prefixlen <= inner.prefixlen


def _masked(cidr: Raw) -> Raw:
    return str(_network(cidr).network_address), cidr[1]


CIDR_FUNCTIONS: dict[str, list[Function]] = {
    "cidr": [plain("string", gives="CIDR", run=_cidr)],
    "isCIDR": [plain("string", gives="bool", run=_accepted_by(_cidr))],
    "string": [plain("CIDR", gives="string", run="/".join)],
    "containsIP": [
        member("CIDR", "string", gives="bool", run=_contains_ip),
        member("CIDR", "IP", gives="bool", run=_contains_ip),
    ],
    "containsCIDR": [
        member("CIDR", "string", gives="bool", run=_contains_cidr),
        member("CIDR", "CIDR", gives="bool", run=_contains_cidr),
    ],
    "ip": [member("CIDR", gives="IP", run=lambda cidr: cidr[:1])],
    "prefixLength": [member("CIDR", gives="int", run=lambda cidr: int(cidr[1]))],
    "masked": [member("CIDR", gives="CIDR", run=_masked)],
}


# --- named formats: `format.dns1123Label().validate(x)` ---------------------------------------------------

# Kubernetes returns an optional list. Python functions cannot return optionals to CEL, so the result is a
# value with the functions of one: `hasValue`, `value`, `orValue` (apiserver `pkg/cel/library/format.go`).
_Problems = Callable[[str], list[str]]


def _of_format(name: str, problem: str) -> _Problems:
    check = check_for(name)
    assert check is not None, "a format that schemas know"
    return lambda text: [] if check(text) else [problem]


_FORMATS: dict[str, _Problems] = {
    "dns1123Label": partial(names.problems, names.dns_label),
    "dns1123Subdomain": partial(names.problems, names.dns_subdomain),
    "dns1035Label": partial(names.problems, names.dns_1035_label),
    "dns1123LabelPrefix": partial(names.problems, names.for_prefix(names.dns_label)),
    "dns1123SubdomainPrefix": partial(names.problems, names.for_prefix(names.dns_subdomain)),
    "dns1035LabelPrefix": partial(names.problems, names.for_prefix(names.dns_1035_label)),
    "qualifiedName": naming.label_key_problems,
    "labelValue": naming.label_value_problems,
    "uri": _of_format("uri", "invalid URI for request"),
    "uuid": _of_format("uuid", "does not match the UUID format"),
    "byte": _of_format("byte", "invalid base64"),
    "date": _of_format("date", "invalid date"),
    "datetime": _of_format("datetime", "invalid datetime"),
}


def _named(name: str) -> Raw:
    return (name,) if name in _FORMATS else ()


def _validate(form: Raw, text: str) -> Raw:
    return tuple(_FORMATS[form[0]](text))


def _value(violations: Raw) -> list[str]:
    if not violations:
        raise ValueError("optional.none() dereference")
    return list(violations)


FORMAT_FUNCTIONS: dict[str, list[Function]] = {
    **{f"format.{name}": [plain(gives="Format", run=lambda name=name: (name,))] for name in _FORMATS},
    "format.named": [plain("string", gives="Format", run=_named)],
    "validate": [member("Format", "string", gives="Violations", run=_validate)],
    "hasValue": [
        member("Violations", gives="bool", run=bool),
        member("Format", gives="bool", run=bool),
    ],
    "value": [
        member("Violations", gives="list(string)", run=_value),
        member("Format", gives="Format", run=lambda form: form),
    ],
    "orValue": [
        member(
            "Violations",
            "list(string)",
            gives="list(string)",
            run=lambda violations, other: list(violations) or other,
        )
    ],
}


# --- regular expressions, in linear time ------------------------------------------------------------------


def find(text: str, pattern: str) -> str:
    """The first match, or an empty text. Raises `ValueError` for an invalid pattern."""
    return next(all_matches(pattern, text), "")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """The matches from left to right, at most `limit` where that is not negative."""
    return list(islice(all_matches(pattern, text), limit if limit >= 0 else None))


# --- lists ------------------------------------------------------------------------------------------------

_COMPARABLE = ("int", "uint", "double", "bool", "string", "bytes")
_SUMMABLE = ("int", "uint", "double")


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(left <= right for left, right in pairwise(items))


def _extreme(pick: Callable[[Sequence[Any]], Any], name: str) -> Callable[[Sequence[Any]], Any]:
    def run(items: Sequence[Any]) -> Any:
        if not items:
            raise ValueError(f"{name} called on empty list")
        return pick(items)

    return run


def _index_of(items: Sequence[Any], value: Any) -> int:
    return next((index for index, item in enumerate(items) if item == value), -1)


def _last_index_of(items: Sequence[Any], value: Any) -> int:
    return next((index for index in reversed(range(len(items))) if items[index] == value), -1)


def _per_type(types: Sequence[str], run: Callable[..., Any], gives: str = "") -> list[Function]:
    return [member(f"list({name})", gives=gives or name, run=run) for name in types]


_LISTS: dict[str, list[Function]] = {
    "isSorted": _per_type(_COMPARABLE, _is_sorted, "bool"),
    "sum": _per_type(_SUMMABLE, sum),
    "min": _per_type(_COMPARABLE, _extreme(min, "min")),
    "max": _per_type(_COMPARABLE, _extreme(max, "max")),
    "indexOf": [member(f"list({ANY})", ANY, gives="int", run=_index_of)],
    "lastIndexOf": [member(f"list({ANY})", ANY, gives="int", run=_last_index_of)],
}

_REGEX: dict[str, list[Function]] = {
    "find": [member("string", "string", gives="string", run=find)],
    "findAll": [
        member("string", "string", gives="list(string)", run=find_all),
        member("string", "string", "int", gives="list(string)", run=find_all),
    ],
}

# --- URLs -------------------------------------------------------------------------------------------------

_is_uri = check_for("uri")


def _is_url(text: str) -> bool:
    return _is_uri is not None and _is_uri(text) and not any(mark in text for mark in " \t\r\n\x7f")


def _url(text: str) -> Raw:
    if not _is_url(text):
        raise ValueError(
            f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
        )
    return (text,)


def _host(url: Raw) -> str:
    return urlsplit(url[0]).netloc.rpartition("@")[2]


def _host_name(url: Raw) -> str:
    host = _host(url)
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _port(url: Raw) -> str:
    return _host(url).rpartition("]")[2].rpartition(":")[2] if ":" in _host(url).rpartition("]")[2] else ""


def _path(url: Raw) -> str:
    return quote(urlsplit(url[0]).path, safe="/%:@!$&'()*+,;=-._~")


def _query(url: Raw) -> dict[str, list[str]]:
    return parse_qs(urlsplit(url[0]).query, keep_blank_values=True)


_URLS: dict[str, list[Function]] = {
    "url": [plain("string", gives="URL", run=_url)],
    "isURL": [plain("string", gives="bool", run=_is_url)],
    "getScheme": [member("URL", gives="string", run=lambda url: urlsplit(url[0]).scheme)],
    "getHost": [member("URL", gives="string", run=_host)],
    "getHostname": [member("URL", gives="string", run=_host_name)],
    "getPort": [member("URL", gives="string", run=_port)],
    "getEscapedPath": [member("URL", gives="string", run=_path)],
    "getQuery": [member("URL", gives="map(list(string))", run=_query)],
}


def _merged(*tables: dict[str, list[Function]]) -> dict[str, list[Function]]:
    merged: dict[str, list[Function]] = {}
    for table in tables:
        for name, functions in table.items():
            merged.setdefault(name, []).extend(functions)
    return merged


FUNCTIONS = _merged(
    _LISTS,
    _REGEX,
    _URLS,
    QUANTITY_FUNCTIONS,
    SEMVER_FUNCTIONS,
    IP_FUNCTIONS,
    CIDR_FUNCTIONS,
    FORMAT_FUNCTIONS,
    AUTHZ_FUNCTIONS,
)
"""All of them by name, with their overloads."""
