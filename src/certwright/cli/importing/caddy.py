"""Caddy's storage folder: `certificates/SERVER/NAME`, `acme/SERVER/users/MAIL`.

Caddy validates by its own ports 80 and 443, so that the solver has to be named.

Source: CertMagic's `storage.go` (keys), and what Caddy 2.11 writes.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

from certwright.cli.importing.files import account_key, read_json, read_pair, require_folder
from certwright.cli.importing.model import Account, CannotImport, Imported, Installation, Json, Refusal

DEFAULT: Final = Path("~/.local/share/caddy")


def read(folder: Path, now: datetime) -> Installation:
    """All certificates of ACME servers. Raises `CannotImport` if it is not Caddy's folder."""
    hint = f"its storage, usually {DEFAULT} or /var/lib/caddy/.local/share/caddy"
    require_folder(folder, "Caddy", "certificates", hint=hint)
    installation = Installation()
    for path in sorted((folder / "certificates").glob("*/*/*.json")):
        try:
            installation.certificates.append(_certificate(folder, path, now))
        except CannotImport as error:
            installation.refusals.append(Refusal(path.parent, str(error)))
    return installation


def _certificate(folder: Path, path: Path, now: datetime) -> Imported:
    place, name = path.parent, path.stem
    if place.parent.name == "local":
        raise CannotImport(f"{place} is of Caddy's own CA; `certwright import ca` imports that")
    issuer = read_json(path).get("issuer_data")
    server = issuer.get("ca") if isinstance(issuer, dict) else None
    if not isinstance(server, str) or not isinstance(issuer, dict):
        raise CannotImport(f"{path} names no ACME server")
    return Imported(
        name=name,
        path=place,
        pair=read_pair(path.with_suffix(".crt"), path.with_suffix(".key"), now),
        account=_account(folder / "acme" / place.parent.name / "users", server, issuer),
    )


def _account(users: Path, server: str, issuer: Json) -> Account:
    """The account of the server that the certificate was ordered with, or else the only one."""
    candidates = sorted(users.glob("*/*.json"))
    uri = issuer.get("account")
    of_uri = [path for path in candidates if uri and read_json(path).get("location") == uri]
    chosen = of_uri or candidates
    if len(chosen) != 1:
        count = "no account" if not chosen else "several accounts"
        raise CannotImport(f"{users}: there is {count} for this certificate")
    contact = read_json(chosen[0]).get("contact")
    mails = [str(entry) for entry in contact or () if str(entry).startswith("mailto:")]
    return Account(
        server=server,
        key_pem=account_key(chosen[0].with_suffix(".key")),
        email=mails[0].removeprefix("mailto:") if mails else "",
        path=chosen[0].parent,
    )
