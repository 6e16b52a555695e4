"""The folders of other programs: certbot, acme.sh, lego, Caddy and dehydrated.

Each `read_…` returns all certificates of a folder, and raises `CannotImport` for another program's folder.

Sources: certbot's user guide, "Where are my certificates?" and "Modifying the Renewal Configuration", and its
`certbot/_internal/account.py` (the folder of an account); acme.sh's source, `_initpath`, `_initAPI`,
`_savedomainconf`; lego's documentation, "CLI", and the files of lego 4.9; CertMagic's `storage.go` (keys),
and the files of Caddy 2.11; dehydrated's source (`init_system`), and the files of dehydrated 0.7.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from certwright.cli.importing import dns_credentials
from certwright.cli.importing.files import (
    LISTENER,
    TLS_LISTENER,
    Account,
    CannotImport,
    Challenge,
    Imported,
    Installation,
    Json,
    Refusal,
    account_key,
    days,
    read_json,
    read_pair,
    read_shell,
    read_text,
    require_folder,
    webroot,
)
from certwright.pki import keys
from certwright.pki.errors import PkiError

T = TypeVar("T")


def _installation(places: Iterable[Path], read: Callable[[Path], Imported]) -> Installation:
    """What `read` returns for each place, or refuses there."""
    installation = Installation()
    for place in places:
        try:
            installation.certificates.append(read(place))
        except CannotImport as error:
            installation.refusals.append(Refusal(place, str(error)))
    return installation


def _only(accounts: Sequence[T], where: object, tail: str) -> T:
    """The only account. Raises `CannotImport` for none, and for several."""
    if len(accounts) != 1:
        number = "several accounts" if accounts else "no account"
        raise CannotImport(f"{where}: there is {number} for {tail}")
    return accounts[0]


def _mail(contact: Any) -> str:
    """The first address of an account's contacts; empty if there is none."""
    mails = [str(entry) for entry in contact or () if str(entry).startswith("mailto:")]
    return mails[0].removeprefix("mailto:") if mails else ""


def _no_solver(note: str) -> Challenge:
    return Challenge(solver={}, note=note)


_HOOKS: Final = ("pre_hook", "post_hook", "renew_hook", "deploy_hook")
_HOOK_FOLDERS: Final = ("pre", "deploy", "post")
_LETSENCRYPT: Final = "https://acme-v02.api.letsencrypt.org/directory"


def read_certbot(folder: Path, now: datetime) -> Installation:
    """certbot's folder: `live`, `renewal` with a file for each certificate, `accounts`."""
    require_folder(folder, "certbot", "renewal", hint="its --config-dir, usually /etc/letsencrypt")
    places = sorted((folder / "renewal").glob("*.conf"))
    return _installation(places, lambda path: _of_certbot(folder, path, now))


def _of_certbot(folder: Path, path: Path, now: datetime) -> Imported:
    sections = _sections(read_text(path))
    settings = sections.get("renewalparams", {})
    live = folder / "live" / path.stem
    early = sections[""].get("renew_before_expiry", "")
    hooks = [(hook, settings[hook]) for hook in _HOOKS if settings.get(hook)]
    notes = [f"{hook} `{command}` is not imported: use --on-change" for hook, command in hooks]
    notes += [f"{script} is not imported: use --on-change" for script in _directory_hooks(folder)]
    if settings.get("autorenew", "").lower() == "false":
        notes.append("autorenew was off: certwright renews it")
    if early and days(early) is None:
        notes.append(f"renew_before_expiry {early!r} is not imported: only a number of days is")
    return Imported(
        name=path.stem,
        path=path,
        pair=read_pair(live / "fullchain.pem", live / "privkey.pem", now),
        account=_certbot_account(folder, path, settings),
        challenges=_certbot_challenges(settings, sections.get("webroot_map", {})),
        keeps_key=settings.get("reuse_key", "").lower() == "true",
        days_before=days(early),
        preferred_chain=_plain(settings.get("preferred_chain", "")),
        profile=_plain(settings.get("required_profile") or settings.get("preferred_profile", "")),
        notes=tuple(notes),
    )


