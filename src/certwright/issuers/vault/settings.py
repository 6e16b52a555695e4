"""Settings of a Vault issuer: what a spec and its Secrets stand for.

Source: cert-manager `internal/vault/vault.go` (order of the methods, default mount paths, audiences).
"""

from __future__ import annotations

import msgspec

from certwright.issuers.contract import GetSecret, IssuerView, ServerTools
from certwright.issuers.vault.methods import BadSettings, LoginCall, Method, ServiceAccountLogin, StaticToken
from certwright.kit.outgoing import ServerTls
from certwright.pki.certificates import read_chain
from certwright.pki.errors import PkiError
from certwright.pki.keys import encode_private_key, load_private_key
from certwright.resources.issuer import (
    VaultAppRole,
    VaultAWS,
    VaultClientCertificate,
    VaultIssuer,
    VaultKubernetes,
)
from certwright.resources.names import CA_CERT_KEY, TLS_CERT_KEY, TLS_PRIVATE_KEY_KEY
from certwright.resources.references import SecretKeySelector


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
        return _kubernetes_problem(auth.kubernetes)
    return _aws_problem(auth.aws) if auth.aws is not None else ""


def _kubernetes_problem(method: VaultKubernetes) -> str:
    if not method.role:
        return "Vault Kubernetes auth requires a role to be set"
    secret = method.secret_ref is not None and bool(method.secret_ref.name)
    account = method.service_account_ref is not None and bool(method.service_account_ref.name)
    if secret and account:
        return "Vault Kubernetes auth cannot be used with both secretRef.name and serviceAccountRef.name"
    if not secret and not account:
        return "Vault Kubernetes auth requires either secretRef.name or serviceAccountRef.name to be set"
    return ""


def _aws_problem(method: VaultAWS) -> str:
    if not method.role:
        return "Vault AWS auth requires a role to be set"
    account = method.service_account_ref
    if account is not None and not (account.name and method.iam_role_arn):
        return "Vault AWS auth requires both serviceAccountRef.name and iamRoleArn"
    return ""


async def _tls(spec: VaultIssuer, get_secret: GetSecret) -> ServerTls:
    ca = spec.ca_bundle
    if not ca and spec.ca_bundle_secret_ref is not None:
        ca = await _value(get_secret, spec.ca_bundle_secret_ref, CA_CERT_KEY, "spec.vault.caBundleSecretRef")
    certificate = key = b""
    method = spec.auth.client_certificate
    if method is not None and method.secret_name:
        where = "spec.vault.auth.clientCertificate.secretName"
        pair = SecretKeySelector(name=method.secret_name)
        certificate = await _value(get_secret, pair, TLS_CERT_KEY, where)
        key = await _value(get_secret, pair, TLS_PRIVATE_KEY_KEY, where)
    elif spec.client_cert_secret_ref is not None and spec.client_key_secret_ref is not None:
        certificate = await _value(
            get_secret, spec.client_cert_secret_ref, TLS_CERT_KEY, "spec.vault.clientCertSecretRef"
        )
        key = await _value(
            get_secret, spec.client_key_secret_ref, TLS_PRIVATE_KEY_KEY, "spec.vault.clientKeySecretRef"
        )
    certificate, key = _checked_pair(certificate, key) if certificate else (b"", b"")
    return ServerTls(ca_pem=ca, server_name=spec.server_name, certificate_pem=certificate, key_pem=key)


def _checked_pair(certificate: bytes, key: bytes) -> tuple[bytes, bytes]:
    """The client certificate and its key, each without anything else that OpenSSL would read."""
    try:
        pems = [facts.pem for facts in read_chain(certificate)]
        return b"".join(pems), encode_private_key(load_private_key(key))
    except PkiError as error:
        raise BadSettings(f"the client certificate of spec.vault cannot be used: {error}") from error


