"""Settings of a Vault issuer: the values of a spec and its Secrets, and the methods of authentication.

The AWS method is a signed request for the caller's identity, which the server sends to AWS STS. The
credentials belong to an IAM role that a ServiceAccount's token is exchanged for (IRSA), or to this process if
the operator allows it. A request is signed for each login and valid for minutes.

Source: cert-manager `internal/vault/vault.go` (order of the methods, default mount paths, audiences); Vault
API reference, `auth/*`; Vault documentation, "AWS auth method".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

import msgspec

from certwright.issuers.contract import GetSecret, IssuerView, ServerTools
from certwright.issuers.servers import BadSettings, secret_line, secret_value
from certwright.kit.aws.credentials import (
    AssumedRole,
    WebIdentity,
    ambient_source,
    caller_identity_request,
    sts_in,
)
from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.service import (
    DEFAULT_REGION,
    AwsEndpoint,
    AwsTools,
    CredentialSource,
    check_region,
    endpoint_variables,
    region_of,
)
from certwright.kit.outgoing import ServerRules, ServerTls
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.pki.certificates import read_chain
from certwright.pki.errors import PkiError
from certwright.pki.keys import encode_private_key, load_private_key
from certwright.resources.issuer import VaultAWS, VaultIssuer
from certwright.resources.names import CA_CERT_KEY, TLS_CERT_KEY, TLS_PRIVATE_KEY_KEY
from certwright.resources.references import SecretKeySelector

_FIELD: Final = "spec.vault.auth.aws"
_AUDIENCE: Final = "sts.amazonaws.com"
_GLOBAL: Final = AwsEndpoint("https://sts.amazonaws.com", DEFAULT_REGION)
"""What Vault's own clients sign for, and its AWS method sends to, unless a region is set."""
_SERVER_ID: Final = "x-vault-aws-iam-server-id"


class Method(Protocol):
    """A way to log in. A frozen dataclass: with equal methods a token is used again."""

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:
        """The login request. Raises `BadSettings`."""


@dataclass(frozen=True, slots=True)
class StaticToken:
    """A token from a Secret; no login."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class LoginCall:
    """A login at `path` (begins with `/v1/`) with these fields."""

    path: str
    fields: tuple[tuple[str, str], ...] = field(repr=False)

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:  # noqa: ARG002
        return self


class ServiceAccountLogin(msgspec.Struct, frozen=True):
    """A login by the Kubernetes method, for which a ServiceAccount's token is requested each time."""

    path: str
    role: str
    account: str
    audiences: tuple[str, ...]

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:  # noqa: ARG002
        try:
            jwt = await servers.get_token(self.account, self.audiences)
        except (ApiError, Unreachable) as error:
            raise BadSettings(
                f'no token of the ServiceAccount "{self.account}" in '
                f"spec.vault.auth.kubernetes.serviceAccountRef: {error}"
            ) from error
        return LoginCall(self.path, (("role", self.role), ("jwt", jwt)))


class Settings(msgspec.Struct, frozen=True):
    """How to reach a server and log in to it. With equal settings a token is used again."""

    server: str
    namespace: str
    tls: ServerTls
    credentials: StaticToken | Method


async def settings_of(
    issuer: IssuerView, spec: VaultIssuer, get_secret: GetSecret, servers: ServerTools
) -> Settings:
    """The settings that the spec and its Secrets stand for. Raises `BadSettings`."""
    tls = await _tls(spec, get_secret)
    credentials = await _credentials(issuer, spec, get_secret, servers)
    return Settings(spec.server, spec.namespace, tls, credentials)


