"""Published limits of CAs, and limits from the user's file.

Source: Let's Encrypt, "Rate Limits" (page of 2026-08-05), and the same for its staging environment. ZeroSSL
and Google's public CA publish no limits of these kinds: theirs are learned from refusals.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from certwright.kit.rate_limit import Rate
from certwright.kube.util.durations import parse_duration

ORDERS: Final = "newOrders"
DOMAIN: Final = "certificatesPerDomain"
SET: Final = "certificatesPerSet"
FAILURES: Final = "failedValidations"
ACCOUNTS: Final = "newAccounts"

MEANINGS: Final[Mapping[str, str]] = MappingProxyType(
    {
        ORDERS: "new orders per account",
        DOMAIN: "certificates per registered domain, over all accounts",
        SET: "certificates per exact set of names, over all accounts",
        FAILURES: "failed validations per name and account",
        ACCOUNTS: "new accounts per IP address",
    }
)
"""Every limit, and what it counts."""


class Limit(msgspec.Struct, frozen=True):
    """A rate, and the raised counts that the CA has granted (by domain, or by account URL)."""

    rate: Rate
    overrides: Mapping[str, int] = msgspec.field(default_factory=dict)

    def rate_of(self, whose: str) -> Rate:
        """The rate for that domain or account."""
        count = self.overrides.get(whose)
        return self.rate if count is None else dataclasses.replace(self.rate, count=count)


class CaLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one CA. `exempts_ari`: orders that replace a certificate (RFC 9773) are exempt from all;
    `exempts_renewals`: a repeated set of names counts neither as an order nor for its domains."""

    name: str = "this CA"
    limits: Mapping[str, Limit] = msgspec.field(default_factory=dict)
    exempts_ari: bool = True
    exempts_renewals: bool = True


def _limits(**rates: tuple[int, timedelta]) -> dict[str, Limit]:
    return {name: Limit(Rate(count, window)) for name, (count, window) in rates.items()}


_HOUR, _WEEK = timedelta(hours=1), timedelta(days=7)

_LETS_ENCRYPT = CaLimits(
    name="Let's Encrypt",
    limits=_limits(
        newOrders=(300, 3 * _HOUR),
        certificatesPerDomain=(50, _WEEK),
        certificatesPerSet=(5, _WEEK),
        failedValidations=(5, _HOUR),
        newAccounts=(10, 3 * _HOUR),
    ),
)
_LETS_ENCRYPT_STAGING = CaLimits(
    name="Let's Encrypt (staging)",
    limits=_limits(
        newOrders=(1500, 3 * _HOUR),
        certificatesPerDomain=(30_000, timedelta(seconds=1)),
        certificatesPerSet=(30_000, _WEEK),
        failedValidations=(200, _HOUR),
        newAccounts=(50, 3 * _HOUR),
    ),
)

PRESETS: Final[Mapping[str, CaLimits]] = MappingProxyType(
    {
        "acme-v02.api.letsencrypt.org": _LETS_ENCRYPT,
        "acme-staging-v02.api.letsencrypt.org": _LETS_ENCRYPT_STAGING,
        "acme.zerossl.com": CaLimits(name="ZeroSSL"),
        "dv.acme-v02.api.pki.goog": CaLimits(name="Google Trust Services"),
        "dv.acme-v02.test-api.pki.goog": CaLimits(name="Google Trust Services (test)"),
        "api.buypass.com": CaLimits(name="Buypass"),
    }
)
"""Presets of known CAs, by the host of their directory."""

Chosen = Mapping[str, CaLimits]
"""The user's limits, by directory URL or host."""


class BadLimits(ValueError):
    """An invalid file of limits. One sentence: the field, its value, and the fix."""


def host_of(directory: str) -> str:
    """The host of a directory's URL, with the port if it has one."""
    return urlsplit(directory).netloc.lower()


def limits_of(directory: str, chosen: Chosen) -> CaLimits:
    """The limits of the CA with that directory: the user's, else the preset, else none."""
    host = host_of(directory)
    for place in (directory, host):
        if place in chosen:
            return chosen[place]
    return PRESETS.get(host, CaLimits(name=host or "this CA"))


