"""DNS providers of ACME solvers: which credentials each needs, and how other programs name them.

Credentials come from a file or from standard input, never from the command line, which every user of the
machine can read.

Source: the documentation of certbot's DNS plugins, of lego and of acme.sh; the vendors'
own tools.
"""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from certwright.cli.errors import Failed, report_warning

Json = dict[str, Any]
_MAX_BYTES: Final = 1 << 16
"""Of a file of credentials: the largest are the accounts of acme-dns, some 300 bytes each."""
_SETTING: Final = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z][\w.-]*)\s*[=:]\s*(?P<value>.*)", re.ASCII)


class Credentials(msgspec.Struct, frozen=True):
    """The text of a file of credentials, and its name for messages."""

    source: str
    text: str = msgspec.field(default="")

    def __repr__(self) -> str:
        return f"Credentials({self.source!r})"

    def single(self) -> str | None:
        """The only word of the file, e.g. a token; None if it is anything else."""
        words = self.text.split()
        return words[0] if len(words) == 1 and not re.search(r"[={]", words[0]) else None

    def values(self) -> dict[str, str]:
        """The settings by their canonical names. Raises `Failed` for anything but a JSON object or lines
        `NAME = VALUE`."""
        values: dict[str, str] = {}
        for name, value, where in self.pairs():
            if (known := _canonical(name)) in values:
                raise Failed(f"{self.source}{where}: {name} is set twice; keep one")
            if not value:
                raise Failed(f"{self.source}{where}: {name} is empty")
            values[known] = value
        return values

    def pairs(self) -> Iterable[tuple[str, str, str]]:
        """Name, value and place of each setting, as written. Raises `Failed`."""
        if self.text.lstrip().startswith("{"):
            for name, value in self.mapping().items():
                yield name, value if isinstance(value, str) else json.dumps(value), ""
            return
        for number, line in enumerate(self.text.splitlines(), 1):
            text = line.strip()
            if not text or text.startswith(("#", ";", "[")):
                continue
            match = _SETTING.fullmatch(text)
            if match is None:
                # The line itself may be a credential.
                raise Failed(f"{self.source}, line {number}: write NAME = VALUE, or a JSON object")
            value = match["value"].strip()
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            yield match["name"], value, f", line {number}"

    def mapping(self) -> Json:
        """The JSON object. Raises `Failed`."""
        try:
            content = json.loads(self.text)
        except ValueError as error:
            place = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
            raise Failed(f"{self.source}{place}: is not JSON") from None
        if not isinstance(content, dict):
            raise Failed(f"{self.source}: is not a JSON object")
        return content


def read_credentials(value: str | None) -> Credentials | None:
    """The file of that name, or standard input for `-`. Raises `click.BadParameter`."""
    if value is None:
        return None
    if value == "-":
        source = "standard input"
        content = sys.stdin.buffer.read(_MAX_BYTES + 1) if sys.stdin is not None else b""
    else:
        source = value
        try:
            with Path(value).open("rb") as opened:
                content = opened.read(_MAX_BYTES + 1)
                mode = stat.S_IMODE(Path(value).stat().st_mode)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise click.BadParameter(
                f"{value}: {reason}; name a file, or - for standard input: a command line is no place for "
                "credentials"
            ) from error
        if mode & 0o044 and Path(value).is_file():
            report_warning(f"{value} can be read by other users; `chmod 600 {value}`")
    if len(content) > _MAX_BYTES:
        raise click.BadParameter(f"{source} is longer than {_MAX_BYTES // 1024} KiB: not credentials")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise click.BadParameter(f"{source} is not text") from None
    if not text.strip():
        raise click.BadParameter(f"{source} is empty")
    return Credentials(source, text)


