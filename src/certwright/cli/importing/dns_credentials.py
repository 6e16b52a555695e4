"""DNS providers of other programs as solvers, with their credentials.

Source: the documentation of certbot's DNS plugins; acme.sh's wiki, "dnsapi"; cert-manager's fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

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
        return _google(Path(path))
    if plugin not in _PROVIDERS or not path:
        return _unknown(f"certbot's plugin {authenticator}")
    prefix = f"dns_{plugin}_"
    lines = [line.partition("=") for line in read_text(Path(path)).splitlines() if not line.startswith("#")]
    values = {key.strip().removeprefix(prefix): value.strip() for key, _, value in lines}
    return _PROVIDERS[plugin](values) or _incomplete(path)


def of_acme_sh(script: str, saved: Values) -> Challenge:
    """The solver for a script of `dnsapi`, with the variables that acme.sh has saved."""
    names = _SCRIPTS.get(script)
    if script == "dns_nsupdate":
        return _nsupdate(saved)
    if names is None:
        return _unknown(f"acme.sh's {script}")
    provider, variables = names
    values = {ours: saved.get(f"SAVED_{theirs}", "") for theirs, ours in variables.items()}
    return _PROVIDERS[provider](values) or _incomplete("account.conf")


def _dns(provider: str, settings: dict[str, Any], **credentials: tuple[str, str]) -> Challenge:
    encoded = {field: (entry, value.encode()) for field, (entry, value) in credentials.items()}
    return Challenge(solver={"dns01": {provider: settings}}, credentials=encoded)


def _cloudflare(values: Values) -> Challenge | None:
    if token := values.get("api_token"):
        return _dns("cloudflare", {}, apiTokenSecretRef=("api-token", token))
    if values.get("email") and (key := values.get("api_key")):
        return _dns("cloudflare", {"email": values["email"]}, apiKeySecretRef=("api-key", key))
    return None


def _digitalocean(values: Values) -> Challenge | None:
    token = values.get("token")
    return _dns("digitalocean", {}, tokenSecretRef=("access-token", token)) if token else None


def _route53(values: Values) -> Challenge | None:
    key, secret = values.get("access_key_id"), values.get("secret_access_key")
    if not key or not secret:
        return None
    return _dns("route53", {"accessKeyID": key}, secretAccessKeySecretRef=("secret-access-key", secret))


def _powerdns(values: Values) -> Challenge | None:
    host, token = values.get("host"), values.get("token")
    if not host or not token:
        return None
    server = {"serverID": values["server_id"]} if values.get("server_id") else {}
    return _dns("powerDNS", {"host": host, **server}, apiKeySecretRef=("api-key", token))


def _rfc2136(values: Values) -> Challenge | None:
    server, name, secret = (values.get(key, "") for key in ("server", "name", "secret"))
    if not server or not name or not secret:
        return None
    algorithm = values.get("algorithm", "HMAC-MD5").upper().replace("-", "").removesuffix(".")
    settings = {
        "nameserver": f"{server}:{values.get('port', '53')}",
        "tsigKeyName": name.rstrip("."),
        "tsigAlgorithm": algorithm,
    }
    return _dns("rfc2136", settings, tsigSecretSecretRef=("tsig-secret", secret))


_PROVIDERS: Final[Mapping[str, Callable[[Values], Challenge | None]]] = {
    "cloudflare": _cloudflare,
    "digitalocean": _digitalocean,
    "route53": _route53,
    "powerdns": _powerdns,
    "rfc2136": _rfc2136,
}
_SCRIPTS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "dns_cf": ("cloudflare", {"CF_Token": "api_token", "CF_Key": "api_key", "CF_Email": "email"}),
    "dns_dgon": ("digitalocean", {"DO_API_KEY": "token"}),
    "dns_aws": (
        "route53",
        {"AWS_ACCESS_KEY_ID": "access_key_id", "AWS_SECRET_ACCESS_KEY": "secret_access_key"},
    ),
    "dns_pdns": ("powerdns", {"PDNS_Url": "host", "PDNS_Token": "token", "PDNS_ServerId": "server_id"}),
}


def _google(path: Path) -> Challenge:
    project = read_json(path).get("project_id")
    if not isinstance(project, str):
        return _incomplete(str(path))
    return _dns("cloudDNS", {"project": project}, serviceAccountSecretRef=("key.json", read_text(path)))


def _nsupdate(saved: Values) -> Challenge:
    path = saved.get("SAVED_NSUPDATE_KEY", "")
    try:
        match = _NAMED_KEY.search(read_text(Path(path))) if path else None
    except CannotImport:
        match = None
    server = saved.get("SAVED_NSUPDATE_SERVER", "")
    if match is None or not server:
        return _incomplete(path or "account.conf")
    port = saved.get("SAVED_NSUPDATE_SERVER_PORT") or "53"
    return _rfc2136({"server": server, "port": port, **match.groupdict()}) or _incomplete(path)


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
