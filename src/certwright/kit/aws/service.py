"""Calls of an AWS service that answers in XML (Query and REST-XML): credentials, signature, regions, errors.

Source: AWS IAM User Guide, "Create a signed AWS API request" (Signature Version 4); AWS General Reference,
"AWS service endpoints"; AWS SDKs and Tools Reference Guide, "Service-specific endpoints".
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import urllib.parse
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlsplit
from xml.etree import ElementTree

import msgspec

from certwright.kit.aws.errors import (
    DENIED,
    THROTTLED,
    AwsDenied,
    AwsError,
    AwsRefused,
    AwsThrottled,
    AwsUnreachable,
)
from certwright.kit.outgoing import HTTPS_ONLY, HttpAnswer, HttpClient, ServerError, ServerRules, quote

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_UNRESERVED: Final = "-_.~"
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """An access key. `session_token` belongs to temporary ones, which expire at `expires_at`; None: they do
    not expire."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    expires_at: datetime | None = None


class SigningScope(msgspec.Struct, frozen=True):
    """What a signature is valid for: a service (`sts`, `route53`) in a region."""

    service: str
    region: str


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """A request. `url` is encoded; `headers` have names in lower case, each once."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = field(default=b"", repr=False)


def sign(request: AwsRequest, credentials: AwsCredentials, scope: SigningScope, now: datetime) -> AwsRequest:
    """The request with a signature over its headers and body. AWS accepts it until five minutes after `now`.

    Adds `host`, `x-amz-date`, `x-amz-security-token` (for temporary credentials) and `authorization`.
    """
    moment = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = dict(request.headers) | {"host": _host(request.url), "x-amz-date": moment}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    names = ";".join(sorted(headers))
    canonical = canonical_request(replace(request, headers=tuple(headers.items())))
    place = f"{moment[:8]}/{scope.region}/{scope.service}/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signed = f"{_ALGORITHM}\n{moment}\n{place}\n{digest}"
    signature = hmac.digest(_key(credentials, place), signed.encode(), "sha256").hex()
    headers["authorization"] = (
        f"{_ALGORITHM} Credential={credentials.access_key_id}/{place}, "
        f"SignedHeaders={names}, Signature={signature}"
    )
    return replace(request, headers=tuple(headers.items()))


def canonical_request(request: AwsRequest) -> str:
    """The text whose digest is signed. The path is encoded a second time, as by every service except S3."""
    parts = urlsplit(request.url)
    pairs = sorted(
        (_encoded(name), _encoded(value)) for name, value in parse_qsl(parts.query, keep_blank_values=True)
    )
    headers = sorted((name, " ".join(value.split())) for name, value in request.headers)
    return "\n".join(
        (
            request.method,
            urllib.parse.quote(parts.path or "/", safe=f"/{_UNRESERVED}"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{value}" for name, value in headers),
            "",
            ";".join(name for name, _ in headers),
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _encoded(text: str) -> str:
    return urllib.parse.quote(text, safe=_UNRESERVED)


def _host(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    is_default = parts.port in (None, _DEFAULT_PORTS.get(parts.scheme))
    return host if is_default else f"{host}:{parts.port}"


def _key(credentials: AwsCredentials, place: str) -> bytes:
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in place.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key


_RENEWED_BEFORE: Final = timedelta(minutes=10)
"""As in AWS's SDKs. A failure in this time is retried while the old credentials still work."""
_LEAST_LEFT: Final = timedelta(minutes=1)
"""Credentials with less left may expire on their way."""


class AwsTools(msgspec.Struct, frozen=True):
    """The tools of requests to AWS: a client that follows the rules for outgoing requests, and the time."""

    client: Callable[[ServerRules], HttpClient]
    now: Callable[[], datetime]


class CredentialSource(Protocol):
    """Where credentials come from. A frozen dataclass: equal sources give credentials of one identity."""

    async def fetch(self, tools: AwsTools) -> AwsCredentials:
        """Get credentials; temporary ones are new. Raises `AwsError`."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class StaticKeys:
    """An access key of a user (or a temporary one that someone else replaces)."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    async def fetch(self, tools: AwsTools) -> AwsCredentials:  # noqa: ARG002
        return AwsCredentials(self.access_key_id, self.secret_access_key, self.session_token)


class CredentialCache:
    """The current credentials of a source."""

    def __init__(self, source: CredentialSource, tools: AwsTools) -> None:
        self._source = source
        self._tools = tools
        self._current: AwsCredentials | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> AwsCredentials:
        """Credentials that are valid for another minute at least. Raises `AwsError`."""
        async with self._lock:
            current = self._current
            if current is None or self._left(current) < _RENEWED_BEFORE:
                try:
                    current = self._current = await self._source.fetch(self._tools)
                except AwsError:
                    if current is None or self._left(current) < _LEAST_LEFT:
                        raise
            return current

    def forget(self, credentials: AwsCredentials) -> None:
        """Drop the credentials, which AWS no longer accepts."""
        if self._current is credentials:
            self._current = None

    def _left(self, credentials: AwsCredentials) -> timedelta:
        if credentials.expires_at is None:
            return timedelta.max
        return credentials.expires_at - self._tools.now()


DEFAULT_REGION: Final = "us-east-1"
_REGION: Final = re.compile(r"[a-z]{2,4}(-[a-z]+)+-[0-9]{1,2}")
_SUFFIXES: Final = {"cn-": "amazonaws.com.cn", "us-iso-": "c2s.ic.gov", "us-isob-": "sc2s.sgov.gov"}


