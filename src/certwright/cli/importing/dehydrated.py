"""dehydrated's folder, /var/lib/dehydrated: `certs/NAME`, `accounts/BASE64(URL)`, perhaps `config`.

Source: dehydrated's source (`init_system`), and what dehydrated 0.7 writes.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

from certwright.cli.importing.files import account_key, days, read_json, read_pair, read_shell, require_folder
from certwright.cli.importing.lego import DIRECTORIES
from certwright.cli.importing.model import (
    Account,
    CannotImport,
    Challenge,
    Imported,
    Installation,
    Refusal,
    webroot,
)

DEFAULT: Final = Path("/var/lib/dehydrated")
_WELL_KNOWN: Final = "/.well-known/acme-challenge"
_NAMES_OF_CAS: Final = {
    "letsencrypt": DIRECTORIES["acme-v02.api.letsencrypt.org"],
    "letsencrypt-test": DIRECTORIES["acme-staging-v02.api.letsencrypt.org"],
    "zerossl": DIRECTORIES["acme.zerossl.com"],
    "buypass": DIRECTORIES["api.buypass.com"],
}


def read(folder: Path, now: datetime, config: Path | None) -> Installation:
    """All certificates. `config` is dehydrated's configuration, without it the one in the folder. Raises
    `CannotImport` if it is not dehydrated's folder."""
    require_folder(folder, "dehydrated", "certs", hint=f"its BASEDIR, usually {DEFAULT}")
    path = config or folder / "config"
    settings = read_shell(path) if config is not None or path.exists() else {}
    installation = Installation()
    for place in sorted(entry for entry in (folder / "certs").iterdir() if entry.is_dir()):
        try:
            installation.certificates.append(_certificate(folder, place, settings, now))
        except CannotImport as error:
            installation.refusals.append(Refusal(place, str(error)))
    return installation


def _certificate(folder: Path, place: Path, settings: Mapping[str, str], now: datetime) -> Imported:
    own = dict(settings) | (read_shell(place / "config") if (place / "config").exists() else {})
    hook = own.get("HOOK", "")
    return Imported(
        name=place.name,
        path=place,
        pair=read_pair(place / "fullchain.pem", place / "privkey.pem", now),
        account=_account(folder, own),
        challenges=_challenges(own),
        keeps_key=own.get("PRIVATE_KEY_RENEW", "yes") == "no",
        days_before=days(own.get("RENEW_DAYS", "")),
        preferred_chain=own.get("PREFERRED_CHAIN", ""),
        notes=(f"the hook {hook} is not imported: use --on-change",) if hook else (),
    )


def _account(folder: Path, settings: Mapping[str, str]) -> Account:
    """The account of the CA in the settings, or else the only one."""
    ca = settings.get("CA", "")
    ca = _NAMES_OF_CAS.get(ca, ca)
    servers = {path: _server_of(path) for path in sorted((folder / "accounts").glob("*/"))}
    places = [path for path, server in servers.items() if server and ca in ("", server)]
    if len(places) != 1:
        count = "no account" if not places else "several accounts"
        raise CannotImport(f"{folder / 'accounts'}: there is {count} for this certificate; see --config")
    place = places[0]
    info = place / "registration_info.json"
    contact = read_json(info).get("contact") if info.exists() else None
    mails = [str(entry) for entry in contact or () if str(entry).startswith("mailto:")]
    return Account(
        server=servers[place],
        key_pem=account_key(place / "account_key.pem"),
        email=mails[0].removeprefix("mailto:") if mails else "",
        path=place,
    )


def _server_of(path: Path) -> str:
    """The URL that the name of an account's folder encodes; empty if it is none."""
    name = path.name
    try:
        text = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if text.startswith(("https://", "http://")) else ""


def _challenges(settings: Mapping[str, str]) -> dict[str | None, Challenge]:
    kind, path = settings.get("CHALLENGETYPE", "http-01"), settings.get("WELLKNOWN", "")
    if kind == "http-01" and path.endswith(_WELL_KNOWN):
        return {None: webroot(path.removesuffix(_WELL_KNOWN))}
    if kind == "http-01" and path:
        note = f"WELLKNOWN={path} is not below a web root: name one by --solver webroot=/DIR"
    elif kind == "http-01":
        return {}
    else:
        note = f"{kind} by a hook has no counterpart: name a solver by --solver"
    return {None: Challenge(solver={}, note=note)}
