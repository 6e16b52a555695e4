"""Sources of credentials, and the cache that replaces temporary ones in time.

Ambient credentials are those that the environment, the pod or the machine gives to this process, in the order
of AWS's SDKs. Their configuration files (`~/.aws`) are not read.

Source: AWS SDKs and Tools Reference Guide, "Standardized credential providers".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlencode, urlsplit

import msgspec

from certwright.kit.aws.errors import AwsError, NoCredentials
from certwright.kit.aws.service import (
    DEFAULT_REGION,
    Answer,
    AwsCredentials,
    AwsEndpoint,
    AwsRequest,
    AwsService,
    AwsTools,
    CredentialSource,
    StaticKeys,
    sts_endpoint,
)
from certwright.kit.outgoing import HTTPS_ONLY, HttpAnswer, ServerError, ServerRules
from certwright.kube.util.decoders import UNDECODABLE, json_decoder

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
        form = {"Action": "AssumeRole", "RoleArn": self.role, "RoleSessionName": self.session_name}
        what = f"assume the role {self.role}"
        answer = await _call(self.endpoint, form, what, tools, await self.base.fetch(tools))
        return _credentials(answer, "AssumeRoleResult", what)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebIdentity:
    """A role (ARN) that trusts an issuer of OpenID Connect tokens, e.g. of ServiceAccounts' tokens.

    `get_token` returns a new token; it may raise `AwsError`. `identity` names the owner of the tokens: equal
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


_HTTP: Final = ServerRules(allow_http=True)
_METADATA: Final = "http://169.254.169.254"
_ECS: Final = "http://169.254.170.2"
_EKS_AGENTS: Final = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23")
_ANSWERS_WITHIN_S: Final = 5.0
"""These servers are on this machine or its host."""
_SESSION_S: Final = 21600
"""How long a session with the metadata service lasts, at most."""


class _Keys(msgspec.Struct):
    access_key_id: str = msgspec.field(name="AccessKeyId")
    secret_access_key: str = msgspec.field(name="SecretAccessKey")
    token: str = msgspec.field(name="Token")
    expiration: datetime = msgspec.field(name="Expiration")


def ambient_source(environment: Mapping[str, str], sts: AwsEndpoint) -> CredentialSource:
    """The source that the environment names; the machine's metadata service if it names none.

    `sts` exchanges web identity tokens. Raises `NoCredentials` for an incomplete or forbidden setting.
    """
    if key := environment.get("AWS_ACCESS_KEY_ID", ""):
        secret = environment.get("AWS_SECRET_ACCESS_KEY", "")
        if not secret:
            raise NoCredentials("AWS_ACCESS_KEY_ID is set without AWS_SECRET_ACCESS_KEY; set both")
        return StaticKeys(key, secret, environment.get("AWS_SESSION_TOKEN", ""))
    if path := environment.get("AWS_WEB_IDENTITY_TOKEN_FILE", ""):
        role = environment.get("AWS_ROLE_ARN", "")
        if not role:
            raise NoCredentials("AWS_WEB_IDENTITY_TOKEN_FILE is set without AWS_ROLE_ARN; set both")
        return WebIdentity(
            role=role,
            identity=f"the token in {path}",
            get_token=partial(_read, path, "AWS_WEB_IDENTITY_TOKEN_FILE"),
            endpoint=sts,
            session_name=environment.get("AWS_ROLE_SESSION_NAME", "") or SESSION_NAME,
        )
    if container := _container(environment):
        return container
    if environment.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise NoCredentials(
            "the environment has no AWS credentials, and AWS_EC2_METADATA_DISABLED forbids the metadata "
            "service"
        )
    return InstanceMetadata(environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "") or _METADATA)


def _container(environment: Mapping[str, str]) -> ContainerEndpoint | None:
    relative = environment.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
    full = environment.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    url = f"{_ECS}{relative}" if relative else full
    if not url:
        return None
    if not url.startswith("https:") and not _is_local(url):
        raise NoCredentials(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor an address of this machine or of the "
            "agents of ECS and EKS"
        )
    return ContainerEndpoint(
        url,
        token_file=environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", ""),
        token=environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", ""),
    )


def _is_local(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host in _EKS_AGENTS or ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class ContainerEndpoint:
    """The agent of ECS, or of EKS Pod Identity."""

    url: str
    token_file: str = ""
    token: str = field(default="", repr=False)

    async def fetch(self, tools: AwsTools) -> AwsCredentials:
        token = self.token
        if self.token_file:
            token = await _read(self.token_file, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        rules = HTTPS_ONLY if self.url.startswith("https:") else _HTTP
        headers = (("authorization", token),) if token else ()
        place = "the credentials endpoint of the container"
        return _keys(await _send(tools, rules, "GET", self.url, headers, place), place)


class InstanceMetadata(msgspec.Struct, frozen=True):
    """The instance metadata service of EC2, version 2: the role of the machine."""

    url: str

    async def fetch(self, tools: AwsTools) -> AwsCredentials:
        place, base = "the metadata service of EC2", f"{self.url.rstrip('/')}/latest"
        headers = (("x-aws-ec2-metadata-token-ttl-seconds", str(_SESSION_S)),)
        answer = await _send(tools, _HTTP, "PUT", f"{base}/api/token", headers, place)
        token = (("x-aws-ec2-metadata-token", _line(answer, place)),)
        roles = f"{base}/meta-data/iam/security-credentials/"
        role = _line(await _send(tools, _HTTP, "GET", roles, token, place), place)
        return _keys(await _send(tools, _HTTP, "GET", f"{roles}{role}", token, place), place)


async def _send(
    tools: AwsTools,
    rules: ServerRules,
    method: str,
    url: str,
    headers: tuple[tuple[str, str], ...],
    place: str,
) -> HttpAnswer:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN_S):
            answer = await tools.client(rules).send(method, url, headers=headers)
    except TimeoutError as error:
        raise NoCredentials(f"{place} did not answer within {_ANSWERS_WITHIN_S:g} s; {_FIX}") from error
    except ServerError as error:
        raise NoCredentials(f"no ambient AWS credentials: {error}; {_FIX}") from error
    if answer.status != 200:
        raise NoCredentials(f"{place} gave no AWS credentials: status {answer.status}; {_FIX}")
    return answer


_FIX: Final = "give certwright credentials by its environment, or name them in the manifest"


def _line(answer: HttpAnswer, place: str) -> str:
    lines = answer.body.decode("ascii", errors="replace").split()
    if not lines or not lines[0].isprintable() or len(lines[0]) > 2000:
        raise NoCredentials(f"{place} did not answer as documented; {_FIX}")
    return lines[0]


def _keys(answer: HttpAnswer, place: str) -> AwsCredentials:
    try:
        keys = json_decoder(_Keys).decode(answer.body)
    except UNDECODABLE:
        # The reason could quote a key.
        keys = None
    if keys is None or keys.expiration.tzinfo is None:
        raise NoCredentials(f"{place} did not answer as documented; {_FIX}")
    return AwsCredentials(keys.access_key_id, keys.secret_access_key, keys.token, keys.expiration)


async def _read(path: str, variable: str) -> str:
    try:
        return (await asyncio.to_thread(Path(path).read_text)).strip()
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or "it is not text"
        raise NoCredentials(f"the file of {variable} cannot be read: {words}") from error
