"""acme.sh's folder, ~/.acme.sh: one folder per certificate, `ca` with the accounts, `account.conf`.

Source: acme.sh's source, `_initpath`, `_initAPI`, `_savedomainconf`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from certwright.cli.importing import dns_credentials
from certwright.cli.importing.files import account_key, days, read_pair, read_shell, require_folder
from certwright.cli.importing.model import (
    LISTENER,
    TLS_LISTENER,
    Account,
    CannotImport,
    Challenge,
    Imported,
    Installation,
    Refusal,
    webroot,
)

DEFAULT: Final = Path("~/.acme.sh")
_ENCODED: Final = ("__ACME_BASE64__START_", "__ACME_BASE64__END_")


def read(folder: Path, now: datetime) -> Installation:
    """All certificates. Raises `CannotImport` if it is not acme.sh's folder."""
    require_folder(folder, "acme.sh", "ca", hint=f"its --home, usually {DEFAULT}")
    installation = Installation()
    for path in sorted(folder.glob("*/*.conf")):
        place = path.parent
        if place.name.removesuffix("_ecc") != path.stem or path.name.endswith(".csr.conf"):
            continue
        try:
            installation.certificates.append(_certificate(folder, path, now))
        except CannotImport as error:
            installation.refusals.append(Refusal(place, str(error)))
    return installation


def _certificate(folder: Path, path: Path, now: datetime) -> Imported:
    settings = read_shell(path)
    place, domain = path.parent, path.stem
    reload = _decoded(settings.get("Le_ReloadCmd", ""))
    pair = read_pair(place / "fullchain.cer", place / f"{domain}.key", now)
    after = days(settings.get("Le_RenewalDays", ""))  # Days after it was issued.
    return Imported(
        name=place.name.replace("_ecc", "-ecc"),
        path=place,
        pair=pair,
        account=_account(folder, path, settings),
        challenges=_challenges(folder, path, settings),
        # acme.sh keeps the key unless it was started with --always-force-new-domain-key.
        keeps_key=settings.get("Le_ForceNewDomainKey", "") != "1",
        days_before=None if after is None else (pair.leaf.not_after - pair.leaf.not_before).days - after,
        preferred_chain=_decoded(settings.get("Le_Preferred_Chain", "")),
        profile=settings.get("Le_Certificate_Profile", ""),
        notes=(f"--reloadcmd `{reload}` is not imported: use --on-change",) if reload else (),
    )


def _decoded(value: str) -> str:
    """A value that acme.sh has wrapped in base64, or the value itself."""
    start, end = _ENCODED
    if not (value.startswith(start) and value.endswith(end)):
        return value
    try:
        return base64.b64decode(value.removeprefix(start).removesuffix(end)).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _account(folder: Path, path: Path, settings: Mapping[str, str]) -> Account:
    server = settings.get("Le_API", "")
    parts = urlsplit(server)
    if not parts.netloc:
        raise CannotImport(f"{path} names no server (Le_API)")
    place = folder / "ca" / parts.netloc / parts.path.strip("/")
    mail = dns_credentials.saved_variables(place / "ca.conf").get("CA_EMAIL", "")
    key = account_key(place / "account.key")
    return Account(server=server, key_pem=key, email=mail, path=place)


def _challenges(folder: Path, path: Path, settings: Mapping[str, str]) -> dict[str | None, Challenge]:
    names = [settings.get("Le_Domain", ""), *settings.get("Le_Alt", "").split(",")]
    names = [name for name in names if name and name != "no"]
    methods = settings.get("Le_Webroot", "").split(",")
    saved = dns_credentials.saved_variables(folder / "account.conf", path)
    challenges: dict[str | None, Challenge] = {}
    for number, name in enumerate(names):
        # As in acme.sh, the last one is for all further names.
        challenges[name] = _challenge(methods[min(number, len(methods) - 1)], saved)
    return challenges


def _challenge(method: str, saved: Mapping[str, str]) -> Challenge:
    match method:
        case "no":
            return LISTENER
        case "alpn":
            return TLS_LISTENER
        case _ if method.startswith("dns_"):
            return dns_credentials.of_acme_sh(method, saved)
        case _ if method.startswith("/"):
            return webroot(method)
        case _:
            return Challenge(solver={}, note=f"{method!r} has no counterpart: name a solver by --solver")
