"""Vault sessions: one token for each issuer, for the lifetime of its lease.

cert-manager logs in for every check and every certificate. A login takes as long as a signature, and a
method may limit how often its credentials are used (`secret_id_num_uses`). So a token is kept, renewed after
two thirds of its lease, and discarded when the server does not accept it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from certwright.issuers.contract import ServerTools
from certwright.issuers.vault.api import Denied, Login, NoSuchPath, Rejected, VaultApi, VaultError
from certwright.issuers.vault.settings import Method, Settings, StaticToken
from certwright.kit.outgoing import HttpClient
from certwright.kube.util.caches import Lru

T = TypeVar("T")

_KEPT: Final = 256
_RENEW_AT: Final = 2 / 3
# A token with a shorter rest may expire on its way.
_LEAST_LEFT: Final = timedelta(seconds=5)


class LoginRefused(Exception):
    """The server refuses to log in. The message is one sentence."""


class _Token(msgspec.Struct, frozen=True):
    """A token from a login. `renew_at` and `ends_at` None: it has no lease."""

    login: Login
    renew_at: datetime | None
    ends_at: datetime | None

    def is_due(self, now: datetime) -> bool:
        """Whether it is to be renewed or replaced."""
        return self.renew_at is not None and now >= self.renew_at

    def is_over(self, now: datetime) -> bool:
        """Whether it may expire before it is used."""
        return self.ends_at is not None and now >= self.ends_at - _LEAST_LEFT


class Session:
    """The token of one issuer at one server. `now` returns the time."""

    def __init__(self, settings: Settings, api: VaultApi, now: Callable[[], datetime]) -> None:
        self.settings = settings
        self.api = api
        self._now = now
        self._token: _Token | None = None
        self._token_lock = asyncio.Lock()

    async def token(self, servers: ServerTools) -> str:
        """A valid token: the kept one, the renewed one, or that of a new login.

        Raises `LoginRefused`, `BadSettings`, and `VaultError` when the server does not work.
        """
        credentials = self.settings.credentials
        if isinstance(credentials, StaticToken):
            return credentials.token
        async with self._token_lock:
            kept, now = self._token, self._now()
            if kept is not None and kept.is_due(now):
                kept = None if kept.is_over(now) or not kept.login.renewable else await self._renewed(kept)
            if kept is None:
                kept = self._leased(await self._log_in(credentials, servers))
            self._token = kept
            return kept.login.token

    async def use(self, servers: ServerTools, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with the token. A token that the server does not accept is replaced once.

        Raises as `token`, and what `call` raises.
        """
        token = await self.token(servers)
        try:
            return await call(token)
        except Denied:
            # A policy forbids the call, or the token has been revoked, or its lease has ended early.
            if isinstance(self.settings.credentials, StaticToken) or await self._is_valid(token):
                raise
            if self._token is not None and self._token.login.token == token:
                self._token = None
            return await call(await self.token(servers))

    async def _is_valid(self, token: str) -> bool:
        """Whether the server knows the token; False if it does not say. Not found out by a login, because
        credentials may be limited to a number of logins."""
        if self._token is None or self._token.login.token != token:
            return False
        try:
            await self.api.lookup_self(token)
        except VaultError:
            return False
        return True

    async def _renewed(self, kept: _Token) -> _Token | None:
        """The token for another lease; None at the end of its longest one, when only a login helps."""
        try:
            token = self._leased(await self.api.renew(kept.login.token))
        except (Denied, NoSuchPath, Rejected):
            return None
        return None if token.is_over(self._now()) else token

    async def _log_in(self, method: Method, servers: ServerTools) -> Login:
        login = await method.call(servers, self._now())
        try:
            return await self.api.log_in(login.path, dict(login.fields))
        except Rejected as error:
            raise LoginRefused(
                f"Vault refuses the login: {error}; check role and credentials in spec.vault.auth"
            ) from error
        except (Denied, NoSuchPath) as error:
            # Servers do not tell strangers which paths exist.
            raise LoginRefused(
                f"Vault refuses the login: {error}; check role, credentials and mount path in "
                "spec.vault.auth, and spec.vault.namespace"
            ) from error

    def _leased(self, login: Login) -> _Token:
        if not login.lease_s:
            return _Token(login, None, None)
        now, lease = self._now(), timedelta(seconds=login.lease_s)
        return _Token(login, now + lease * _RENEW_AT, now + lease)


class Sessions:
    """The sessions of this process, by the UIDs of the issuers."""

    def __init__(self) -> None:
        self._sessions: Lru[str, Session] = Lru(_KEPT)

    def get(
        self, uid: str, settings: Settings, http: Callable[[], HttpClient], now: Callable[[], datetime]
    ) -> Session:
        """The session of an issuer; a new one when its settings have changed."""
        kept = self._sessions.get(uid)
        if kept is not None and kept.settings == settings:
            return kept
        made = Session(settings, VaultApi(http(), settings.server, settings.namespace, now), now)
        self._sessions.put(uid, made)
        return made
