"""Tokens for Google's APIs: of a service account's key, or from the metadata server of the machine or pod.

Source: "Using OAuth 2.0 for Server to Server Applications"; RFC 7523 (JWT bearer); "About VM metadata".
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol
from urllib.parse import urlencode

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.api import Endpoint, HostApi
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, Outside
from certwright.acme.solvers.dns01.hosts.tokens import AccessToken
from certwright.kit.outgoing import HttpAnswer, ServerRules
from certwright.kube.util.decoders import UNDECODABLE, json_decoder
from certwright.pki.errors import BadKey
from certwright.pki.keys import load_private_key

TOKENS: Final = Endpoint("https://oauth2.googleapis.com/token")
"""Where keys are exchanged for tokens, whatever a key file says: its `token_uri` is a tenant's text."""
METADATA: Final = Endpoint("http://metadata.google.internal", ServerRules(allow_http=True))
_SCOPE: Final = "https://www.googleapis.com/auth/ndev.clouddns.readwrite"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFETIME: Final = timedelta(hours=1)


class _Token(msgspec.Struct):
    access_token: str
    expires_in: int = 3600


class _Failure(msgspec.Struct):
    error: str = ""
    error_description: str = ""


class GoogleLogin(Protocol):
    """A way to get a token. A frozen dataclass; see `HostSettings`."""

    async def fetch(self, outside: Outside) -> AccessToken:
        """Request a token. Raises `SolverError`."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountKey:
    """The key of a service account, in PEM. `audience` is what the token request is for: Google's token URL,
    also where `tokens` replaces it."""

    email: str
    key_id: str
    key_pem: str = field(repr=False)
    tokens: Endpoint = TOKENS

    async def fetch(self, outside: Outside) -> AccessToken:
        """See `GoogleLogin`."""
        now = int(outside.now().timestamp())
        header = {"alg": "RS256", "typ": "JWT", "kid": self.key_id}
        claims = {
            "iss": self.email,
            "scope": _SCOPE,
            "aud": TOKENS.url,
            "iat": now,
            "exp": now + int(_LIFETIME.total_seconds()),
        }
        signed = f"{_encoded(msgspec.json.encode(header))}.{_encoded(msgspec.json.encode(claims))}"
        signature = self._key().sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        form = {"grant_type": _GRANT, "assertion": f"{signed}.{_encoded(signature)}"}
        api = HostApi("Google's token service", self.tokens, outside, explain=_reason)
        what = f"log in {self.email}"
        answer = await api.call(
            "POST",
            "",
            what=what,
            body=urlencode(form).encode(),
            headers=(("content-type", "application/x-www-form-urlencoded"),),
            allowed=(400, 401),
        )
        if answer.status >= 400:
            raise CredentialsRejected(
                f"{api.failure(answer, what)}; put a valid key of the service account into the Secret"
            )
        return _token(api, answer, what, outside)

    def _key(self) -> rsa.RSAPrivateKey:
        what = "the private_key in the service account's key file"
        try:
            key = load_private_key(self.key_pem.encode())
        except BadKey as error:
            raise SolverError(f"{what} cannot be used: {error}") from error
        if not isinstance(key, rsa.RSAPrivateKey):
            raise SolverError(f"{what} is not an RSA key")
        return key


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataServer:
    """The service account of the machine or pod (also by workload identity on GKE)."""

    metadata: Endpoint = METADATA

    async def fetch(self, outside: Outside) -> AccessToken:
        """See `GoogleLogin`."""
        api = HostApi("Google's metadata server", self.metadata, outside, explain=_reason)
        what = "get a token of the service account"
        answer = await api.call(
            "GET",
            "/computeMetadata/v1/instance/service-accounts/default/token",
            what=what,
            query={"scopes": _SCOPE},
            headers=(("metadata-flavor", "Google"),),
        )
        return _token(api, answer, what, outside)


def _token(api: HostApi, answer: HttpAnswer, what: str, outside: Outside) -> AccessToken:
    token = api.parse(answer, _Token, what)
    return AccessToken(token.access_token, outside.now() + timedelta(seconds=token.expires_in))


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _reason(answer: HttpAnswer) -> str:
    try:
        failure = json_decoder(_Failure).decode(answer.body)
    except UNDECODABLE:
        return ""
    return f"{failure.error}: {failure.error_description}" if failure.error_description else failure.error
