"""DNS providers of other programs as solvers, with their credentials.

Source: the documentation of certbot's DNS plugins; acme.sh's wiki, "dnsapi"; cert-manager's fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from certwright.cli import dns_providers
from certwright.cli.importing.files import CannotImport, Challenge, read_json, read_shell, read_text

Values = Mapping[str, str]
_NAMED_KEY: Final = re.compile(
    r'key\s+"?(?P<name>[\w.-]+)"?\s*\{[^}]*?algorithm\s+"?(?P<algorithm>[\w-]+)"?\s*;'
    r'[^}]*?secret\s+"?(?P<secret>[A-Za-z0-9+/=]+)"?\s*;'
)
_AMBIENT: Final = "the credentials come from the server's environment: --issuer-ambient-credentials"


def of_certbot(authenticator: str, settings: Values) -> Challenge:
    """The solver for a DNS plugin; one without a solver, and a note, where there is no counterpart. The
    credentials are in the file that the settings name. Raises `CannotImport` if that cannot be read."""
    plugin = authenticator.removeprefix("dns-").replace("-", "_")
    if plugin == "route53":
        return Challenge(solver={"dns01": {"route53": {}}}, note=_AMBIENT)
    path = settings.get(f"dns_{plugin}_credentials", "")
    if plugin == "google" and path:
        project = read_json(Path(path)).get("project_id")
        if not isinstance(project, str):
            return _incomplete(path)
        key = ("key.json", read_text(Path(path)))
        return _dns("cloudDNS", {"project": project}, serviceAccountSecretRef=key)
    kind = dns_providers.SPELLINGS.get(plugin)
    if kind is None or not path:
        return _unknown(f"certbot's plugin {authenticator}")
    lines = [line.partition("=") for line in read_text(Path(path)).splitlines() if not line.startswith("#")]
    return _challenge(kind, {key.strip(): value.strip() for key, _, value in lines}) or _incomplete(path)


def of_acme_sh(script: str, saved: Values) -> Challenge:
    """The solver for a script of `dnsapi`, with the variables that acme.sh has saved."""
    if script == "dns_nsupdate":
        path = saved.get("SAVED_NSUPDATE_KEY", "")
        try:
            match = _NAMED_KEY.search(read_text(Path(path))) if path else None
        except CannotImport:
            match = None
        server = saved.get("SAVED_NSUPDATE_SERVER", "")
        if match is None or not server:
            return _incomplete(path or "account.conf")
        port = saved.get("SAVED_NSUPDATE_SERVER_PORT") or "53"
        values = {"server": server, "port": port, **match.groupdict()}
        return _challenge("rfc2136", values) or _incomplete(path)
    kind = _SCRIPTS.get(script)
    if kind is None:
        return _unknown(f"acme.sh's {script}")
    values = {
        name.removeprefix("SAVED_"): value for name, value in saved.items() if name.startswith("SAVED_")
    }
    return _challenge(kind, values) or _incomplete("account.conf")


def _challenge(kind: str, values: Values) -> Challenge | None:
    """The solver of that provider; None without complete credentials."""
    known = dns_providers.satisfied(kind, values)
    if not known:
        return None
    if kind == "rfc2136":
        # The defaults of certbot's plugin.
        known = {"port": "53", "algorithm": "HMAC-MD5", **known}
    settings, entries = dns_providers.settings_of(kind, known)
    return _dns(kind, settings, **entries)


def _dns(provider: str, settings: dict[str, Any], **credentials: tuple[str, str]) -> Challenge:
    encoded = {field: (entry, value.encode()) for field, (entry, value) in credentials.items()}
    return Challenge(solver={"dns01": {provider: settings}}, credentials=encoded)


_SCRIPTS: Final = {
    "dns_aws": "route53",
    "dns_cf": "cloudflare",
    "dns_dgon": "digitalocean",
    "dns_pdns": "powerDNS",
}


def _unknown(what: str) -> Challenge:
    note = f"{what} has no counterpart: name a solver by --solver, or see docs/dns-providers.md"
    return Challenge(solver={}, note=note)


def _incomplete(path: str) -> Challenge:
    return Challenge(solver={}, note=f"{path} lacks the DNS credentials: add a solver to the issuer")


def saved_variables(*paths: Path) -> dict[str, str]:
    """The variables that acme.sh has saved in these files; a missing file has none."""
    variables: dict[str, str] = {}
    for path in paths:
        if path.exists():
            variables |= read_shell(path)
    return variables
