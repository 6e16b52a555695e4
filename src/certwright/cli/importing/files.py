"""The installation of another program, in terms common to all programs; bounded readers of its files, whose
errors name them."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from certwright.cli.errors import report_warning
from certwright.diagnosis.words import at
from certwright.kube.util.encoding import in_words
from certwright.pki import chain, keys
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.errors import PkiError
from certwright.pki.keys import KeyPlan
from certwright.pki.pem import certificates_in
from certwright.pki.verify import verify

_DAYS: Final = re.compile(r"([0-9]{1,5})( days?)?", re.ASCII)
_LARGEST: Final = 2**20
"""Bytes: a Secret with more would be refused."""


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of at most 1 MiB. Raises `CannotImport`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CannotImport(f"{path} is not a file")
        if status.st_size > _LARGEST:
            raise CannotImport(f"{path} is larger than 1 MiB: it is no key or certificate")
        return path.read_bytes()
    except FileNotFoundError:
        if path.is_symlink():
            raise CannotImport(f"{path} is a link to {path.readlink()}, which does not exist") from None
        raise CannotImport(f"{path} does not exist") from None
    except PermissionError:
        raise CannotImport(f"{path} cannot be read: permission denied; run this as its owner") from None
    except (OSError, RuntimeError) as error:
        reason = in_words(error) if isinstance(error, OSError) else str(error)
        raise CannotImport(f"{path} cannot be read: {reason}") from None


def read_text(path: Path) -> str:
    """A text file. Raises `CannotImport`."""
    try:
        return read_bytes(path).decode()
    except UnicodeDecodeError:
        raise CannotImport(f"{path} is not a text file") from None


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises `CannotImport`."""
    try:
        content = msgspec.json.decode(read_bytes(path))
    except (msgspec.DecodeError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise CannotImport(f"{path} is not a JSON object")
    return content


def read_shell(path: Path) -> dict[str, str]:
    """The assignments `NAME=VALUE` of a shell script, with the shell's quotes; everything else is skipped.
    Nothing is run, and no variable is replaced. Raises `CannotImport`."""
    assignments: dict[str, str] = {}
    for line in read_text(path).splitlines():
        name, equals, value = line.strip().partition("=")
        if not equals or not name.isidentifier():
            continue
        try:
            words = shlex.split(value, comments=True)
        except ValueError:
            continue
        assignments[name] = words[0] if words else ""
    return assignments


def days(text: str) -> int | None:
    """The number of days in a setting, `30` or `30 days`; None for anything else."""
    match = _DAYS.fullmatch(text.strip())
    return int(match[1]) if match else None


def read_pair(certificates: Path, key: Path, now: datetime, *, above: Path | None = None) -> Pair:
    """A certificate and its private key, checked: readable, of each other, valid now. `above` is the file of
    the certificates above it, where the first file has only one. Raises `CannotImport`."""
    content = read_bytes(certificates)
    blocks = list(certificates_in(content))
    if not blocks:
        advice = f"; `openssl x509 -inform DER -in {certificates} -out FILE` converts DER" if content else ""
        raise CannotImport(f"{certificates} has no certificate (expected is PEM){advice}")
    if above is not None and len(blocks) == 1 and above.exists():
        blocks += certificates_in(read_bytes(above))
    try:
        ordered = chain.in_order(read_chain(b"".join(blocks)))
    except PkiError as error:
        raise CannotImport(f"{certificates}: {error}") from None
    leaf = ordered[0]
    if leaf.not_after <= now:
        raise CannotImport(
            f"{certificates} expired at {at(leaf.not_after)}: request a new certificate instead"
        )
    result = verify(ordered, (), now)
    if result.refusal:
        raise CannotImport(f"{certificates}: no client accepts it: {result.refusal}")
    if texts := (*result.faults, *result.remarks):
        report_warning(f"{certificates}: some clients refuse it: {'; '.join(texts)}")
    loaded = load_key(key, read_bytes(key))
    if keys.public_key_der(loaded) != leaf.public_key_der:
        raise CannotImport(f"{key} is not the key of the certificate in {certificates}")
    plan = keys.plan_of(loaded)
    if plan is None:
        raise CannotImport(f"{key} is of a kind or size that certwright does not issue for")
    key_pem = keys.encode_private_key(loaded, "PKCS1")
    return Pair(chain_pem=chain.pem_of(ordered), key_pem=key_pem, leaf=leaf, plan=plan)


def load_key(path: Path, pem: bytes) -> keys.PrivateKey:
    """The unencrypted private key of that file. Raises `CannotImport`."""
    try:
        return keys.load_private_key(pem)
    except PkiError as error:
        hint = (
            f"; `openssl pkey -in {path.name}` writes one without a password" if b"ENCRYPTED" in pem else ""
        )
        raise CannotImport(f"{path}: {error}{hint}") from None


def account_key(path: Path) -> bytes:
    """The PEM of an ACME account's key in a PEM file. Raises `CannotImport`."""
    return keys.encode_private_key(load_key(path, read_bytes(path)), "PKCS1")


def require_folder(folder: Path, tool: str, *parts: str, hint: str) -> None:
    """Raise `CannotImport` unless the folder contains one of these paths, as the tool's folder does."""
    if not folder.is_dir():
        raise CannotImport(f"{folder} is not a folder; name that of {tool} ({hint})")
    try:
        if not any((folder / part).is_dir() for part in parts):
            expected = " or ".join(parts)
            raise CannotImport(f"{folder} is not a folder of {tool}: {expected} is missing; name {hint}")
    except PermissionError:
        raise CannotImport(f"{folder} cannot be read: permission denied; run this as its owner") from None


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
    """A certificate with its renewal settings. `challenges`: by DNS name; those of `None` are for all other
    names. `days_before`: days between its renewal and its expiry; None: not set there."""

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
