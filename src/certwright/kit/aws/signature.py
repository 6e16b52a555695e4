"""Signature Version 4 of requests to AWS.

Source: AWS IAM User Guide, "Create a signed AWS API request".
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

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
    """The request with its signature, which covers all of its headers and its body. AWS accepts it until five
    minutes after `now`.

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
    pairs = sorted((_encoded(name), _encoded(value)) for name, value in _query(parts.query))
    headers = sorted((name, " ".join(value.split())) for name, value in request.headers)
    return "\n".join(
        (
            request.method,
            quote(parts.path or "/", safe=f"/{_UNRESERVED}"),
            "&".join(f"{name}={value}" for name, value in pairs),
            *(f"{name}:{value}" for name, value in headers),
            "",
            ";".join(name for name, _ in headers),
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _query(query: str) -> list[tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True)


def _encoded(text: str) -> str:
    return quote(text, safe=_UNRESERVED)


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
