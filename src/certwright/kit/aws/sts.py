"""Security Token Service: temporary credentials of a role.

Source: AWS STS API reference (AssumeRole, AssumeRoleWithWebIdentity, GetCallerIdentity), version 2011-06-15.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import msgspec

from certwright.kit.aws.credentials import AwsTools, CredentialSource
from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.service import (
    DEFAULT_REGION,
    Answer,
    AwsCredentials,
    AwsEndpoint,
    AwsRequest,
    AwsService,
    sts_endpoint,
)

SESSION_NAME: Final = "certwright"
"""Appears in the AWS account's logs as the name of the role's session."""
_VERSION: Final = "2011-06-15"
_FORM: Final = (("content-type", "application/x-www-form-urlencoded; charset=utf-8"),)


def sts(endpoint: AwsEndpoint) -> AwsService:
    """STS at an endpoint."""
    return AwsService("sts", "AWS STS", endpoint)


def sts_in(region: str) -> AwsEndpoint:
    """AWS's own endpoint in a region; the default region if it is empty."""
    return AwsEndpoint(sts_endpoint(region), region or DEFAULT_REGION)


class AssumedRole(msgspec.Struct, frozen=True, kw_only=True):
    """A role (ARN) that the identity of `base` may assume."""

    role: str
    base: CredentialSource
    endpoint: AwsEndpoint
    session_name: str = SESSION_NAME

    async def fetch(self, tools: AwsTools) -> AwsCredentials:
        """See `CredentialSource`."""
        form = {"Action": "AssumeRole", "RoleArn": self.role, "RoleSessionName": self.session_name}
        what = f"assume the role {self.role}"
        answer = await _call(self.endpoint, form, what, tools, await self.base.fetch(tools))
        return _credentials(answer, "AssumeRoleResult", what)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebIdentity:
    """A role (ARN) that trusts the issuer of OpenID Connect tokens, e.g. those of ServiceAccounts.

    `get_token` returns another token; it may raise `AwsError`. `identity` names whose tokens these are: equal
    roles and identities are equal sources.
    """

    role: str
    identity: str
    get_token: Callable[[], Awaitable[str]] = field(compare=False, repr=False)
    endpoint: AwsEndpoint
    session_name: str = SESSION_NAME

    async def fetch(self, tools: AwsTools) -> AwsCredentials:
        """See `CredentialSource`. This call of STS is not signed."""
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "RoleArn": self.role,
            "RoleSessionName": self.session_name,
            "WebIdentityToken": await self.get_token(),
        }
        what = f"assume the role {self.role} as {self.identity}"
        return _credentials(
            await _call(self.endpoint, form, what, tools, None), "AssumeRoleWithWebIdentityResult", what
        )


def caller_identity_request(
    endpoint: AwsEndpoint,
    credentials: AwsCredentials,
    now: datetime,
    headers: tuple[tuple[str, str], ...] = (),
) -> AwsRequest:
    """A signed request for the identity of the credentials. Whoever sends it learns that identity and nothing
    else, so it proves the identity to a third party (Vault's AWS method). `headers` are signed, too."""
    request = AwsRequest(
        "POST", f"{endpoint.url}/", (*_FORM, *headers), _body({"Action": "GetCallerIdentity"})
    )
    return sts(endpoint).signed(request, credentials, now)


def _body(form: Mapping[str, str]) -> bytes:
    return urlencode({**form, "Version": _VERSION}).encode()


async def _call(
    endpoint: AwsEndpoint,
    form: Mapping[str, str],
    what: str,
    tools: AwsTools,
    credentials: AwsCredentials | None,
) -> Answer:
    return await sts(endpoint).call(AwsRequest("POST", "/", _FORM, _body(form)), what, tools, credentials)


def _credentials(answer: Answer, result: str, what: str) -> AwsCredentials:
    place = f"{result}/Credentials"
    key, secret = answer.find(f"{place}/AccessKeyId"), answer.find(f"{place}/SecretAccessKey")
    token, expires = answer.find(f"{place}/SessionToken"), answer.find(f"{place}/Expiration")
    try:
        expires_at = datetime.fromisoformat(expires)
    except ValueError:
        expires_at = None
    if not key or not secret or expires_at is None or expires_at.tzinfo is None:
        raise AwsError(f"AWS STS did not answer as documented when asked to {what}")
    return AwsCredentials(key, secret, token, expires_at)