def check_region(region: str, field: str) -> str:
    """The region that a field names. Raises `AwsError` for other text: it becomes part of a host name."""
    if not _REGION.fullmatch(region):
        raise AwsError(f'{field}: "{quote(region, 60)}" is not an AWS region; write e.g. {DEFAULT_REGION}')
    return region


def region_of(environment: Mapping[str, str]) -> str:
    """The region that the environment names; empty: none. Raises `AwsError`."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := environment.get(name, ""):
            return check_region(region, name)
    return ""


def domain_of(region: str) -> str:
    """The domain of the services in the partition of a region, e.g. `amazonaws.com`."""
    return next((name for start, name in _SUFFIXES.items() if region.startswith(start)), "amazonaws.com")


def endpoint_variables(service: str) -> tuple[str, str]:
    """The environment variables that replace the endpoint of a service (`STS`, `ROUTE_53`), the first that is
    set."""
    return f"AWS_ENDPOINT_URL_{service}", "AWS_ENDPOINT_URL"


def sts_endpoint(region: str) -> str:
    """The URL of STS in a region."""
    return f"https://sts.{region or DEFAULT_REGION}.{domain_of(region)}"


_THROTTLED_STATUSES: Final = (429, 503)


class AwsEndpoint(msgspec.Struct, frozen=True):
    """Where a service is, without a final slash; requests are signed for `region`."""

    url: str
    region: str
    rules: ServerRules = HTTPS_ONLY


class AwsService(msgspec.Struct, frozen=True):
    """A service by the name that signatures contain (`sts`) and the one for messages (`AWS STS`)."""

    name: str
    title: str
    endpoint: AwsEndpoint

    def signed(self, request: AwsRequest, credentials: AwsCredentials, now: datetime) -> AwsRequest:
        """The request with a signature for this service."""
        return sign(request, credentials, SigningScope(self.name, self.endpoint.region), now)

    async def call(
        self,
        request: AwsRequest,
        what: str,
        tools: AwsTools,
        credentials: AwsCredentials | None,
        *,
        allowed: Collection[str] = (),
    ) -> Answer:
        """Send a request, signed unless `credentials` is None, whose URL is relative to the endpoint.

        `what` is the purpose in the infinitive, for errors. Returns a success, or an error whose code is in
        `allowed`. Raises `AwsError`.
        """
        request = AwsRequest(
            request.method, f"{self.endpoint.url}{request.url}", request.headers, request.body
        )
        if credentials is not None:
            request = self.signed(request, credentials, tools.now())
        try:
            response = await tools.client(self.endpoint.rules).send(
                request.method, request.url, body=request.body, headers=request.headers
            )
        except ServerError as error:
            raise AwsUnreachable(f"{self.title} cannot be asked to {what}: {error}") from error
        answer = Answer(response, _document(response.body))
        if not 200 <= response.status < 300:
            if answer.code in allowed:
                return answer
            raise self.failure(answer, what)
        if not answer.is_response:
            raise AwsError(
                f"{self.title} did not answer as documented when asked to {what}; is the endpoint right?"
            )
        return answer

    def failure(self, answer: Answer, what: str) -> AwsRefused:
        """The error for an answer that is not a success."""
        status, code, text = answer.http.status, answer.code, answer.text
        reason = ": ".join(part for part in (code, text) if part)
        message = f"{self.title} refused to {what}: status {status}" + (f", {reason}" if reason else "")
        kind = AwsRefused
        if code in DENIED or (not code and status in (401, 403)):
            kind = AwsDenied
        elif code in THROTTLED or code.startswith("Throttl") or status in _THROTTLED_STATUSES:
            kind = AwsThrottled
        return kind(message, status=status, code=code, text=text)


class Answer(msgspec.Struct, frozen=True):
    """An answer; `document` is None if its body is not XML."""

    http: HttpAnswer
    document: ElementTree.Element | None

    def find(self, path: str) -> str:
        """The text of the first element at a path such as `ChangeInfo/Id`; empty: there is none."""
        return text_of(self.document, path)

    def all(self, path: str) -> list[ElementTree.Element]:
        """The elements at a path."""
        return [] if self.document is None else self.document.findall(_any_namespace(path))

    @property
    def code(self) -> str:
        """The error code; empty for a success, and for an error that has none."""
        batch = "InvalidChangeBatch"
        return quote(self._error("Code") or (batch if self._is_root(batch) else ""), 100)

    @property
    def text(self) -> str:
        """The message of an error, or the messages of an invalid change batch."""
        batch = [element.text or "" for element in self.all("Messages/Message")]
        return quote(" ".join(batch) or self._error("Message"), 400)

    @property
    def is_response(self) -> bool:
        """Whether the document is a success: of each action, its name ends like this."""
        return self.document is not None and self.document.tag.endswith("Response")

    def _error(self, name: str) -> str:
        # Some servers leave out the element around it.
        return self.find(f"Error/{name}") or (self.find(name) if self._is_root("Error") else "")

    def _is_root(self, name: str) -> bool:
        return self.document is not None and self.document.tag.rpartition("}")[2] == name


def text_of(element: ElementTree.Element | None, path: str) -> str:
    """The text of the first element at a path below another one; empty: there is none."""
    child = element.find(_any_namespace(path)) if element is not None else None
    return (child.text or "").strip() if child is not None else ""


def _any_namespace(path: str) -> str:
    return "/".join(f"{{*}}{part}" for part in path.split("/"))


def _document(body: bytes) -> ElementTree.Element | None:
    # A document type is never part of an answer; entities in one could fill the memory.
    if b"<!DOCTYPE" in body[:1000].upper():
        return None
    try:
        return ElementTree.fromstring(body)  # noqa: S314
    except ElementTree.ParseError:
        return None
