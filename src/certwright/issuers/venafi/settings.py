"""A spec of a `venafi` issuer and its Secrets as values: where the server is, and how to log in."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

import msgspec

from certwright.issuers.contract import GetSecret
from certwright.issuers.servers import BadSettings, secret_line, secret_value
from certwright.kit.outgoing import ServerTls
from certwright.resources.issuer import VenafiIssuer
from certwright.resources.names import CA_CERT_KEY
from certwright.resources.references import SecretKeySelector

CLOUD_URL: Final = "https://api.venafi.cloud"
NGTS_URL: Final = "https://api.strata.paloaltonetworks.com/ngts"
NGTS_TOKEN_URL: Final = "https://auth.apps.paloaltonetworks.com/oauth2/access_token"  # noqa: S105 - a URL
_TPP_CLIENT: Final = "cert-manager.io"
"""The API integration of TPP that cert-manager's documentation has administrators register."""
_TPP_PATH: Final = "/vedsdk"


SYSTEM_TRUST: Final = ServerTls()


class Product(Enum):
    """The products that a spec may name."""

    TPP = auto()
    CLOUD = auto()
    NGTS = auto()


@dataclass(frozen=True, slots=True)
class StaticKey:
    """An access token (TPP) or API key (Cloud) from a Secret; `where` names the field."""

    value: str = field(repr=False)
    where: str


@dataclass(frozen=True, slots=True)
class Password:
    """A user of TPP, and the API integration to log in to."""

    username: str
    password: str = field(repr=False)
    client_id: str


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """A service account of NGTS: OAuth client credentials (RFC 6749 §4.4)."""

    client_id: str
    client_secret: str = field(repr=False)
    token_url: str
    scope: str


Credentials = StaticKey | Password | ClientCredentials


class Settings(msgspec.Struct, frozen=True):
    """How to reach a server and log in to it. With equal settings a token and a zone are used again."""

    product: Product
    server: str
    zone: str
    credentials: Credentials
    tls: ServerTls = SYSTEM_TRUST


async def settings_of(spec: VenafiIssuer, get_secret: GetSecret) -> Settings:
    """The settings that the spec and its Secrets stand for. Raises `BadSettings`."""
    if not spec.zone.strip():
        raise BadSettings("spec.venafi.zone is empty; name the policy zone")
    if spec.tpp is not None:
        server = spec.tpp.url.rstrip("/")
        if server.lower().endswith(_TPP_PATH):
            server = server[: -len(_TPP_PATH)]
        ca = spec.tpp.ca_bundle
        if not ca and (ref := spec.tpp.ca_bundle_secret_ref) is not None:
            ca = await secret_value(get_secret, ref, CA_CERT_KEY, "spec.venafi.tpp.caBundleSecretRef")
        credentials = await _tpp_credentials(spec.tpp.credentials_ref.name, get_secret)
        return Settings(Product.TPP, server, spec.zone, credentials, ServerTls(ca_pem=ca))
    if spec.cloud is not None:
        where = "spec.venafi.cloud.apiTokenSecretRef"
        key = await secret_line(get_secret, spec.cloud.api_token_secret_ref, "api-key", where)
        server = (spec.cloud.url or CLOUD_URL).rstrip("/")
        return Settings(Product.CLOUD, server, spec.zone, StaticKey(key, where))
    if spec.ngts is not None:
        where = "spec.venafi.ngts.credentialsRef"
        secret = SecretKeySelector(name=spec.ngts.credentials_ref.name)
        credentials = ClientCredentials(
            await secret_line(get_secret, secret, "client-id", where, is_ascii=False),
            await secret_line(get_secret, secret, "client-secret", where, is_ascii=False),
            spec.ngts.token_endpoint or NGTS_TOKEN_URL,
            f"tsg_id:{spec.ngts.tsg_id}",
        )
        return Settings(Product.NGTS, (spec.ngts.url or NGTS_URL).rstrip("/"), spec.zone, credentials)
    raise BadSettings("spec.venafi names no product; give one of tpp, cloud and ngts")


async def _tpp_credentials(name: str, get_secret: GetSecret) -> Credentials:
    """The login that the Secret is for; an access token comes first, as in cert-manager."""
    where = "spec.venafi.tpp.credentialsRef"
    secret, data = SecretKeySelector(name=name), await get_secret(name)
    if data is not None and not data.get("access-token") and not data.get("username"):
        raise BadSettings(
            f'the Secret "{name}" in {where} has neither "access-token" nor "username" and "password"',
            secret=name,
        )
    if data is None or data.get("access-token"):
        return StaticKey(await secret_line(get_secret, secret, "access-token", where), where)
    return Password(
        await secret_line(get_secret, secret, "username", where, is_ascii=False),
        await secret_line(get_secret, secret, "password", where, is_ascii=False),
        await secret_line(get_secret, secret, "client-id", where, is_ascii=False)
        if data.get("client-id")
        else _TPP_CLIENT,
    )
