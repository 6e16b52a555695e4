"""The HTTP API of Vault and OpenBao, as far as certificates need it.

Source: Vault API reference, `sys/health`, `auth/token`, `sys/capabilities-self`, `pki/sign/:name`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.issuers.contract import ServerTools
from certwright.issuers.servers import (
    CallError,
    Calls,
    ErrorFormat,
    Headers,
    LoginRefused,
    Refused,
    Session,
    Token,
    Tokens,
    Unauthorized,
    Unavailable,
    lifetime_of,
    mapping,
    text_of,
    texts_of,
)
from certwright.issuers.vault.settings import Method, Settings, StaticToken
from certwright.kit.outgoing import HttpClient, place_of, quote

# Without this header OpenBao refuses requests that could come from a browser's form (SSRF protection of
# Vault Agent, which may stand before the server).
_REQUEST_HEADER: Final = ("X-Vault-Request", "true")

_HEALTH: Final[Mapping[int, str]] = {
    501: "is not initialized; run `vault operator init`",
    503: "is sealed; unseal it",
}
"""The states of `sys/health` in which a server does not work. 200 active, 429 standby, 472 and 473
replication secondaries: these answer or forward requests."""
_ANY_STATUS: Final = range(100, 600)


def _error_texts(content: Mapping[str, Any]) -> Sequence[object]:
    """The documented error strings of an answer: `{"errors": ["…"]}`."""
    return texts_of(content.get("errors"))


# 403: the token or the client may not do this.
_ERRORS: Final = ErrorFormat(
    "Vault", _error_texts, 403, {503: " (a sealed Vault, or one without an active node)"}
)


class SignedByVault(msgspec.Struct, frozen=True):
    """PEM texts of the answer of the PKI engine: the certificate, and the CAs in the server's order."""

    certificate: str
    chain: tuple[str, ...]


class VaultApi:
    """Calls to one server, in one of its namespaces (empty: the root namespace). `now` returns the time.
    Methods raise `CallError`."""

    def __init__(self, http: HttpClient, server: str, namespace: str, now: Callable[[], datetime]) -> None:
        self._calls = Calls(http, now, _ERRORS)
        self._server = server.rstrip("/")
        self._headers = (_REQUEST_HEADER, *((("X-Vault-Namespace", namespace),) if namespace else ()))

    async def check_health(self) -> None:
        """Return if the server is initialized and unsealed. Without the namespace, which has no such path."""
        url = f"{self._server}/v1/sys/health"
        answer = await self._calls.get(url, (_REQUEST_HEADER,), is_text=True, accepted=_ANY_STATUS)
        if answer.status in _HEALTH:
            raise Unavailable(f"Vault at {self._server} {_HEALTH[answer.status]}")
        if answer.status not in (200, 429, 472, 473):
            raise Unavailable(f"Vault at {self._server} answers its health check with {answer.status}")

    async def log_in(self, path: str, body: Mapping[str, Any]) -> Token:
        """Log in at an authentication method; `path` begins with `/v1/`."""
        return _token(await self._post(path, "", body), path)

    async def renew(self, token: str) -> Token:
        """Renew a renewable token for another lease."""
        return _token(await self._post("/v1/auth/token/renew-self", token, {}), "auth/token")

    async def lookup_self(self, token: str) -> None:
        """Return if the server knows the token. Raises `Unauthorized` for an unknown token."""
        await self._get("/v1/auth/token/lookup-self", token)

    async def may_sign(self, token: str, path: str) -> bool:
        """Whether the token's policies allow to sign at `path`; True if the server does not say."""
        try:
            content = await self._post("/v1/sys/capabilities-self", token, {"paths": [path]})
        except (Unauthorized, Refused):
            return True
        capabilities = content.get("capabilities")
        if not isinstance(capabilities, list):
            return True
        return any(capability in ("update", "create", "root", "sudo") for capability in capabilities)

    async def has_engine(self, token: str, path: str) -> bool:
        """Whether a PKI engine is mounted above `path`; only for a token that may use `path`. True if the
        server does not say."""
        try:
            content = await self._get(f"/v1/sys/internal/ui/mounts/{path}", token)
        except Unauthorized:
            return False
        except Refused as error:
            return error.status != 404
        return mapping(content.get("data")).get("type") in ("pki", None)

    async def sign(self, token: str, path: str, body: Mapping[str, Any]) -> SignedByVault:
        """Sign at the path of a role, e.g. `pki/sign/web`."""
        data = mapping((await self._post(f"/v1/{path}", token, body)).get("data"))
        certificate = text_of(data.get("certificate"))
        if not certificate:
            raise Unavailable(
                f"{place_of(f'{self._server}/v1/{path}')} answered without a certificate; spec.vault.path "
                "must be the sign endpoint of a PKI engine, e.g. pki/sign/my-role"
            )
        return SignedByVault(certificate, texts_of(data.get("ca_chain") or [data.get("issuing_ca")]))

    async def _get(self, path: str, token: str) -> Mapping[str, Any]:
        return (await self._calls.get(self._server + path, self._with_token(token))).data

    async def _post(self, path: str, token: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return (await self._calls.post(self._server + path, body, self._with_token(token))).data

    def _with_token(self, token: str) -> Headers:
        return (*self._headers, ("X-Vault-Token", token)) if token else self._headers


def _token(content: Mapping[str, Any], path: str) -> Token:
    auth = mapping(content.get("auth"))
    token = text_of(auth.get("client_token"))
    if not token:
        raise Unavailable(f"{quote(path, 100)} answered without a token")
    renewal = token if auth.get("renewable") is True else ""
    return Token(token, lifetime_of(auth.get("lease_duration")), renewal)


class VaultSession(Session[Settings]):
    """One issuer at its server, with a token for its lease."""

    def __init__(
        self, settings: Settings, http: HttpClient, servers: ServerTools, now: Callable[[], datetime]
    ) -> None:
        self.api = VaultApi(http, settings.server, settings.namespace, now)
        self._servers = servers
        self._now = now
        credentials = settings.credentials
        if isinstance(credentials, StaticToken):
            super().__init__(settings, credentials.token)
            return
        tokens = Tokens(lambda: self._log_in(credentials), now, renew=self.api.renew, is_valid=self._is_valid)
        super().__init__(settings, tokens)

    async def _is_valid(self, token: str) -> bool:
        """False if the server does not say. Not found out by a login, because credentials may be limited to a
        number of logins (`secret_id_num_uses`)."""
        try:
            await self.api.lookup_self(token)
        except CallError:
            return False
        return True

    async def _log_in(self, method: Method) -> Token:
        login = await method.call(self._servers, self._now())
        try:
            return await self.api.log_in(login.path, dict(login.fields))
        except (Unauthorized, Refused) as error:
            advice = "role and credentials in spec.vault.auth"
            if isinstance(error, Unauthorized) or error.status == 404:
                # Servers do not tell strangers which paths exist.
                advice = "role, credentials and mount path in spec.vault.auth, and spec.vault.namespace"
            raise LoginRefused(f"Vault refuses the login: {error}; check {advice}") from error