def problem_of(spec: VaultIssuer) -> str:
    """What is wrong with a spec that admission may have accepted; empty: nothing. In cert-manager's words."""
    if not spec.server or not spec.path:
        return "Vault server and path are required fields"
    auth = spec.auth
    methods = {
        "tokenSecretRef": auth.token_secret_ref,
        "appRole": auth.app_role,
        "clientCertificate": auth.client_certificate,
        "kubernetes": auth.kubernetes,
        "aws": auth.aws,
    }
    given = [name for name, method in methods.items() if method is not None]
    if not given:
        return "Vault tokenSecretRef, appRole, clientCertificate, kubernetes, or aws is required"
    if len(given) > 1:
        return (
            "Multiple auth methods cannot be set on the same Vault issuer; keep one of "
            f"{', '.join(given)} in spec.vault.auth"
        )
    if auth.token_secret_ref is not None and not auth.token_secret_ref.name:
        return "Vault Token auth requires tokenSecretRef.name"
    if auth.app_role is not None:
        if not auth.app_role.role_id or not auth.app_role.secret_ref.name:
            return "Vault AppRole auth requires both roleId and tokenSecretRef.name"
        if not auth.app_role.secret_ref.key:
            return "Vault AppRole auth requires secretRef.key"
    if auth.kubernetes is not None:
        if not auth.kubernetes.role:
            return "Vault Kubernetes auth requires a role to be set"
        secret = auth.kubernetes.secret_ref is not None and bool(auth.kubernetes.secret_ref.name)
        ref = auth.kubernetes.service_account_ref
        account = ref is not None and bool(ref.name)
        if secret and account:
            return "Vault Kubernetes auth cannot be used with both secretRef.name and serviceAccountRef.name"
        if not secret and not account:
            return "Vault Kubernetes auth requires either secretRef.name or serviceAccountRef.name to be set"
    if auth.aws is not None:
        if not auth.aws.role:
            return "Vault AWS auth requires a role to be set"
        ref = auth.aws.service_account_ref
        if ref is not None and not (ref.name and auth.aws.iam_role_arn):
            return "Vault AWS auth requires both serviceAccountRef.name and iamRoleArn"
    return ""


async def _tls(spec: VaultIssuer, get_secret: GetSecret) -> ServerTls:
    ca = spec.ca_bundle
    if not ca and spec.ca_bundle_secret_ref is not None:
        ca = await secret_value(
            get_secret, spec.ca_bundle_secret_ref, CA_CERT_KEY, "spec.vault.caBundleSecretRef"
        )
    certificate = key = b""
    method = spec.auth.client_certificate
    if method is not None and method.secret_name:
        where = "spec.vault.auth.clientCertificate.secretName"
        pair = SecretKeySelector(name=method.secret_name)
        certificate = await secret_value(get_secret, pair, TLS_CERT_KEY, where)
        key = await secret_value(get_secret, pair, TLS_PRIVATE_KEY_KEY, where)
    elif spec.client_cert_secret_ref is not None and spec.client_key_secret_ref is not None:
        certificate = await secret_value(
            get_secret, spec.client_cert_secret_ref, TLS_CERT_KEY, "spec.vault.clientCertSecretRef"
        )
        key = await secret_value(
            get_secret, spec.client_key_secret_ref, TLS_PRIVATE_KEY_KEY, "spec.vault.clientKeySecretRef"
        )
    if certificate:
        # Each without anything else that OpenSSL would read.
        try:
            certificate = b"".join(facts.pem for facts in read_chain(certificate))
            key = encode_private_key(load_private_key(key))
        except PkiError as error:
            raise BadSettings(f"the client certificate of spec.vault cannot be used: {error}") from error
    return ServerTls(ca_pem=ca, server_name=spec.server_name, certificate_pem=certificate, key_pem=key)


async def _credentials(
    issuer: IssuerView, spec: VaultIssuer, get_secret: GetSecret, servers: ServerTools
) -> StaticToken | Method:
    """The login of the spec, which has one method (`problem_of`)."""
    auth = spec.auth
    if auth.token_secret_ref is not None:
        where = "spec.vault.auth.tokenSecretRef"
        token = await secret_line(get_secret, auth.token_secret_ref, "token", where)
        return StaticToken(token)
    if auth.app_role is not None:
        where = "spec.vault.auth.appRole.secretRef"
        secret_id = await secret_line(get_secret, auth.app_role.secret_ref, "secretId", where)
        path = (auth.app_role.path or "approle").strip("/")
        return LoginCall(
            f"/v1/auth/{path}/login", (("role_id", auth.app_role.role_id.strip()), ("secret_id", secret_id))
        )
    if auth.client_certificate is not None:
        fields = (("name", auth.client_certificate.name),) if auth.client_certificate.name else ()
        return LoginCall(f"{_mount(auth.client_certificate.mount_path, '/v1/auth/cert')}/login", fields)
    if auth.kubernetes is not None:
        path = f"{_mount(auth.kubernetes.mount_path, '/v1/auth/kubernetes')}/login"
        if auth.kubernetes.secret_ref is not None and auth.kubernetes.secret_ref.name:
            where = "spec.vault.auth.kubernetes.secretRef"
            jwt = await secret_line(get_secret, auth.kubernetes.secret_ref, "token", where)
            return LoginCall(path, (("role", auth.kubernetes.role), ("jwt", jwt)))
        if auth.kubernetes.service_account_ref is None:
            raise BadSettings("spec.vault.auth.kubernetes needs secretRef or serviceAccountRef")
        audiences = audiences_of(issuer, spec)
        return ServiceAccountLogin(
            path, auth.kubernetes.role, auth.kubernetes.service_account_ref.name, audiences
        )
    if auth.aws is not None:
        return aws_login(issuer, auth.aws, f"{_mount(auth.aws.mount_path, '/v1/auth/aws')}/login", servers)
    raise BadSettings("spec.vault.auth has no method that this version knows")


