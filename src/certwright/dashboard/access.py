"""The interface between the dashboard and its process."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import msgspec

from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import Identity, Request


class Credential(msgspec.Struct, frozen=True):
    """How a caller proves who they are: a bearer token, or the DER of a verified TLS client certificate."""

    token: str = ""
    certificate: bytes = b""


class ProcessorShare:
    """A share of a processor, of which up to `saved_s` seconds are saved up while it is not used: a token
    bucket of processor time."""

    def __init__(self, share: float, saved_s: float) -> None:
        self._share = share
        self._saved_s = saved_s
        self._even_at = -math.inf  # the moment at which all that was spent is earned again

    def spend(self, seconds: float, now: float) -> float:
        """Spend that time, and return how many seconds (of the clock of `now`) to wait before more is
        spent."""
        self._even_at = max(self._even_at, now) + seconds / self._share
        return max(self._even_at - self._saved_s / self._share - now, 0.0)

    def is_unused(self, now: float) -> bool:
        """Whether all of it is saved up: a new one would allow as much."""
        return self._even_at <= now


class Access(Protocol):
    """Authenticates callers, and reads the API as each of them: a page shows what the API would answer."""

    async def identify(self, credential: Credential, request: Request | None = None) -> Identity:
        """Authenticate the credential, now. The connection of `request` is recorded as the user's. Raises
        `errors.Unauthorized`, or another `ApiError` if the API cannot be asked."""

    def flow(self, identity: Identity) -> str:
        """The name under which the user's pages are counted."""

    def turn(self, identity: Identity) -> AbstractAsyncContextManager[None]:
        """Wait until a page of the user may be computed: the requests within are the API's, and wait for
        nothing else. Raises `TooManyRequests`."""

    def action(self, identity: Identity) -> AbstractAsyncContextManager[None]:
        """Wait until a form of the user may be carried out. Raises `TooManyRequests`."""

    def attempt(self, request: Request) -> AbstractAsyncContextManager[None]:
        """Wait until a log-in may be tried; after an exception, the next one of the address waits longer.
        Raises `TooManyRequests`."""

    def client(self, credential: Credential, identity: Identity) -> Client:
        """A client of the API with the user's own rights."""

    @property
    def generation(self) -> int | None:
        """A number that changes whenever a right of any user may have changed; None: unknown."""

    @property
    def system(self) -> Client:
        """A client with the rights of the process, which may list and watch the kinds of the index."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the dashboard. `read_only`: no page changes anything. `namespace`: that of the controllers,
    empty for all. `command`: how the commands on the pages begin. `seal_key`: from which the key of session
    cookies is derived; `shares_sessions`: all servers of one store have it. `revoke`: has a CA revoke a
    certificate; None: the process cannot. `scan` and `files`: hosts and files whose certificates are shown
    beside (as in `certwright expiring`). `how_to_log_in`: a sentence of the log-in page; empty: where a link
    is made."""

    seal_key: bytes
    shares_sessions: bool = False
    read_only: bool = False
    namespace: str = ""
    command: str = "certwright"
    scan: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    how_to_log_in: str = ""
    revoke: Callable[[Client, str, str, str], Awaitable[str]] | None = None
