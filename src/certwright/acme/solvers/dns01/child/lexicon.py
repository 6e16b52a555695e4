"""A provider of dns-lexicon 3, without its `Client`.

The `Client` guesses the zone from the public suffix list, which it downloads, and reads `LEXICON_*` and
configuration files. Here the zone is known, and options come from the request only.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from certwright.acme.solvers.dns01.child import confine
from certwright.acme.solvers.dns01.child.messages import Busy, Failed, Provider, Rejected

# What thirty providers raise as the text of their AuthenticationError; dns-lexicon has no type for it.
_NO_ZONE = "No domain found"
_TTL = "ttl"
_PAUSES = (429, 503)


class _LexiconProvider(Protocol):
    """dns-lexicon's `interfaces.Provider`, as far as it is used here."""

    def authenticate(self) -> None: ...
    def create_record(self, rtype: str, name: str, content: str) -> bool: ...
    def delete_record(self, identifier: None, rtype: str, name: str, content: str) -> bool: ...
    def list_records(self, rtype: str, name: str, content: str) -> list[dict[str, Any]]: ...


class Lexicon:
    """See `Provider` in `contract.py`. Raises `Failed` if dns-lexicon has no such provider."""

    def __init__(self, request: Provider) -> None:
        self._name = request.name
        self._options = request.options
        try:
            module = importlib.import_module(f"lexicon._private.providers.{request.name}")
            self._errors = importlib.import_module("lexicon.exceptions")
            self._resolver = importlib.import_module("lexicon.config").ConfigResolver
        except ImportError as error:
            raise Failed(_missing(request.name, error)) from error
        self._make = cast("Callable[[object], _LexiconProvider]", module.Provider)
        self._zones: dict[str, _LexiconProvider] = {}
        confine.confine(request.servers)

    def verify(self) -> None:
        self._make_provider("example.invalid")

    def has_zone(self, name: str) -> bool:
        try:
            self._zone(name)
        except Exception as error:
            if self._is_missing(error):
                return False
            raise
        return True

    def add(self, zone: str, name: str, value: str) -> None:
        """See `Provider`. Some APIs refuse what exists already."""
        provider = self._zone(zone)
        _ensure(lambda: provider.create_record("TXT", name, value), provider, name, value, exists=True)

    def remove(self, zone: str, name: str, value: str) -> None:
        """See `Provider`. Some APIs refuse to remove what does not exist."""
        provider = self._zone(zone)
        _ensure(lambda: provider.delete_record(None, "TXT", name, value), provider, name, value, exists=False)

    def explain(self, error: Exception) -> Failed:
        """The failure that an error of dns-lexicon, or of the libraries below it, means."""
        if (denied := confine.denial(error)) is not None:
            return Failed(str(denied))
        if status := _status_of(error):
            headers = getattr(getattr(error, "response", None), "headers", {})
            headers = cast("Mapping[str, str]", headers)
            if status in _PAUSES:
                return Busy(f"its API answered with status {status}", headers.get("Retry-After", "") or "30")
            if status in (401, 403):
                return Rejected(
                    f"its API answered with status {status}; the credentials are wrong or lack rights"
                )
            return Failed(f"its API answered with status {status}")
        if isinstance(error, self._errors.AuthenticationError):
            return Rejected(f"the credentials were not accepted: {error}")
        if type(error).__module__.partition(".")[0] == "requests":
            return Failed(f"its API cannot be reached ({type(error).__name__})")
        # Some providers ignore the ImportError of a package that they need.
        if isinstance(error, ImportError | NameError):
            return Failed(_missing(self._name, error))
        return Failed(f"{type(error).__name__}: {error}".removesuffix(": "))

    def _zone(self, zone: str) -> _LexiconProvider:
        if zone not in self._zones:
            provider = self._make_provider(zone)
            provider.authenticate()
            self._zones[zone] = provider
        return self._zones[zone]

    def _make_provider(self, zone: str) -> _LexiconProvider:
        # One provider (ddns) looks for the zone among its own options.
        options = {key: value for key, value in self._options.items() if key != _TTL} | {"domain": zone}
        settings: dict[str, object] = {"provider_name": self._name, "domain": zone, self._name: options}
        if ttl := self._options.get(_TTL):
            if not (ttl.isascii() and ttl.isdigit()):
                raise Failed(f"options.ttl: `{ttl}` is not a number of seconds; write e.g. 300")
            settings[_TTL] = int(ttl)
        return self._make(self._resolver().with_dict(settings))

    def _is_missing(self, error: Exception) -> bool:
        if isinstance(error, self._errors.AuthenticationError):
            return _NO_ZONE in str(error)
        return _status_of(error) == 404


def _ensure(
    change: Callable[[], bool], provider: _LexiconProvider, name: str, value: str, *, exists: bool
) -> None:
    try:
        if change() is not False:
            return
        raise Failed("dns-lexicon reports that nothing was changed, without a reason")
    except Exception as error:
        # After a rate limit no further request is sent.
        if _status_of(error) in _PAUSES:
            raise
        try:
            is_there = bool(provider.list_records("TXT", name, value))
        except Exception:
            raise error from None
        if is_there is not exists:
            raise


def _status_of(error: Exception) -> int:
    """The HTTP status that an error of `requests` carries; 0: none."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else 0


def _missing(provider: str, error: Exception) -> str:
    return f"{error}; install what it needs beside certwright: pip install 'dns-lexicon[{provider}]'"