def _directory_hooks(folder: Path) -> list[Path]:
    """The programs that certbot runs for every certificate: executable files whose names do not end in `~`.

    Source: certbot documentation, "Renewing certificates"; `certbot._internal.hooks.list_hooks`.
    """
    scripts = (
        script for when in _HOOK_FOLDERS for script in sorted((folder / "renewal-hooks" / when).glob("*"))
    )
    return [
        script
        for script in scripts
        if script.is_file() and os.access(script, os.X_OK) and not script.name.endswith("~")
    ]


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


def _certbot_account(folder: Path, path: Path, settings: Mapping[str, str]) -> Account:
    number, server = settings.get("account", ""), settings.get("server", _LETSENCRYPT)
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
    return Account(
        server=server,
        key_pem=keys.encode_private_key(key, "PKCS1"),
        email=_mail(contact),
        path=place,
    )


def _certbot_challenges(
    settings: Mapping[str, str], webroots: Mapping[str, str]
) -> dict[str | None, Challenge]:
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
            return {None: _no_solver(note)}


_ENCODED: Final = ("__ACME_BASE64__START_", "__ACME_BASE64__END_")


def read_acme_sh(folder: Path, now: datetime) -> Installation:
    """acme.sh's folder: one folder for each certificate, `ca` with the accounts, `account.conf`."""
    require_folder(folder, "acme.sh", "ca", hint="its --home, usually ~/.acme.sh")
    places = [
        path.parent
        for path in sorted(folder.glob("*/*.conf"))
        if path.parent.name.removesuffix("_ecc") == path.stem and not path.name.endswith(".csr.conf")
    ]
    return _installation(places, lambda place: _of_acme_sh(folder, place, now))