def audiences_of(issuer: IssuerView, spec: VaultIssuer) -> tuple[str, ...]:
    """The audiences of the token for a ServiceAccount: the spec's, one that only this issuer has, and the
    server's URL."""
    account = spec.auth.kubernetes.service_account_ref if spec.auth.kubernetes is not None else None
    own = f"vault://{issuer.namespace}/{issuer.name}" if issuer.namespace else f"vault://{issuer.name}"
    return (*(account.audiences if account is not None else ()), own, spec.server)


def _mount(given: str, default: str) -> str:
    path = (given or default).strip("/")
    return f"/{path}" if path.startswith("v1/") else f"/v1/{path}"


class AwsLogin(msgspec.Struct, frozen=True):
    """A login with the identity of `source`. `sts` is the endpoint that the request is signed for,
    `server_id` the value of the header X-Vault-AWS-IAM-Server-ID (empty: none)."""

    path: str
    role: str
    source: CredentialSource
    sts: AwsEndpoint
    server_id: str

    async def call(self, servers: ServerTools, now: datetime) -> LoginCall:
        """The login with a new signature. Raises `BadSettings`."""
        tools = AwsTools(servers.trusted_client, lambda: now)
        try:
            credentials = await self.source.fetch(tools)
        except AwsError as error:
            raise BadSettings(f"no credentials for {_FIELD}: {error}") from error
        headers = ((_SERVER_ID, self.server_id),) if self.server_id else ()
        request = caller_identity_request(self.sts, credentials, now, headers)
        signed = json.dumps({name: [value] for name, value in request.headers}).encode()
        return LoginCall(
            self.path,
            (
                ("role", self.role),
                ("iam_http_request_method", request.method),
                ("iam_request_url", _base64(request.url.encode())),
                ("iam_request_body", _base64(request.body)),
                ("iam_request_headers", _base64(signed)),
            ),
        )


def aws_login(issuer: IssuerView, method: VaultAWS, path: str, servers: ServerTools) -> AwsLogin:
    """The login at `path` that the method stands for. Raises `BadSettings`."""
    try:
        region = check_region(method.region, f"{_FIELD}.region") if method.region else ""
        region = region or region_of(servers.environment)
        # Not the global endpoint: a token is exchanged in the region, as AWS advises.
        exchange = _endpoint(sts_in(region), servers.environment)
        source = _source(issuer, method, exchange, servers)
    except AwsError as error:
        raise BadSettings(str(error)) from error
    sts = _endpoint(sts_in(region) if region else _GLOBAL, servers.environment)
    return AwsLogin(path, method.role, source, sts, method.vault_header_value)


def _endpoint(default: AwsEndpoint, environment: Mapping[str, str]) -> AwsEndpoint:
    """The endpoint that the operator names in the environment, which may be `http`; else AWS's own."""
    url = next((environment[name] for name in endpoint_variables("STS") if environment.get(name)), "")
    return AwsEndpoint(url.rstrip("/"), default.region, ServerRules(allow_http=True)) if url else default


def _source(
    issuer: IssuerView, method: VaultAWS, exchange: AwsEndpoint, servers: ServerTools
) -> CredentialSource:
    if (account := method.service_account_ref) is not None:
        audiences = tuple(account.audiences) or (_AUDIENCE,)

        async def get_token() -> str:
            try:
                return await servers.get_token(account.name, audiences)
            except (ApiError, Unreachable) as error:
                where = f"{_FIELD}.serviceAccountRef"
                raise AwsError(
                    f'no token of the ServiceAccount "{account.name}" in {where}: {error}'
                ) from error

        identity = f"ServiceAccount {account.name} ({', '.join(audiences)})"
        return WebIdentity(
            role=method.iam_role_arn, identity=identity, get_token=get_token, endpoint=exchange
        )
    if not servers.allows_ambient(issuer.kind):
        raise BadSettings(
            f"{_FIELD} has no serviceAccountRef, and ambient credentials are not allowed for this issuer; "
            "give serviceAccountRef and iamRoleArn, or start certwright with --issuer-ambient-credentials "
            "(for a ClusterIssuer --cluster-issuer-ambient-credentials)"
        )
    base, role = ambient_source(servers.environment, exchange), method.iam_role_arn
    return AssumedRole(role=role, base=base, endpoint=exchange) if role else base


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
