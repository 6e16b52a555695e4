"""The AWS method of Vault: a signed request for the caller's identity, which the server sends to AWS STS.

The credentials are those of an IAM role that a ServiceAccount's token is exchanged for (IRSA), or this
process's own if the operator allows that. A request is signed for each login and valid for minutes.

Source: Vault documentation, "AWS auth method", and its API, `auth/aws/login` (`iam_*`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from certwright.issuers.contract import IssuerView, ServerTools
from certwright.issuers.vault.methods import BadSettings, LoginCall
from certwright.kit.aws.credentials import AwsTools, CredentialSource, ambient_source
from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.service import (
    DEFAULT_REGION,
    AwsEndpoint,
    check_region,
    endpoint_variables,
    region_of,
)
from certwright.kit.aws.sts import AssumedRole, WebIdentity, caller_identity_request, sts_in
from certwright.kit.outgoing import ServerRules
from certwright.kube.api.errors import ApiError, Unreachable
from certwright.resources.issuer import VaultAWS
from certwright.resources.references import ServiceAccountRef

_FIELD: Final = "spec.vault.auth.aws"
_AUDIENCE: Final = "sts.amazonaws.com"
_GLOBAL: Final = AwsEndpoint("https://sts.amazonaws.com", DEFAULT_REGION)
"""What Vault's own clients sign for, and its AWS method sends to, unless a region is set."""
_SERVER_ID: Final = "x-vault-aws-iam-server-id"


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
    if method.service_account_ref is not None:
        return _web_identity(method.service_account_ref, method.iam_role_arn, exchange, servers)
    if not servers.allows_ambient(issuer.kind):
        raise BadSettings(
            f"{_FIELD} has no serviceAccountRef, and ambient credentials are not allowed for this issuer; "
            "give serviceAccountRef and iamRoleArn, or start certwright with --issuer-ambient-credentials "
            "(for a ClusterIssuer --cluster-issuer-ambient-credentials)"
        )
    base, role = ambient_source(servers.environment, exchange), method.iam_role_arn
    return AssumedRole(role=role, base=base, endpoint=exchange) if role else base


def _web_identity(
    account: ServiceAccountRef, role: str, exchange: AwsEndpoint, servers: ServerTools
) -> WebIdentity:
    audiences = tuple(account.audiences) or (_AUDIENCE,)

    async def get_token() -> str:
        try:
            return await servers.get_token(account.name, audiences)
        except (ApiError, Unreachable) as error:
            raise AwsError(
                f'no token of the ServiceAccount "{account.name}" in {_FIELD}.serviceAccountRef: {error}'
            ) from error

    identity = f"ServiceAccount {account.name} ({', '.join(audiences)})"
    return WebIdentity(role=role, identity=identity, get_token=get_token, endpoint=exchange)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
