"""What another program has on the disk, in terms common to all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from certwright.pki.certificates import CertificateFacts
from certwright.pki.keys import KeyPlan

Json = dict[str, Any]


class CannotImport(Exception):
    """Something cannot be imported. The text is one sentence that begins with the file, without any key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An ACME account. `server` is the URL of the directory, `email` its contact address, empty if it has
    none."""

    server: str
    key_pem: bytes = field(repr=False)
    email: str = ""
    path: Path = Path()


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """How names are validated: a solver of an ACME issuer, without its selector.

    `credentials` are the entries of a Secret that the solver's provider refers to, by the field of the
    reference: `{"apiTokenSecretRef": ("api-token", b"…")}`. `note` is what the operator has to do for it.
    """

    solver: Mapping[str, Any]
    credentials: Mapping[str, tuple[str, bytes]] = field(default_factory=dict, repr=False)
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A certificate chain in order, leaf first, with its key."""

    chain_pem: bytes
    key_pem: bytes = field(repr=False)
    leaf: CertificateFacts
    plan: KeyPlan


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate with its renewal settings. `challenges` are by DNS name; those of `None` are for all
    other names. `days_before`: it is renewed that many days before its expiry; None: not set there."""

    name: str
    path: Path
    pair: Pair
    account: Account
    challenges: Mapping[str | None, Challenge] = msgspec.field(default_factory=dict)
    keeps_key: bool = False
    days_before: int | None = None
    preferred_chain: str = ""
    profile: str = ""
    notes: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """What is not imported, and why."""

    path: Path
    reason: str


@dataclass(slots=True)
class Installation:
    """Everything that was read."""

    certificates: list[Imported] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


LISTENER: Final = Challenge(
    solver={"http01": {"ingress": {}}},
    note="HTTP-01 by certwright's listener: start the server with --http01-listen :80",
)
TLS_LISTENER: Final = Challenge(
    solver={"tlsALPN01": {}},
    note="TLS-ALPN-01 by certwright's listener: start the server with --tlsalpn01-listen :443",
)


def webroot(path: str) -> Challenge:
    """HTTP-01 by files below that folder."""
    return Challenge(
        solver={"http01": {"webroot": {"path": path}}},
        note=f"HTTP-01 by files: start the server with --webroot {path}",
    )


def parse_solver(text: str) -> Challenge:
    """The value of `--solver`. Raises `ValueError` with a sentence."""
    match text.partition("="):
        case ("http01", "", ""):
            return LISTENER
        case ("tls-alpn01", "", ""):
            return TLS_LISTENER
        case ("webroot", "=", path) if path.startswith("/"):
            return webroot(path)
        case _:
            raise ValueError(f"{text!r} is not a solver; write http01, tls-alpn01 or webroot=/DIR")
