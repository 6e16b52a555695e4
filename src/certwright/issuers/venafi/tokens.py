"""Access tokens: one for each issuer, for its lifetime.

cert-manager logs in for every check and every certificate. Here a token is kept, refreshed after two thirds
of its lifetime, and replaced by a new login when the server does not accept it any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from certwright.issuers.venafi.calls import Refused, Unauthorized

T = TypeVar("T")

_RENEW_AT: Final = 2 / 3
# A token with a shorter rest may expire on its way.
_LEAST_LEFT: Final = timedelta(seconds=5)


class LoginRefused(Exception):
    """The server refuses the credentials. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `lifetime` None: unknown, or it does not expire. `refresh` is the refresh token."""

    value: str = field(repr=False)
    lifetime: timedelta | None = None
    refresh: str = field(default="", repr=False)


LogIn = Callable[[], Awaitable[Token]]
Refresh = Callable[[str], Awaitable[Token]]
"""Exchanges a refresh token, which is then used up."""


class _Kept(msgspec.Struct, frozen=True):
    token: Token
    received_at: datetime

    def is_due(self, now: datetime) -> bool:
        lifetime = self.token.lifetime
        return lifetime is not None and now >= self.received_at + lifetime * _RENEW_AT

    def is_over(self, now: datetime) -> bool:
        lifetime = self.token.lifetime
        return lifetime is not None and now >= self.received_at + lifetime - _LEAST_LEFT


class Tokens:
    """The token of one issuer. `log_in` and `refresh` raise `VenafiError`; `now` returns the time."""

    def __init__(self, log_in: LogIn, now: Callable[[], datetime], *, refresh: Refresh | None = None) -> None:
        self._log_in = log_in
        self._refresh = refresh
        self._now = now
        self._kept: _Kept | None = None
        self._token_lock = asyncio.Lock()

    async def get(self) -> str:
        """A valid token: the kept one, a refreshed one, or that of a new login.

        Raises `LoginRefused`, and `VenafiError` when the server does not work.
        """
        async with self._token_lock:
            kept, now = self._kept, self._now()
            if kept is not None and kept.is_due(now) and self._refresh is not None and kept.token.refresh:
                kept = await self._refreshed(kept.token)
            elif kept is not None and kept.is_over(now):
                kept = None
            if kept is None:
                kept = await self._new_login()
            self._kept = kept
            return kept.token.value

    async def use(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with the token. A token that the server does not accept is replaced once.

        Raises as `get`, and what `call` raises.
        """
        token = await self.get()
        try:
            return await call(token)
        except Unauthorized:
            # It was revoked, or has ended early. A refresh token ends together with it.
            if self._kept is not None and self._kept.token.value == token:
                self._kept = None
            return await call(await self.get())

    async def _refreshed(self, token: Token) -> _Kept | None:
        """The refreshed token; None if only a login helps."""
        assert self._refresh is not None
        try:
            refreshed = await self._refresh(token.refresh)
        except (Unauthorized, Refused):
            return None
        return _Kept(refreshed, self._now())

    async def _new_login(self) -> _Kept:
        try:
            return _Kept(await self._log_in(), self._now())
        except (Unauthorized, Refused) as error:
            raise LoginRefused(f"the server refuses the login: {error}") from error
