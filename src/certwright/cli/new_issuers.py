"""Issuers from options, and the Secrets with their credentials.

`PROVIDERS` is the table of what each DNS provider needs. Credentials come from a file or from standard input,
never from the command line, which every user of the machine can read.

Source: docs/dns-providers.md; the names of credentials are those of certbot's DNS plugins, of lego's
environment variables, and of the vendors' own tools.
"""

from __future__ import annotations

import json
import re
import stat
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from certwright.cli.errors import Failed, report_warning
from certwright.cli.flags import argument, file, flag, group
from certwright.kube.api.errors import ApiError
from certwright.kube.util.encoding import one_line

Json = dict[str, Any]
LETS_ENCRYPT: Final = "https://acme-v02.api.letsencrypt.org/directory"
LETS_ENCRYPT_STAGING: Final = "https://acme-staging-v02.api.letsencrypt.org/directory"
_MAX_BYTES: Final = 1 << 16
"""Of a file of credentials: the largest are the accounts of acme-dns, some 300 bytes each."""
_EMAIL: Final = re.compile(r"[^@\s:,]+@[^@\s:,]+\.[^@\s:,.]+")
_SETTING: Final = re.compile(r"(?:export\s+)?(?P<name>[A-Za-z][\w.-]*)\s*[=:]\s*(?P<value>.*)")


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
        for name, value, where in self._pairs():
            if (known := _canonical(name)) in values:
                raise Failed(f"{self.source}{where}: {name} is set twice; keep one")
            if not value:
                raise Failed(f"{self.source}{where}: {name} is empty")
            values[known] = value
        return values

    def _pairs(self) -> Iterable[tuple[str, str, str]]:
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
    """What one DNS provider needs. `fields` maps each name in the file to its field of the issuer; fields
    whose name ends in `SecretRef` or `SecretSecretRef` are entries of the Secret. `forms` are the required
    names, alternatives of which one is enough; an empty one, or one without credentials, means those of the
    server's environment. `others` are the names of other programs, by canonical name."""

    fields: Mapping[str, str]
    forms: tuple[tuple[str, ...], ...]
    prefixes: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The names of credentials."""
        return tuple(name for name, path in self.fields.items() if path.endswith("SecretRef"))

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
_SPELLINGS: Final = {
    "aws": "route53",
    "azure": "azureDNS",
    "clouddns": "cloudDNS",
    "gcloud": "cloudDNS",
    "google": "cloudDNS",
    "nsupdate": "rfc2136",
    "pdns": "powerDNS",
    **{name.lower(): name for name in PROVIDERS},
}


class Solved(msgspec.Struct, frozen=True):
    """A solver, and the entries of the Secret that it refers to."""

    solver: Json
    secret: dict[str, str] = {}
    is_ambient: bool = False


def dns01_solver(provider: str, credentials: Credentials | None, secret: str) -> Solved:
    """The solver of that provider. `secret` is the name of the Secret. Raises `click.UsageError` for an
    unknown provider, and `Failed` for credentials that it cannot use."""
    kind, colon, name = provider.partition(":")
    if colon and kind.lower() in _OPEN:
        return _open_solver(kind.lower(), name, credentials, secret)
    known = _SPELLINGS.get(re.sub(r"[-_]", "", provider).lower())
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
    if kind == "rfc2136":
        values = _tsig(values)
    settings: Json = {}
    for name, path in provider.fields.items():
        if name in values:
            is_secret = name in provider.secrets
            settings[path] = {"name": secret, "key": _entry(name)} if is_secret else values[name]
    entries = {_entry(name): values[name] for name in provider.secrets if name in values}
    return Solved({"dns01": {kind: settings}}, entries, is_ambient=not entries and kind != "rfc2136")


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
    names = {_canonical(name): name for name in provider.fields} | dict(provider.others)
    values: dict[str, str] = {}
    for given, value in credentials.values().items():
        bare = next(
            (
                given.removeprefix(prefix)
                for prefix in ("", *provider.prefixes)
                if given.startswith(prefix) and given.removeprefix(prefix) in names
            ),
            None,
        )
        if bare is None:
            raise Failed(
                f"{credentials.source}: {kind} has no setting {given}; it has {', '.join(provider.fields)}"
            )
        if names[bare] in values:
            raise Failed(f"{credentials.source}: {names[bare]} is set twice; keep one")
        values[names[bare]] = value
    return values


def _tsig(values: dict[str, str]) -> dict[str, str]:
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
    pairs = {name: value for name, value, _ in credentials._pairs()}
    if kind == "lexicon":
        settings = {"provider": name, "credentialsSecretRef": {"name": secret}}
    else:
        settings = {"name": name, "secretRefs": {entry: {"name": secret, "key": entry} for entry in pairs}}
    return Solved({"dns01": {kind: settings}}, pairs)


def _entry(name: str) -> str:
    """The entry of a Secret for a setting: `api_token` is `api-token`."""
    return "key.json" if name == "service_account" else name.replace("_", "-")


def secret_object(name: str, entries: Mapping[str, str]) -> Json:
    """A Secret with these entries."""
    data = {key: b64encode(value.encode()).decode() for key, value in entries.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "Opaque",
        "data": data,
    }


_CLUSTER = flag(
    "--cluster",
    "Create a ClusterIssuer, for all namespaces; -n then names the server's --cluster-resource-namespace, "
    "without it kube-system.",
    is_flag=True,
)
_CA_FILE = file(
    "--ca-file",
    "CA certificates (PEM) to trust the server by, if it has a certificate of a private CA.",
    exists=True,
)


def _credentials_of(name: str, text: str) -> Any:
    return flag(name, text, metavar="FILE", parse=read_credentials)


@dataclass(frozen=True, slots=True, kw_only=True)
class Solving:
    """How an ACME server validates names: exactly one of these."""

    http01: bool = flag(
        "--http01",
        "By HTTP: the server answers at its --http01-listen, which port 80 of each name must lead to.",
        is_flag=True,
    )
    webroot: str | None = flag(
        "--webroot",
        "By HTTP: the server writes files below DIR, which a web server of yours serves.",
        metavar="DIR",
    )
    tls_alpn01: bool = flag(
        "--tls-alpn01",
        "By TLS: the server answers at its --tlsalpn01-listen, which port 443 of each name must lead to.",
        is_flag=True,
    )
    dns01: str | None = flag(
        "--dns01",
        f"By DNS, also for wildcards: {', '.join(PROVIDERS)}, lexicon:NAME, plugin:NAME or "
        "webhook:GROUP/NAME.",
        metavar="PROVIDER",
    )
    credentials: Credentials | None = _credentials_of(
        "--credentials",
        "The provider's credentials, NAME = VALUE or JSON; `-` is standard input. They are stored in a "
        "Secret beside the issuer.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLetsEncrypt:
    """The options of `create issuer letsencrypt`. None: not given."""

    name: str = argument(metavar="[NAME]", required=False, default="letsencrypt")
    email: str | None = flag(
        "--email", "The contact of the account at Let's Encrypt.", metavar="ADDRESS", required=True
    )
    staging: bool = flag(
        "--staging",
        "Use the server for tests: high limits, and certificates that no browser trusts.",
        is_flag=True,
    )
    solving: Solving = group(Solving)
    profile: str | None = flag("--profile", "The profile of certificates, e.g. shortlived.", metavar="NAME")
    cluster: bool = _CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NewAcme:
    """The options of `create issuer acme`. None: not given."""

    name: str = argument()
    server: str = flag("--server", "The URL of the directory.", metavar="URL", required=True)
    email: str | None = flag("--email", "The contact of the account.", metavar="ADDRESS")
    solving: Solving = group(Solving)
    eab: Credentials | None = _credentials_of(
        "--eab",
        "The external account binding that the CA has given: key_id and hmac_key; `-` is standard input.",
    )
    profile: str | None = flag("--profile", "The profile of certificates.", metavar="NAME")
    preferred_chain: str | None = flag(
        "--preferred-chain", "The common name of the chain's topmost issuer.", metavar="TEXT"
    )
    ca_file: Path | None = _CA_FILE
    cluster: bool = _CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCaIssuer:
    """The options of `create issuer ca`."""

    name: str = argument()
    secret: str = flag(
        "--secret", "The Secret with the CA's tls.crt and tls.key.", metavar="NAME", required=True
    )
    cluster: bool = _CLUSTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVault:
    """The options of `create issuer vault`. None: not given."""

    name: str = argument()
    server: str = flag("--server", "The URL of Vault or OpenBao.", metavar="URL", required=True)
    path: str = flag("--path", "The endpoint that signs, e.g. pki/sign/web.", metavar="PATH", required=True)
    credentials: Credentials = flag(
        "--credentials",
        "A token, or role_id and secret_id of AppRole, NAME = VALUE or JSON; `-` is standard input. They are "
        "stored in a Secret beside the issuer.",
        metavar="FILE",
        parse=read_credentials,
        required=True,
    )
    auth_path: str = flag("--auth-path", "Where AppRole is mounted.", metavar="PATH", default="approle")
    vault_namespace: str | None = flag("--vault-namespace", "The namespace in Vault.", metavar="NAME")
    ca_file: Path | None = _CA_FILE
    cluster: bool = _CLUSTER


Requested = NewLetsEncrypt | NewAcme | NewCaIssuer | NewVault


class NewIssuer(msgspec.Struct, frozen=True):
    """The objects to create, in their order; warnings about what they need; and the settings of the server's
    configuration that allow them, by the ending of the field that a server without them refuses."""

    objects: list[Json]
    notes: tuple[str, ...] = ()
    allowing: dict[str, str] = {}


def new_issuer(requested: Requested) -> NewIssuer:
    """The issuer and its Secrets. Raises `click.UsageError` and `Failed`."""
    match requested:
        case NewLetsEncrypt():
            server = LETS_ENCRYPT_STAGING if requested.staging else LETS_ENCRYPT
            return _acme(requested, server)
        case NewAcme():
            return _acme(requested, requested.server)
        case NewCaIssuer():
            return NewIssuer([_issuer(requested, {"ca": {"secretName": requested.secret}})])
        case NewVault():
            return _vault(requested)


def _acme(requested: NewLetsEncrypt | NewAcme, server: str) -> NewIssuer:
    name = requested.name
    if requested.email is not None and not _EMAIL.fullmatch(requested.email):
        raise click.UsageError(f"--email {requested.email}: is not one e-mail address, e.g. you@example.org")
    _check_url("--server", server)
    solved = _solved(requested.solving, f"{name}-dns01")
    acme: Json = {"server": server, "email": requested.email, "profile": requested.profile}
    acme["privateKeySecretRef"] = {"name": f"{name}-account"}
    objects = [secret_object(f"{name}-dns01", solved.secret)] if solved.secret else []
    if isinstance(requested, NewAcme):
        acme["preferredChain"] = requested.preferred_chain
        acme["caBundle"] = _bundle(requested.ca_file)
        if requested.eab is not None:
            key_id, hmac_key = _eab(requested.eab)
            objects.append(secret_object(f"{name}-eab", {"hmac-key": hmac_key}))
            reference = {"name": f"{name}-eab", "key": "hmac-key"}
            acme["externalAccountBinding"] = {"keyID": key_id, "keySecretRef": reference}
    acme["solvers"] = [solved.solver]
    acme = {key: value for key, value in acme.items() if value}
    notes = _notes(requested, solved)
    allowing = _allowing(requested.solving)
    return NewIssuer([*objects, _issuer(requested, {"acme": acme})], notes, allowing)


def _solved(solving: Solving, secret: str) -> Solved:
    ways = {
        "--http01": solving.http01,
        "--webroot DIR": solving.webroot is not None,
        "--tls-alpn01": solving.tls_alpn01,
        "--dns01 PROVIDER": solving.dns01 is not None,
    }
    given = [way for way, is_given in ways.items() if is_given]
    if not given:
        raise click.UsageError(f"how are names validated? Give one of {', '.join(ways)}")
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other: keep one")
    if solving.credentials is not None and solving.dns01 is None:
        raise click.UsageError("--credentials are those of a DNS provider: name it by --dns01")
    if solving.dns01 is not None:
        return dns01_solver(solving.dns01, solving.credentials, secret)
    if solving.webroot is None:
        return Solved({"tlsALPN01": {}} if solving.tls_alpn01 else {"http01": {"ingress": {}}})
    path = solving.webroot
    if not path.startswith("/") or ".." in path.split("/"):
        raise click.UsageError(f"--webroot {path}: write the whole path, from / and without `..`")
    return Solved({"http01": {"webroot": {"path": path}}})


def _notes(requested: NewLetsEncrypt | NewAcme, solved: Solved) -> tuple[str, ...]:
    if not solved.is_ambient or requested.solving.dns01 is None or ":" in requested.solving.dns01:
        return ()
    kind, state = ("--cluster-issuer-", "on") if requested.cluster else ("--issuer-", "off")
    return (
        f"the credentials are those of the server's environment, by its flag {kind}ambient-credentials, "
        f"which is {state} by default",
    )


def _allowing(solving: Solving) -> dict[str, str]:
    kind, _, name = (solving.dns01 or "").partition(":")
    return {
        "http01.webroot.path": f"webroot: [{json.dumps(solving.webroot, ensure_ascii=False)}]",
        "dns01.lexicon.provider": f"dns01Lexicon: [{name}]",
        "dns01.plugin.name": f"dns01Plugin: [{name}]",
        "acme.server": "allowHttpServers: true",
        "vault.server": "allowHttpServers: true",
        f"dns01.{_SPELLINGS.get(kind.lower(), '')}.host": "allowHttpServers: true",
    }


def _vault(requested: NewVault) -> NewIssuer:
    _check_url("--server", requested.server)
    name, credentials = f"{requested.name}-vault", requested.credentials
    alone = credentials.single()
    values = {"token": alone} if alone is not None else credentials.values()
    match values:
        case {"token": token} if len(values) == 1:
            entries = {"token": token}
            auth: Json = {"tokenSecretRef": {"name": name, "key": "token"}}
        case {"roleid": role, "secretid": secret} if len(values) == 2:
            entries = {"secret-id": secret}
            reference = {"name": name, "key": "secret-id"}
            auth = {"appRole": {"path": requested.auth_path, "roleId": role, "secretRef": reference}}
        case _:
            raise Failed(
                f"{credentials.source}: write a token, or role_id and secret_id of AppRole; docs/vault.md "
                "has the other ways to log in"
            )
    vault: Json = {"server": requested.server, "path": requested.path, "auth": auth}
    vault |= {"namespace": requested.vault_namespace, "caBundle": _bundle(requested.ca_file)}
    vault = {key: value for key, value in vault.items() if value}
    allowing = {"vault.server": "allowHttpServers: true"}
    return NewIssuer([secret_object(name, entries), _issuer(requested, {"vault": vault})], (), allowing)


def _eab(credentials: Credentials) -> tuple[str, str]:
    """The ID and the MAC key. Names are those of acme.sh, certbot, ZeroSSL and gcloud."""
    values = credentials.values()
    ids = [values[key] for key in ("keyid", "kid", "eabkid", "eabkeyid") if key in values]
    keys = ("hmackey", "hmac", "eabhmackey", "b64mackey", "mackey")
    macs = [values[key] for key in keys if key in values]
    if len(ids) != 1 or len(macs) != 1:
        raise Failed(f"{credentials.source}: needs key_id and hmac_key, once each, as the CA has given them")
    if not re.fullmatch(r"[A-Za-z0-9_-]+=*", macs[0]):
        raise Failed(f"{credentials.source}: hmac_key is not base64url, as the CA gives it")
    return ids[0], macs[0].rstrip("=")


def _bundle(path: Path | None) -> str:
    if path is None:
        return ""
    content = path.read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in content:
        raise Failed(f"{path}: contains no certificate (PEM)")
    return b64encode(content).decode()


def _check_url(name: str, url: str) -> None:
    if not re.match(r"https?://[^/\s]+", url):
        raise click.UsageError(f"{name} {url}: is not a URL, e.g. https://ca.example.org/directory")


def _issuer(requested: Requested, spec: Json) -> Json:
    kind = "ClusterIssuer" if requested.cluster else "Issuer"
    metadata = {"name": requested.name}
    return {"apiVersion": "cert-manager.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def advice_on(error: ApiError, new: NewIssuer) -> str:
    """The fix of a refusal that the operator's configuration can end; empty if none can."""
    settings = [
        setting
        for cause in error.causes
        for ending, setting in new.allowing.items()
        if cause.reason == "FieldValueForbidden" and cause.field.endswith(f".{ending}")
    ]
    if not settings:
        return ""
    return one_line(
        f"; add the line `{settings[0]}` to a file of the server's configuration, e.g. "
        "/etc/certwright/conf.d/50-issuers.yaml, and run `systemctl reload certwright`"
    )
