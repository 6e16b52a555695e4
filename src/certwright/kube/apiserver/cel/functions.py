"""CEL functions of Kubernetes, on plain Python values.

A value of a type that CEL does not have (a quantity, an address) is a tuple of strings here, its text first;
the names in `CARRIERS` stand for those types in the declarations.

Source: Kubernetes documentation, "Common Expression Language in Kubernetes", CEL community and Kubernetes
libraries; apiserver `pkg/cel/library`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.apiserver.cel import numbers, regex
from certwright.kube.apiserver.cel.addresses import CIDR_FUNCTIONS, IP_FUNCTIONS
from certwright.kube.apiserver.cel.authz import AUTHZ_FUNCTIONS
from certwright.kube.apiserver.cel.formats import FORMAT_FUNCTIONS
from certwright.kube.apiserver.cel.overloads import ANY, CARRIERS, Carried, Function, Raw, member, plain

__all__ = ["ANY", "CARRIERS", "FUNCTIONS", "Carried", "Function"]

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

# --- regular expressions ----------------------------------------------------------------------------------

_REGEX: dict[str, list[Function]] = {
    "find": [member("string", "string", gives="string", run=regex.find)],
    "findAll": [
        member("string", "string", gives="list(string)", run=regex.find_all),
        member("string", "string", "int", gives="list(string)", run=regex.find_all),
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
    numbers.QUANTITY_FUNCTIONS,
    numbers.SEMVER_FUNCTIONS,
    IP_FUNCTIONS,
    CIDR_FUNCTIONS,
    FORMAT_FUNCTIONS,
    AUTHZ_FUNCTIONS,
)
"""All of them by name, with their overloads."""
