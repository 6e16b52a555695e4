"""The HTTP API of Vault and OpenBao, as far as certificates need it.

Source: Vault API reference, `sys/health`, `auth/token`, `sys/capabilities-self`, `pki/sign/:name`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerError, parse_retry_after, place_of, quote

_AUTHORIZATION: Final = "X-Vault-Token"
_NAMESPACE_HEADER: Final = "X-Vault-Namespace"
# Without this header OpenBao refuses requests that could come from a browser's form (SSRF protection of
# Vault Agent, which may stand before the server).
_REQUEST_HEADER: Final = ("X-Vault-Request", "true")
_MOST_ERRORS = 3

_HEALTH: Final[Mapping[int, str]] = {
    501: "is not initialized; run `vault operator init`",
    503: "is sealed; unseal it",
}
"""The states of `sys/health` in which a server does not work. 200 active, 429 standby, 472 and 473
replication secondaries: these answer or forward requests."""


class VaultError(Exception):
    """A request without success. The message is one sentence."""


class Unavailable(VaultError):
    """The server does not work now: unreachable, sealed, not initialized, overloaded. `not_before` is its
    `Retry-After`."""

    def __init__(self, message: str, *, not_before: datetime | None = None, is_limit: bool = False) -> None:
        super().__init__(message)
        self.not_before = not_before
        self.is_limit = is_limit


class Denied(VaultError):
    """403: the token or the client may not do this."""


class NoSuchPath(VaultError):
    """404: no engine or method is mounted there."""


class Rejected(VaultError):
    """Another 4xx: the server understands the request and refuses it. `errors` are its documented error
    strings, bounded and cleaned."""

    def __init__(self, message: str, errors: tuple[str, ...]) -> None:
        super().__init__(message)
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Login:
    """The result of a login: a token for `lease_s` seconds (0: for ever)."""

    token: str = field(repr=False)
    lease_s: int = 0
    renewable: bool = False


class SignedByVault(msgspec.Struct, frozen=True):
    """PEM texts of the answer of the PKI engine: the certificate, and the CAs in the server's order."""

    certificate: str
    chain: tuple[str, ...]


