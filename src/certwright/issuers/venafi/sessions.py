"""Sessions: one product client, one token and one copy of the zone for each issuer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final, TypeVar

from certwright.issuers.venafi.calls import Calls, ProductClient
from certwright.issuers.venafi.policies import ZonePolicy
from certwright.issuers.venafi.saas import SaasClient
from certwright.issuers.venafi.settings import ClientCredentials, Password, Product, Settings, StaticKey
from certwright.issuers.venafi.tokens import Tokens
from certwright.issuers.venafi.tpp import TppClient
from certwright.kit.outgoing import HttpClient
from certwright.kube.util.caches import Lru

T = TypeVar("T")

_KEPT: Final = 256
_ZONE_LASTS: Final = timedelta(minutes=10)


class Session:
    """One issuer, with that UID, at its server. `now` returns the time.

    Methods raise `VenafiError`, and `LoginRefused` if the server does not accept the credentials.
    """

    def __init__(
        self, issuer_uid: str, settings: Settings, http: HttpClient, now: Callable[[], datetime]
    ) -> None:
        self.issuer_uid = issuer_uid
        self.settings = settings
        self._now = now
        self.client, self._tokens = _connect(settings, Calls(http, now), now)
        self._zone: ZonePolicy | None = None
        self._zone_read_at = now()
        self._zone_lock = asyncio.Lock()

    async def use(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with the token or key; an expired token is replaced."""
        credentials = self.settings.credentials
        if isinstance(credentials, StaticKey):
            return await call(credentials.value)
        assert self._tokens is not None
        return await self._tokens.use(call)

    async def zone(self, not_older_than: datetime | None = None) -> ZonePolicy:
        """The zone: the kept copy for ten minutes, unless it must not be older than the given time."""
        async with self._zone_lock:
            since = not_older_than or self._now() - _ZONE_LASTS
            if self._zone is None or self._zone_read_at < since:
                self._zone = await self.use(self.client.read_zone)
                self._zone_read_at = self._now()
            return self._zone


def _connect(
    settings: Settings, calls: Calls, now: Callable[[], datetime]
) -> tuple[ProductClient, Tokens | None]:
    """The client of the product, and the tokens for it; None: a static key."""
    credentials = settings.credentials
    if settings.product is Product.TPP:
        tpp = TppClient(calls, settings, now)
        if not isinstance(credentials, Password):
            return tpp, None
        return tpp, Tokens(
            lambda: tpp.log_in(credentials),
            now,
            refresh=lambda token: tpp.refresh(credentials.client_id, token),
        )
    saas = SaasClient(calls, settings)
    if not isinstance(credentials, ClientCredentials):
        return saas, None
    return saas, Tokens(lambda: saas.log_in(credentials), now)


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
        return self._sessions.put(uid, Session(uid, settings, http(), now))
