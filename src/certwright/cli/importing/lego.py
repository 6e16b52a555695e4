"""lego's folder, .lego: `certificates`, `accounts/HOST_PORT/MAIL`.

lego 4 saves neither the challenge nor the URL of the directory: the account's URL has the server's host.

Source: lego's documentation, "CLI", and what lego 4.9 writes.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from certwright.cli.importing.files import account_key, read_json, read_pair, require_folder
from certwright.cli.importing.model import Account, CannotImport, Imported, Installation, Refusal

DEFAULT: Final = Path(".lego")
DIRECTORIES: Final = {
    "acme-v02.api.letsencrypt.org": "https://acme-v02.api.letsencrypt.org/directory",
    "acme-staging-v02.api.letsencrypt.org": "https://acme-staging-v02.api.letsencrypt.org/directory",
    "acme.zerossl.com": "https://acme.zerossl.com/v2/DV90",
    "api.buypass.com": "https://api.buypass.com/acme/directory",
    "dv.acme-v02.api.pki.goog": "https://dv.acme-v02.api.pki.goog/directory",
}
"""The directories of public ACME servers, by host."""


def read(folder: Path, now: datetime, server: str) -> Installation:
    """All certificates. `server` is the URL of the directory for hosts that are not in `DIRECTORIES`. Raises
    `CannotImport` if it is not lego's folder."""
    require_folder(folder, "lego", "certificates", hint=f"its --path, usually {DEFAULT}")
    installation = Installation()
    accounts = _accounts(folder, server, installation)
    for path in sorted((folder / "certificates").glob("*.json")):
        try:
            installation.certificates.append(_certificate(path, accounts, now))
        except CannotImport as error:
            installation.refusals.append(Refusal(path, str(error)))
    return installation


def _accounts(folder: Path, server: str, installation: Installation) -> dict[str, list[Account]]:
    """The accounts by the host of their server."""
    accounts: dict[str, list[Account]] = {}
    for path in sorted((folder / "accounts").glob("*/*/account.json")):
        try:
            host, account = _account(path, server)
        except CannotImport as error:
            installation.refusals.append(Refusal(path.parent, str(error)))
        else:
            accounts.setdefault(host, []).append(account)
    return accounts


def _account(path: Path, server: str) -> tuple[str, Account]:
    content = read_json(path)
    registration = content.get("registration")
    uri = registration.get("uri") if isinstance(registration, dict) else None
    host = urlsplit(str(uri)).netloc
    directory = server if urlsplit(server).netloc == host else DIRECTORIES.get(host, "")
    if not host or not directory:
        raise CannotImport(
            f"{path}: the directory URL of {host or 'its server'} is not known; name it by --server"
        )
    mail = str(content.get("email") or "")
    keys = sorted((path.parent / "keys").glob("*.key"))
    if not keys:
        raise CannotImport(f"{path.parent / 'keys'} has no account key")
    return host, Account(server=directory, key_pem=account_key(keys[0]), email=mail, path=path.parent)


def _certificate(path: Path, accounts: dict[str, list[Account]], now: datetime) -> Imported:
    content = read_json(path)
    host = urlsplit(str(content.get("certUrl") or content.get("certStableUrl") or "")).netloc
    matching = accounts.get(host, [])
    if len(matching) != 1:
        count = "no account" if not matching else "several accounts"
        raise CannotImport(f"{path}: there is {count} for its server {host}")
    above = path.with_suffix(".issuer.crt")
    pair = read_pair(path.with_suffix(".crt"), path.with_suffix(".key"), now, above=above)
    return Imported(name=path.stem, path=path, pair=pair, account=matching[0])
