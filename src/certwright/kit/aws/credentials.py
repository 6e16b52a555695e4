"""Sources of credentials, and the cache that replaces temporary ones in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from certwright.kit.aws.errors import AwsError
from certwright.kit.aws.signature import AwsCredentials
from certwright.kit.outgoing import HttpClient, ServerRules

_RENEWED_BEFORE: Final = timedelta(minutes=10)
"""As in AWS's SDKs. A failure in this time is retried while the old credentials still work."""
_LEAST_LEFT: Final = timedelta(minutes=1)
"""Credentials with less left may expire on their way."""


class AwsTools(msgspec.Struct, frozen=True):
    """What requests to AWS need: the client that follows these rules, and the time."""

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
        """See `CredentialSource`."""
        return AwsCredentials(self.access_key_id, self.secret_access_key, self.session_token)


class CredentialCache:
    """The current credentials of a source."""

    def __init__(self, source: CredentialSource, tools: AwsTools) -> None:
        self._source = source
        self._tools = tools
        self._current: AwsCredentials | None = None
        self._lock = asyncio.Lock()

    async def get(self) -> AwsCredentials:
        """Credentials that are valid for at least another minute. Raises `AwsError`."""
        async with self._lock:
            current = self._current
            if current is None or self._left(current) < _RENEWED_BEFORE:
                current = self._current = await self._renewed(current)
            return current

    def forget(self, credentials: AwsCredentials) -> None:
        """Get others the next time, because AWS does not accept these any more."""
        if self._current is credentials:
            self._current = None

    async def _renewed(self, current: AwsCredentials | None) -> AwsCredentials:
        try:
            return await self._source.fetch(self._tools)
        except AwsError:
            if current is None or self._left(current) < _LEAST_LEFT:
                raise
            return current

    def _left(self, credentials: AwsCredentials) -> timedelta:
        if credentials.expires_at is None:
            return timedelta.max
        return credentials.expires_at - self._tools.now()