def _of_acme_sh(folder: Path, place: Path, now: datetime) -> Imported:
    domain = place.name.removesuffix("_ecc")
    path = place / f"{domain}.conf"
    settings = read_shell(path)
    reload = _decoded(settings.get("Le_ReloadCmd", ""))
    pair = read_pair(place / "fullchain.cer", place / f"{domain}.key", now)
    after = days(settings.get("Le_RenewalDays", ""))  # Days after it was issued.
    return Imported(
        name=place.name.replace("_ecc", "-ecc"),
        path=place,
        pair=pair,
        account=_acme_sh_account(folder, path, settings),
        challenges=_acme_sh_challenges(folder, path, settings),
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


def _acme_sh_account(folder: Path, path: Path, settings: Mapping[str, str]) -> Account:
    server = settings.get("Le_API", "")
    parts = urlsplit(server)
    if not parts.netloc:
        raise CannotImport(f"{path} names no server (Le_API)")
    place = folder / "ca" / parts.netloc / parts.path.strip("/")
    mail = dns_credentials.saved_variables(place / "ca.conf").get("CA_EMAIL", "")
    key = account_key(place / "account.key")
    return Account(server=server, key_pem=key, email=mail, path=place)


def _acme_sh_challenges(folder: Path, path: Path, settings: Mapping[str, str]) -> dict[str | None, Challenge]:
    names = [settings.get("Le_Domain", ""), *settings.get("Le_Alt", "").split(",")]
    names = [name for name in names if name and name != "no"]
    methods = settings.get("Le_Webroot", "").split(",")
    saved = dns_credentials.saved_variables(folder / "account.conf", path)
    challenges: dict[str | None, Challenge] = {}
    for number, name in enumerate(names):
        # As in acme.sh, the last one is for all further names.
        challenges[name] = _acme_sh_challenge(methods[min(number, len(methods) - 1)], saved)
    return challenges


def _acme_sh_challenge(method: str, saved: Mapping[str, str]) -> Challenge:
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
            return _no_solver(f"{method!r} has no counterpart: name a solver by --solver")


DIRECTORIES: Final = {
    "acme-v02.api.letsencrypt.org": "https://acme-v02.api.letsencrypt.org/directory",
    "acme-staging-v02.api.letsencrypt.org": "https://acme-staging-v02.api.letsencrypt.org/directory",
    "acme.zerossl.com": "https://acme.zerossl.com/v2/DV90",
    "api.buypass.com": "https://api.buypass.com/acme/directory",
    "dv.acme-v02.api.pki.goog": "https://dv.acme-v02.api.pki.goog/directory",
}
"""The directories of public ACME servers, by host."""


def read_lego(folder: Path, now: datetime, server: str) -> Installation:
    """lego's folder: `certificates`, `accounts/HOST_PORT/MAIL`.

    `server` is the URL of the directory for hosts that are not in `DIRECTORIES`: lego 4 saves neither that
    nor the challenge, and the account's URL has only the server's host.
    """
    require_folder(folder, "lego", "certificates", hint="its --path, usually .lego")
    accounts, refusals = _lego_accounts(folder, server)
    places = sorted((folder / "certificates").glob("*.json"))
    installation = _installation(places, lambda path: _of_lego(path, accounts, now))
    installation.refusals[:0] = refusals
    return installation


def _lego_accounts(folder: Path, server: str) -> tuple[dict[str, list[Account]], list[Refusal]]:
    """The accounts by the host of their server, and those that cannot be imported."""
    accounts: dict[str, list[Account]] = {}
    refusals = []
    for path in sorted((folder / "accounts").glob("*/*/account.json")):
        try:
            host, account = _lego_account(path, server)
        except CannotImport as error:
            refusals.append(Refusal(path.parent, str(error)))
        else:
            accounts.setdefault(host, []).append(account)
    return accounts, refusals


def _lego_account(path: Path, server: str) -> tuple[str, Account]:
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
    key_files = sorted((path.parent / "keys").glob("*.key"))
    if not key_files:
        raise CannotImport(f"{path.parent / 'keys'} has no account key")
    return host, Account(server=directory, key_pem=account_key(key_files[0]), email=mail, path=path.parent)


def _of_lego(path: Path, accounts: dict[str, list[Account]], now: datetime) -> Imported:
    content = read_json(path)
    host = urlsplit(str(content.get("certUrl") or content.get("certStableUrl") or "")).netloc
    account = _only(accounts.get(host, []), path, f"its server {host}")
    above = path.with_suffix(".issuer.crt")
    pair = read_pair(path.with_suffix(".crt"), path.with_suffix(".key"), now, above=above)
    return Imported(name=path.stem, path=path, pair=pair, account=account)


def read_caddy(folder: Path, now: datetime) -> Installation:
    """Caddy's storage folder, certificates of ACME servers only: `certificates/SERVER/NAME`,
    `acme/SERVER/users/MAIL`. Caddy validates by its own ports 80 and 443: the solver has to be named."""
    hint = "its storage, usually ~/.local/share/caddy or /var/lib/caddy/.local/share/caddy"
    require_folder(folder, "Caddy", "certificates", hint=hint)
    places = [path.parent for path in sorted((folder / "certificates").glob("*/*/*.json"))]
    return _installation(places, lambda place: _of_caddy(folder, place, now))


def _of_caddy(folder: Path, place: Path, now: datetime) -> Imported:
    path = place / f"{place.name}.json"
    if place.parent.name == "local":
        raise CannotImport(f"{place} is of Caddy's own CA; `certwright import ca` imports that")
    issuer = read_json(path).get("issuer_data")
    server = issuer.get("ca") if isinstance(issuer, dict) else None
    if not isinstance(server, str) or not isinstance(issuer, dict):
        raise CannotImport(f"{path} names no ACME server")
    return Imported(
        name=place.name,
        path=place,
        pair=read_pair(place / f"{place.name}.crt", place / f"{place.name}.key", now),
        account=_caddy_account(folder / "acme" / place.parent.name / "users", server, issuer),
    )


def _caddy_account(users: Path, server: str, issuer: Json) -> Account:
    """The account of the server that the certificate was ordered with, or else the only one."""
    candidates = sorted(users.glob("*/*.json"))
    uri = issuer.get("account")
    of_uri = [path for path in candidates if uri and read_json(path).get("location") == uri]
    chosen = _only(of_uri or candidates, users, "this certificate")
    return Account(
        server=server,
        key_pem=account_key(chosen.with_suffix(".key")),
        email=_mail(read_json(chosen).get("contact")),
        path=chosen.parent,
    )


_WELL_KNOWN: Final = "/.well-known/acme-challenge"
_NAMES_OF_CAS: Final = {
    "letsencrypt": DIRECTORIES["acme-v02.api.letsencrypt.org"],
    "letsencrypt-test": DIRECTORIES["acme-staging-v02.api.letsencrypt.org"],
    "zerossl": DIRECTORIES["acme.zerossl.com"],
    "buypass": DIRECTORIES["api.buypass.com"],
}


def read_dehydrated(folder: Path, now: datetime, config: Path | None) -> Installation:
    """dehydrated's folder: `certs/NAME`, `accounts/BASE64(URL)`, and perhaps `config`, which the
    argument replaces."""
    require_folder(folder, "dehydrated", "certs", hint="its BASEDIR, usually /var/lib/dehydrated")
    path = config or folder / "config"
    settings = read_shell(path) if config is not None or path.exists() else {}
    places = sorted(entry for entry in (folder / "certs").iterdir() if entry.is_dir())
    return _installation(places, lambda place: _of_dehydrated(folder, place, settings, now))


def _of_dehydrated(folder: Path, place: Path, settings: Mapping[str, str], now: datetime) -> Imported:
    own = dict(settings) | (read_shell(place / "config") if (place / "config").exists() else {})
    hook = own.get("HOOK", "")
    return Imported(
        name=place.name,
        path=place,
        pair=read_pair(place / "fullchain.pem", place / "privkey.pem", now),
        account=_dehydrated_account(folder, own),
        challenges=_dehydrated_challenges(own),
        keeps_key=own.get("PRIVATE_KEY_RENEW", "yes") == "no",
        days_before=days(own.get("RENEW_DAYS", "")),
        preferred_chain=own.get("PREFERRED_CHAIN", ""),
        notes=(f"the hook {hook} is not imported: use --on-change",) if hook else (),
    )


def _dehydrated_account(folder: Path, settings: Mapping[str, str]) -> Account:
    """The account of the CA in the settings, or else the only one."""
    ca = settings.get("CA", "")
    ca = _NAMES_OF_CAS.get(ca, ca)
    servers = {path: _server_of(path) for path in sorted((folder / "accounts").glob("*/"))}
    places = [path for path, server in servers.items() if server and ca in ("", server)]
    place = _only(places, folder / "accounts", "this certificate; see --config")
    info = place / "registration_info.json"
    contact = read_json(info).get("contact") if info.exists() else None
    return Account(
        server=servers[place],
        key_pem=account_key(place / "account_key.pem"),
        email=_mail(contact),
        path=place,
    )


def _server_of(path: Path) -> str:
    """The URL that the name of an account's folder encodes; empty if it is none."""
    name = path.name
    try:
        text = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode().strip()
    except (binascii.Error, UnicodeDecodeError):
        return ""
    return text if text.startswith(("https://", "http://")) else ""


def _dehydrated_challenges(settings: Mapping[str, str]) -> dict[str | None, Challenge]:
    kind, path = settings.get("CHALLENGETYPE", "http-01"), settings.get("WELLKNOWN", "")
    if kind == "http-01" and path.endswith(_WELL_KNOWN):
        return {None: webroot(path.removesuffix(_WELL_KNOWN))}
    if kind == "http-01" and path:
        note = f"WELLKNOWN={path} is not below a web root: name one by --solver webroot=/DIR"
    elif kind == "http-01":
        return {}
    else:
        note = f"{kind} by a hook has no counterpart: name a solver by --solver"
    return {None: _no_solver(note)}