def read_limits(content: Any) -> dict[str, CaLimits]:
    """Parse a limits file, given its YAML or JSON content. Raises `BadLimits`.

        limits:
          acme-v02.api.letsencrypt.org:       # a host, or a whole directory URL
            newOrders: {count: 600, window: 3h}
            certificatesPerDomain: {count: 50, window: 7d, overrides: {example.com: 500}}
            failedValidations: none
          acme.example.org: none

    Unnamed limits keep their preset.
    """
    top = _mapping("the file", content)
    _only("the file", top, ("limits",))
    limits = _mapping("limits", top.get("limits", {}))
    read = {}
    for name, ca_limits in limits.items():
        place = str(name) if "://" in str(name) else str(name).lower()
        read[place] = _read_ca(f"limits.{name}", str(name), ca_limits)
    return read


def _read_ca(where: str, place: str, content: Any) -> CaLimits:
    host = host_of(place) if "://" in place else place.lower()
    base = PRESETS.get(host, CaLimits(name=host))
    if content == "none":
        return replace(base, limits={})
    given = _mapping(where, content)
    _only(where, given, (*MEANINGS, "exemptsAri", "exemptsRenewals"))
    limits = dict(base.limits)
    for name in MEANINGS:
        if name not in given:
            continue
        if given[name] == "none":
            limits.pop(name, None)
        else:
            limits[name] = _read_limit(f"{where}.{name}", given[name], limits.get(name))
    return replace(
        base,
        limits=limits,
        exempts_ari=_flag(where, given, "exemptsAri", default=base.exempts_ari),
        exempts_renewals=_flag(where, given, "exemptsRenewals", default=base.exempts_renewals),
    )


def _read_limit(where: str, content: Any, base: Limit | None) -> Limit:
    given = _mapping(where, content, or_none=True)
    _only(where, given, ("count", "window", "refills", "overrides"))
    for needed in ("count", "window"):
        if base is None and needed not in given:
            raise BadLimits(f"{where} has no {needed}; write e.g. {{count: 50, window: 168h}}")
    rate = base.rate if base is not None else Rate(0, timedelta(0))
    count = _count(f"{where}.count", given["count"]) if "count" in given else rate.count
    window = _window(f"{where}.window", given["window"]) if "window" in given else rate.window
    refills = _flag(where, given, "refills", default=rate.refills)
    raised = _mapping(f"{where}.overrides", given.get("overrides", {}))
    overrides = {str(who): _count(f"{where}.overrides.{who}", many) for who, many in raised.items()}
    return Limit(Rate(count, window, refills=refills), overrides)


def _mapping(where: str, value: Any, *, or_none: bool = False) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        also = ", or `none`" if or_none else ""
        raise BadLimits(f"{where} is {_shown(value)}; write a mapping there{also}")
    return value


def _only(where: str, given: Mapping[Any, Any], names: tuple[str, ...]) -> None:
    for name in given:
        if name not in names:
            raise BadLimits(f"{where} has an unknown field {name!r}; choose from {', '.join(names)}")


def _count(where: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10**9:
        raise BadLimits(f"{where} is {_shown(value)}; write a whole number of at least 1, or leave it out")
    return value


_DAYS = re.compile(r"([0-9]{1,5})d")


def _window(where: str, value: Any) -> timedelta:
    days = _DAYS.fullmatch(value) if isinstance(value, str) else None
    try:
        window = timedelta(days=int(days[1])) if days else parse_duration(str(value))
    except ValueError:
        window = timedelta(0)
    if isinstance(value, bool) or window < timedelta(seconds=1):
        raise BadLimits(f'{where} is {_shown(value)}; write a duration of at least a second: "3h", "7d"')
    return window


def _flag(where: str, given: Mapping[Any, Any], name: str, *, default: bool) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise BadLimits(f"{where}.{name} is {_shown(value)}; write true or false")
    return value


def _shown(value: Any) -> str:
    return "empty" if value is None or value == "" else repr(value)[:60]
