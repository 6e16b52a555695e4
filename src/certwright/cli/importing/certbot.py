"""certbot's folder, /etc/letsencrypt: `live`, `renewal`, `accounts`.

Source: certbot's user guide, "Where are my certificates?" and "Modifying the Renewal Configuration"; its
`certbot/_internal/account.py` (the folder of an account).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from certwright.cli.importing import dns_credentials
from certwright.cli.importing.files import days, read_json, read_pair, read_text, require_folder
from certwright.cli.importing.model import (
    LISTENER,
    Account,
    CannotImport,
    Challenge,
    Imported,
    Installation,
    Refusal,
    webroot,
)
from certwright.pki import keys
from certwright.pki.errors import PkiError

DEFAULT: Final = Path("/etc/letsencrypt")
_HOOKS: Final = ("pre_hook", "post_hook", "renew_hook", "deploy_hook")
_SERVER: Final = "https://acme-v02.api.letsencrypt.org/directory"


def read(folder: Path, now: datetime) -> Installation:
    """All certificates with a file in `renewal`. Raises `CannotImport` if it is not certbot's folder."""
    require_folder(folder, "certbot", "renewal", hint=f"its --config-dir, usually {DEFAULT}")
    installation = Installation()
    for path in sorted((folder / "renewal").glob("*.conf")):
        try:
            installation.certificates.append(_certificate(folder, path, now))
        except CannotImport as error:
            installation.refusals.append(Refusal(path, str(error)))
    return installation


def _certificate(folder: Path, path: Path, now: datetime) -> Imported:
    sections = _sections(read_text(path))
    settings = sections.get("renewalparams", {})
    live = folder / "live" / path.stem
    early = sections[""].get("renew_before_expiry", "")
    hooks = [(hook, settings[hook]) for hook in _HOOKS if settings.get(hook)]
    notes = [f"{hook} `{command}` is not imported: use --on-change" for hook, command in hooks]
    if settings.get("autorenew", "").lower() == "false":
        notes.append("autorenew was off: certwright renews it")
    if early and days(early) is None:
        notes.append(f"renew_before_expiry {early!r} is not imported: only a number of days is")
    return Imported(
        name=path.stem,
        path=path,
        pair=read_pair(live / "fullchain.pem", live / "privkey.pem", now),
        account=_account(folder, path, settings),
        challenges=_challenges(settings, sections.get("webroot_map", {})),
        keeps_key=settings.get("reuse_key", "").lower() == "true",
        days_before=days(early),
        preferred_chain=_plain(settings.get("preferred_chain", "")),
        profile=_plain(settings.get("required_profile") or settings.get("preferred_profile", "")),
        notes=tuple(notes),
    )


def _sections(text: str) -> dict[str, dict[str, str]]:
    """The sections of certbot's INI dialect by name, `[[…]]` too; the lines before the first are ``."""
    name = ""
    sections: dict[str, dict[str, str]] = {name: {}}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            name = line.strip("[] ")
            sections.setdefault(name, {})
        elif "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            sections[name][key.strip()] = value.strip()
    return sections


def _plain(value: str) -> str:
    return "" if value in ("None", "none") else value.strip("\"'")


def _account(folder: Path, path: Path, settings: Mapping[str, str]) -> Account:
    number, server = settings.get("account", ""), settings.get("server", _SERVER)
    if not number:
        raise CannotImport(f"{path} names no account")
    parts = urlsplit(server)
    place = folder / "accounts" / parts.netloc / parts.path.strip("/") / number
    try:
        key = keys.load_private_jwk(read_json(place / "private_key.json"))
    except PkiError as error:
        raise CannotImport(f"{place / 'private_key.json'}: {error}") from None
    body = read_json(place / "regr.json").get("body")
    contact = body.get("contact") if isinstance(body, dict) else None
    mails = [str(entry) for entry in contact or () if str(entry).startswith("mailto:")]
    return Account(
        server=server,
        key_pem=keys.encode_private_key(key, "PKCS1"),
        email=mails[0].removeprefix("mailto:") if mails else "",
        path=place,
    )


def _challenges(settings: Mapping[str, str], webroots: Mapping[str, str]) -> dict[str | None, Challenge]:
    authenticator = settings.get("authenticator", "")
    match authenticator:
        case "webroot":
            paths = [path.strip() for path in settings.get("webroot_path", "").split(",") if path.strip()]
            by_name: dict[str | None, Challenge] = {name: webroot(path) for name, path in webroots.items()}
            return by_name or ({None: webroot(paths[0])} if paths else {})
        case "standalone":
            return {None: LISTENER}
        case _ if authenticator.startswith("dns-"):
            return {None: dns_credentials.of_certbot(authenticator, settings)}
        case _:
            note = f"the authenticator {authenticator!r} has no counterpart: name one by --solver"
            return {None: Challenge(solver={}, note=note)}
