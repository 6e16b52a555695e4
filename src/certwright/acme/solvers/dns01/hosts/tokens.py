"""Access tokens of DNS hosts: one for its lifetime, and another one when it is not accepted any more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected

T = TypeVar("T")

# A token with less left may expire on its way.
_LEAST_LEFT: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and when it expires."""

    value: str = field(repr=False)
    expires_at: datetime


class TokenCache:
    """The current token. `fetch` requests another one, and raises `SolverError`."""

    def __init__(self, fetch: Callable[[], Awaitable[AccessToken]], now: Callable[[], datetime]) -> None:
        self._fetch = fetch
        self._now = now
        self._token: AccessToken | None = None
        self._token_lock = asyncio.Lock()

    async def use(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with a token. A cached token that the API rejects is replaced once."""
        cached = self._token
        token = await self._current()
        try:
            return await call(token.value)
        except CredentialsRejected:
            if token is not cached:
                raise
            if self._token is token:
                self._token = None
            return await call((await self._current()).value)

    async def _current(self) -> AccessToken:
        async with self._token_lock:
            if self._token is None or self._token.expires_at - self._now() < _LEAST_LEFT:
                self._token = await self._fetch()
            return self._token