def _canonical(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """The settings of one DNS provider. `fields` maps each name in the file to its field of the issuer;
    fields whose name ends in `SecretRef` or `SecretSecretRef` are entries of the Secret. `forms` are the
    alternatives of required names; an empty form, or one without credentials, means the credentials of the
    server's environment. `others` are the names in other programs, by canonical name."""

    fields: Mapping[str, str]
    forms: tuple[tuple[str, ...], ...]
    prefixes: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of credentials."""
        return tuple(name for name, path in self.fields.items() if path.endswith("SecretRef"))

    def named(self, given: str) -> str:
        """The name in `fields` of a setting as other programs call it; empty if it is unknown."""
        names = {_canonical(name): name for name in self.fields} | dict(self.others)
        bare = _canonical(given)
        found = (names.get(bare.removeprefix(each)) for each in ("", *self.prefixes) if bare.startswith(each))
        return next(filter(None, found), "")

    def needs(self) -> str:
        """The alternatives in words."""
        return ", or ".join(" and ".join(form) for form in self.forms if form)


PROVIDERS: Final[Mapping[str, Provider]] = {
    "acmeDNS": Provider(
        fields={"host": "host", "accounts": "accountSecretRef"},
        forms=(("host", "accounts"),),
        prefixes=("acmedns",),
        others={"url": "host", "apibase": "host", "serverurl": "host"},
    ),
    "akamai": Provider(
        fields={
            "host": "serviceConsumerDomain",
            "client_token": "clientTokenSecretRef",
            "client_secret": "clientSecretSecretRef",
            "access_token": "accessTokenSecretRef",
        },
        forms=(("host", "client_token", "client_secret", "access_token"),),
        prefixes=("akamai", "edgedns"),
    ),
    "azureDNS": Provider(
        fields={
            "subscription_id": "subscriptionID",
            "resource_group": "resourceGroupName",
            "tenant_id": "tenantID",
            "client_id": "clientID",
            "client_secret": "clientSecretSecretRef",
            "hosted_zone": "hostedZoneName",
            "environment": "environment",
            "zone_type": "zoneType",
        },
        forms=(
            ("subscription_id", "resource_group"),
            ("subscription_id", "resource_group", "tenant_id", "client_id", "client_secret"),
        ),
        prefixes=("azure", "dnsazure", "dnsazuresp"),
        others={"resourcegroupname": "resource_group", "hostedzonename": "hosted_zone"},
    ),
    "cloudDNS": Provider(
        fields={
            "project": "project",
            "service_account": "serviceAccountSecretRef",
            "hosted_zone": "hostedZoneName",
        },
        forms=(("project",), ("project", "service_account")),
        prefixes=("gce", "google", "dnsgoogle"),
        others={"projectid": "project", "hostedzonename": "hosted_zone"},
    ),
    "cloudflare": Provider(
        fields={"api_token": "apiTokenSecretRef", "email": "email", "api_key": "apiKeySecretRef"},
        forms=(("api_token",), ("email", "api_key")),
        prefixes=("dnscloudflare", "cloudflaredns", "cloudflare", "cfdns", "cf"),
        others={"token": "api_token", "key": "api_key"},
    ),
    "digitalocean": Provider(
        fields={"token": "tokenSecretRef"},
        forms=(("token",),),
        prefixes=("dnsdigitalocean", "digitalocean", "do"),
        others={"authtoken": "token", "apikey": "token", "accesstoken": "token"},
    ),
    "powerDNS": Provider(
        fields={"host": "host", "api_key": "apiKeySecretRef", "server_id": "serverID"},
        forms=(("host", "api_key"),),
        prefixes=("dnspowerdns", "powerdns", "pdns"),
        others={"url": "host", "apiurl": "host", "token": "api_key", "servername": "server_id"},
    ),
    "rfc2136": Provider(
        fields={
            "server": "nameserver",
            "port": "port",
            "name": "tsigKeyName",
            "secret": "tsigSecretSecretRef",
            "algorithm": "tsigAlgorithm",
            "protocol": "protocol",
        },
        forms=(("server",), ("server", "name", "secret")),
        prefixes=("dnsrfc2136", "rfc2136"),
        others={
            "nameserver": "server",
            "tsigkey": "name",
            "tsigkeyname": "name",
            "key": "name",
            "tsigsecret": "secret",
            "tsigalgorithm": "algorithm",
        },
    ),
    "route53": Provider(
        fields={
            "access_key_id": "accessKeyID",
            "secret_access_key": "secretAccessKeySecretRef",
            "region": "region",
            "role": "role",
            "hosted_zone_id": "hostedZoneID",
        },
        forms=((), ("access_key_id", "secret_access_key")),
        prefixes=("aws", "dnsroute53"),
        others={"assumerolearn": "role", "rolearn": "role"},
    ),
}
"""The providers whose settings are fixed; `lexicon:NAME`, `plugin:NAME` and `webhook:GROUP/NAME` take those
of another program."""
_OPEN: Final = ("lexicon", "plugin", "webhook")
SPELLINGS: Final[Mapping[str, str]] = {
    "aws": "route53",
    "azure": "azureDNS",
    "clouddns": "cloudDNS",
    "gcloud": "cloudDNS",
    "google": "cloudDNS",
    "nsupdate": "rfc2136",
    "pdns": "powerDNS",
    **{name.lower(): name for name in PROVIDERS},
}
"""The providers by their names in small letters, without `-` and `_`, and by those of other programs."""


class Solved(msgspec.Struct, frozen=True):
    """A solver, and the entries of its Secret."""

    solver: Json
    secret: dict[str, str] = {}
    is_ambient: bool = False


def dns01_solver(provider: str, credentials: Credentials | None, secret: str) -> Solved:
    """The solver of the provider. `secret` is the name of the Secret. Raises `click.UsageError` for an
    unknown provider, and `Failed` for unusable credentials."""
    kind, colon, name = provider.partition(":")
    if colon and kind.lower() in _OPEN:
        return _open_solver(kind.lower(), name, credentials, secret)
    known = SPELLINGS.get(re.sub(r"[-_]", "", provider).lower())
    if known is None:
        hint = " (a name after it, e.g. lexicon:hetzner)" if provider.lower() in _OPEN else ""
        raise click.UsageError(
            f"--dns01 {provider}: is not one of {', '.join(PROVIDERS)}, lexicon:NAME, plugin:NAME, "
            f"webhook:GROUP/NAME{hint}"
        )
    if credentials is None and () not in PROVIDERS[known].forms:
        raise click.UsageError(
            f"--dns01 {known} needs --credentials FILE with {PROVIDERS[known].needs()}, as NAME = VALUE"
        )
    return _known_solver(known, credentials, secret)


def _known_solver(kind: str, credentials: Credentials | None, secret: str) -> Solved:
    provider = PROVIDERS[kind]
    values = _values_of(kind, provider, credentials) if credentials is not None else {}
    form = max(provider.forms, key=lambda form: len(values.keys() & set(form)))
    if missing := [name for name in form if name not in values]:
        source = credentials.source if credentials is not None else "--credentials"
        raise Failed(f"{source}: lacks {' and '.join(missing)}; {kind} needs {provider.needs()}")
    unused = set(provider.secrets) & values.keys() - set(form)
    if unused and credentials is not None:
        both = " and ".join(sorted((*unused, form[0])))
        raise Failed(f"{credentials.source}: {both} exclude each other; {kind} needs {provider.needs()}")
    settings, entries = settings_of(kind, values)
    settings |= {path: {"name": secret, "key": entry} for path, (entry, _) in entries.items()}
    contents = dict(entries.values())
    return Solved({"dns01": {kind: settings}}, contents, is_ambient=not contents and kind != "rfc2136")


def settings_of(kind: str, values: Mapping[str, str]) -> tuple[Json, dict[str, tuple[str, str]]]:
    """The provider's settings without credentials, and the entries of the Secret with their values, by the
    field that refers to each. `values` are by the names of `fields`."""
    provider = PROVIDERS[kind]
    if kind == "rfc2136":
        values = _tsig(values)
    fields = {name: path for name, path in provider.fields.items() if name in values}
    settings = {path: values[name] for name, path in fields.items() if name not in provider.secrets}
    return settings, {
        fields[name]: (_entry(name), values[name]) for name in provider.secrets if name in fields
    }


def satisfied(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """The settings of other programs by the names of `fields`, without those that belong to another form;
    empty if no form with credentials is complete. Empty and unknown settings are ignored."""
    provider = PROVIDERS[kind]
    known = {name: value for given, value in values.items() if value and (name := provider.named(given))}
    for form in provider.forms:
        if set(form) & set(provider.secrets) and set(form) <= known.keys():
            others = {name for each in provider.forms for name in each} - set(form)
            return {name: value for name, value in known.items() if name not in others}
    return {}


def _values_of(kind: str, provider: Provider, credentials: Credentials) -> dict[str, str]:
    """The settings by the names of `fields`."""
    alone = credentials.single()
    if alone is not None and len(provider.forms[0]) == 1 and provider.forms[0][0] in provider.secrets:
        return {provider.forms[0][0]: alone}
    if kind in ("cloudDNS", "acmeDNS") and credentials.text.lstrip().startswith("{"):
        content = credentials.mapping()
        if content.get("type") == "service_account":
            if not isinstance(content.get("project_id"), str):
                raise Failed(f"{credentials.source}: lacks project_id")
            return {"project": content["project_id"], "service_account": credentials.text}
        if kind == "acmeDNS" and content and "accounts" not in content:
            raise Failed(
                f'{credentials.source}: write {{"host": "https://…", "accounts": {{"DOMAIN": …}}}}: the URL '
                "of the server, and the accounts by domain"
            )
    values: dict[str, str] = {}
    for given, value in credentials.values().items():
        name = provider.named(given)
        if not name:
            raise Failed(
                f"{credentials.source}: {kind} has no setting {given}; it has {', '.join(provider.fields)}"
            )
        if name in values:
            raise Failed(f"{credentials.source}: {name} is set twice; keep one")
        values[name] = value
    return values


def _tsig(values: Mapping[str, str]) -> dict[str, str]:
    """RFC 2136 as the issuer has it: the port beside the server, and the algorithm in its spelling."""
    values = dict(values)
    if port := values.pop("port", ""):
        server = values["server"]
        values["server"] = f"[{server}]:{port}" if server.count(":") > 1 else f"{server}:{port}"
    if algorithm := values.get("algorithm"):
        values["algorithm"] = algorithm.upper().replace("-", "").rstrip(".")
    if name := values.get("name"):
        values["name"] = name.rstrip(".")
    return values


def _open_solver(kind: str, name: str, credentials: Credentials | None, secret: str) -> Solved:
    """A solver of another program, whose settings only it knows: all entries of the file are in the Secret,
    or, for a webhook, in its `config`."""
    if credentials is None:
        raise click.UsageError(f"--dns01 {kind}:{name} needs --credentials FILE")
    if kind == "webhook":
        where, _, solver = name.partition("/")
        if not where or not solver:
            raise click.UsageError(
                f"--dns01 webhook:{name}: write webhook:GROUP/NAME, e.g. acme.example.com/dns"
            )
        # Its config refers to Secrets as the webhook documents it, so they are not made here.
        settings: Json = {"groupName": where, "solverName": solver, "config": credentials.mapping()}
        return Solved({"dns01": {"webhook": settings}})
    if not name:
        raise click.UsageError(f"--dns01 {kind}: write {kind}:NAME")
    pairs = {name: value for name, value, _ in credentials.pairs()}
    if kind == "lexicon":
        settings = {"provider": name, "credentialsSecretRef": {"name": secret}}
    else:
        settings = {"name": name, "secretRefs": {entry: {"name": secret, "key": entry} for entry in pairs}}
    return Solved({"dns01": {kind: settings}}, pairs)


def _entry(name: str) -> str:
    """The entry of a Secret for a setting: `api_token` is `api-token`."""
    usual = {"secret": "tsig-secret", "service_account": "key.json", "token": "access-token"}
    return usual.get(name, name.replace("_", "-"))