async def _credentials(
    issuer: IssuerView, spec: VaultIssuer, get_secret: GetSecret, servers: ServerTools
) -> StaticToken | Method:
    """The login that the spec stands for, which has one method (`problem_of`)."""
    auth = spec.auth
    if auth.token_secret_ref is not None:
        where = "spec.vault.auth.tokenSecretRef"
        token = await _line(get_secret, auth.token_secret_ref, "token", where)
        return StaticToken(token)
    if auth.app_role is not None:
        return await _app_role(auth.app_role, get_secret)
    if auth.client_certificate is not None:
        return _client_certificate(auth.client_certificate)
    if auth.kubernetes is not None:
        return await _kubernetes(issuer, spec, auth.kubernetes, get_secret)
    if auth.aws is not None:
        from certwright.issuers.vault.aws import aws_login  # loads kit/aws, with an XML parser: 0.9 MB

        return aws_login(issuer, auth.aws, f"{_mount(auth.aws.mount_path, '/v1/auth/aws')}/login", servers)
    raise BadSettings("spec.vault.auth has no method that this version knows")


async def _app_role(method: VaultAppRole, get_secret: GetSecret) -> LoginCall:
    where = "spec.vault.auth.appRole.secretRef"
    secret_id = await _line(get_secret, method.secret_ref, "secretId", where)
    path = (method.path or "approle").strip("/")
    return LoginCall(
        f"/v1/auth/{path}/login", (("role_id", method.role_id.strip()), ("secret_id", secret_id))
    )


def _client_certificate(method: VaultClientCertificate) -> LoginCall:
    fields = (("name", method.name),) if method.name else ()
    return LoginCall(f"{_mount(method.mount_path, '/v1/auth/cert')}/login", fields)


async def _kubernetes(
    issuer: IssuerView, spec: VaultIssuer, method: VaultKubernetes, get_secret: GetSecret
) -> Method:
    path = f"{_mount(method.mount_path, '/v1/auth/kubernetes')}/login"
    if method.secret_ref is not None and method.secret_ref.name:
        where = "spec.vault.auth.kubernetes.secretRef"
        jwt = await _line(get_secret, method.secret_ref, "token", where)
        return LoginCall(path, (("role", method.role), ("jwt", jwt)))
    if method.service_account_ref is None:
        raise BadSettings("spec.vault.auth.kubernetes needs secretRef or serviceAccountRef")
    audiences = audiences_of(issuer, spec)
    return ServiceAccountLogin(path, method.role, method.service_account_ref.name, audiences)


def audiences_of(issuer: IssuerView, spec: VaultIssuer) -> tuple[str, ...]:
    """The audiences of the token for a ServiceAccount: the spec's, one that only this issuer has, and the
    server's URL."""
    account = spec.auth.kubernetes.service_account_ref if spec.auth.kubernetes is not None else None
    own = f"vault://{issuer.namespace}/{issuer.name}" if issuer.namespace else f"vault://{issuer.name}"
    return (*(account.audiences if account is not None else ()), own, spec.server)


def _mount(given: str, default: str) -> str:
    path = (given or default).strip("/")
    return f"/{path}" if path.startswith("v1/") else f"/v1/{path}"


async def _value(get_secret: GetSecret, ref: SecretKeySelector, default_key: str, where: str) -> bytes:
    data = await get_secret(ref.name)
    if data is None:
        raise BadSettings(
            f'the Secret "{ref.name}" in {where} does not exist; create it', secret=ref.name, is_missing=True
        )
    key = ref.key or default_key
    if not data.get(key):
        raise BadSettings(
            f'the Secret "{ref.name}" in {where} has no entry "{key}"; add it, or correct the key',
            secret=ref.name,
        )
    return data[key]


async def _line(get_secret: GetSecret, ref: SecretKeySelector, default_key: str, where: str) -> str:
    """A credential as text without the newline that editors add."""
    value = await _value(get_secret, ref, default_key, where)
    try:
        text = value.decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise BadSettings(
            f'the entry "{ref.key or default_key}" of the Secret "{ref.name}" in {where} is not one line of '
            "ASCII text; replace it",
            secret=ref.name,
        )
    return text
