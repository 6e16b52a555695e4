"""Issuers from options, and the Secrets with their credentials."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from certwright.cli.dns_providers import (
    PROVIDERS,
    Credentials,
    Solved,
    dns01_solver,
    read_credentials,
)
from certwright.cli.errors import Failed
from certwright.cli.flags import argument, file, flag, group
from certwright.kube.api.errors import ApiError
from certwright.kube.util.encoding import one_line

Json = dict[str, Any]
LETS_ENCRYPT: Final = "https://acme-v02.api.letsencrypt.org/directory"
LETS_ENCRYPT_STAGING: Final = "https://acme-staging-v02.api.letsencrypt.org/directory"
_EMAIL: Final = re.compile(r"[^@\s:,]+@[^@\s:,]+\.[^@\s:,.]+")


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
    name = (solving.dns01 or "").partition(":")[2]
    return {
        "http01.webroot.path": f"webroot: [{json.dumps(solving.webroot, ensure_ascii=False)}]",
        "dns01.lexicon.provider": f"dns01Lexicon: [{name}]",
        "dns01.plugin.name": f"dns01Plugin: [{name}]",
        "acme.server": "allowHttpServers: true",
        "dns01.acmeDNS.host": "allowHttpServers: true",
        "dns01.powerDNS.host": "allowHttpServers: true",
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