class VaultApi:
    """Calls to one server, in one of its namespaces (empty: the root namespace). `now` returns the time.
    Methods raise `VaultError`."""

    def __init__(self, http: HttpClient, server: str, namespace: str, now: Callable[[], datetime]) -> None:
        self._http = http
        self._now = now
        self._server = server.rstrip("/")
        self._namespace = namespace

    async def check_health(self) -> None:
        """Return if the server is initialized and unsealed. Without the namespace, which has no such path."""
        answer = await self._send("GET", "/v1/sys/health", namespace="")
        if answer.status in _HEALTH:
            raise Unavailable(f"Vault at {self._server} {_HEALTH[answer.status]}")
        if answer.status not in (200, 429, 472, 473):
            raise Unavailable(f"Vault at {self._server} answers its health check with {answer.status}")

    async def log_in(self, path: str, body: Mapping[str, Any]) -> Login:
        """Log in at an authentication method; `path` begins with `/v1/`."""
        return _login(await self._call("POST", path, body=body), path)

    async def renew(self, token: str) -> Login:
        """Renew a renewable token for another lease."""
        return _login(await self._call("POST", "/v1/auth/token/renew-self", token, {}), "auth/token")

    async def lookup_self(self, token: str) -> Login:
        """What the server knows of a token. Raises `Denied` for one that it does not know."""
        content = await self._call("GET", "/v1/auth/token/lookup-self", token)
        data = _mapping(content.get("data"))
        return Login(token, _seconds(data.get("ttl")), data.get("renewable") is True)

    async def may_sign(self, token: str, path: str) -> bool:
        """Whether the token's policies allow to sign at `path`; True if the server does not say."""
        try:
            content = await self._call("POST", "/v1/sys/capabilities-self", token, {"paths": [path]})
        except (Denied, NoSuchPath, Rejected):
            return True
        capabilities = content.get("capabilities")
        if not isinstance(capabilities, list):
            return True
        return any(capability in ("update", "create", "root", "sudo") for capability in capabilities)

    async def has_engine(self, token: str, path: str) -> bool:
        """Whether a PKI engine is mounted above `path`; only for a token that may use `path`. True if the
        server does not say."""
        try:
            content = await self._call("GET", f"/v1/sys/internal/ui/mounts/{path}", token)
        except (Denied, NoSuchPath):
            return False
        except Rejected:
            return True
        return _mapping(content.get("data")).get("type") in ("pki", None)

    async def sign(self, token: str, path: str, body: Mapping[str, Any]) -> SignedByVault:
        """Sign at the path of a role, e.g. `pki/sign/web`."""
        data = _mapping((await self._call("POST", f"/v1/{path}", token, body)).get("data"))
        certificate = data.get("certificate")
        if not isinstance(certificate, str) or not certificate:
            raise Unavailable(
                f"{place_of(f'{self._server}/v1/{path}')} answered without a certificate; spec.vault.path "
                "must be the sign endpoint of a PKI engine, e.g. pki/sign/my-role"
            )
        chain = data.get("ca_chain") or [data.get("issuing_ca")]
        return SignedByVault(certificate, tuple(entry for entry in chain if isinstance(entry, str)))

    async def _call(
        self, method: str, path: str, token: str = "", body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        answer = await self._send(method, path, token, body, self._namespace)
        if not 200 <= answer.status < 300:
            raise _error_of(answer, place_of(self._server + path), self._now())
        if not answer.body:
            return {}
        return _mapping(_parsed(answer, place_of(self._server + path)))

    async def _send(
        self,
        method: str,
        path: str,
        token: str = "",
        body: Mapping[str, Any] | None = None,
        namespace: str = "",
    ) -> HttpAnswer:
        headers = [_REQUEST_HEADER]
        if token:
            headers.append((_AUTHORIZATION, token))
        if namespace:
            headers.append((_NAMESPACE_HEADER, namespace))
        content = b""
        if body is not None:
            headers.append(("Content-Type", "application/json"))
            content = json.dumps(body).encode()
        try:
            return await self._http.send(method, self._server + path, body=content, headers=tuple(headers))
        except ServerError as error:
            raise Unavailable(str(error)) from error


def _parsed(answer: HttpAnswer, place: str) -> object:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"{place} answered with {answer.status} and no JSON: is that a Vault?") from error


def _error_of(answer: HttpAnswer, place: str, received_at: datetime) -> VaultError:
    errors = _errors(answer)
    text = f"{place} answered {answer.status}" + (f": {'; '.join(errors)}" if errors else "")
    if answer.status == 403:
        return Denied(text)
    if answer.status == 404:
        return NoSuchPath(text)
    if answer.status == 429 or not 400 <= answer.status < 500:
        if answer.status == 503:
            text = f"{text} (a sealed Vault, or one without an active node)"
        not_before = parse_retry_after(answer.header("retry-after"), received_at)
        return Unavailable(text, not_before=not_before, is_limit=answer.status == 429)
    return Rejected(text, errors)


def _errors(answer: HttpAnswer) -> tuple[str, ...]:
    """The documented error strings of an answer: `{"errors": ["…"]}`. Nothing else of it is quoted."""
    try:
        errors = _mapping(json.loads(answer.body)).get("errors")
    except (ValueError, RecursionError):
        return ()
    if not isinstance(errors, list):
        return ()
    return tuple(
        quote(error.strip()) for error in errors[:_MOST_ERRORS] if isinstance(error, str) and error.strip()
    )


def _login(content: Mapping[str, Any], path: str) -> Login:
    auth = _mapping(content.get("auth"))
    token = auth.get("client_token")
    if not isinstance(token, str) or not token:
        raise Unavailable(f"{quote(path, 100)} answered without a token")
    return Login(token, _seconds(auth.get("lease_duration")), auth.get("renewable") is True)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _seconds(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
