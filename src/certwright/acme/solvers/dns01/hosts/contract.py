"""Contract of a DNS host: how its API finds zones and changes TXT values.

`HostedSolver` makes a solver of a host. It follows aliases, finds and caches zones, sends the edits of
concurrent challenges together, and keeps the pauses that the API asks for; a host only translates.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from asyncio import Semaphore
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import Field, dataclass, field
from datetime import datetime, timedelta
from typing import Any, ClassVar, Final, Protocol, TypeVar

from certwright.acme.solvers.contract import SolverError
from certwright.kit.outgoing import HttpClient, ServerRules

T = TypeVar("T")

_TIMEOUT_S: Final = 60.0
# At 40 MB each.
_MOST: Final = 8
DEFAULT_PAUSE = timedelta(seconds=30)
"""Pause after a rate limit for which the API names no time."""


class Children:
    """At most `most` concurrent children of each provider, so that a blocked child delays no other provider;
    each child is killed after `timeout_s`."""

    def __init__(self, most: int = _MOST, timeout_s: float = _TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._most = most
        self._free: dict[str, Semaphore] = {}

    @asynccontextmanager
    async def slot(self, provider: str) -> AsyncIterator[None]:
        """Wait for a slot of that provider. Raises `SolverError` if none is free within the timeout."""
        free = self._free.setdefault(provider, Semaphore(self._most))
        try:
            async with asyncio.timeout(self.timeout_s):
                await free.acquire()
        except TimeoutError:
            raise SolverError(
                f"{provider}: {self._most} earlier calls have not ended within {self.timeout_s:g} s"
            ) from None
        try:
            yield
        finally:
            free.release()


class Throttled(SolverError):
    """The API accepts no request with these credentials before `until`: a rate limit, or a `Retry-After`."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message, not_before=until)
        self.until = until


class CredentialsRejected(SolverError):
    """The API does not accept the credentials; the text names the Secret's purpose and the fix."""


class NotPermitted(SolverError):
    """The API knows the credentials, which may not do what was requested."""


class ZoneGone(SolverError):
    """A zone found before no longer exists under its ID: find it again."""


class EditsConflict(SolverError):
    """Another client has changed the same records since they were read: read again, and send again."""


@dataclass(frozen=True, slots=True)
class HostedZone:
    """A zone in the account. `name` has no final dot; `id` is what the API calls the zone by."""

    name: str
    id: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Add one TXT value to the values of `name`, or remove it. `name` has no final dot."""

    name: str
    value: str
    adds: bool


def quoted(value: str) -> str:
    """A TXT value as it is in zone files."""
    return f'"{value}"'


def unquoted(text: str) -> str:
    """The value of a TXT record that some APIs return with quotes, and others without."""
    return text.strip('"')


def edited(
    before: Iterable[T],
    name: str,
    edits: Sequence[Edit],
    *,
    make: Callable[[str], T],
    value_of: Callable[[T], str],
) -> list[T]:
    """The records of a name after the edits of this name. `make` makes the record of a value, `value_of` is
    its inverse."""
    after = {value_of(record): record for record in before}
    for edit in edits:
        if edit.name == name and edit.adds:
            after.setdefault(edit.value, make(edit.value))
        elif edit.name == name:
            after.pop(edit.value, None)
    return list(after.values())


@dataclass(frozen=True, slots=True)
class EditsTogether:
    """The limits of one call of `apply`: at most `most` edits, of one zone or (`of_one_name`) one name."""

    most: int
    of_one_name: bool = False


class DnsHost(ABC):
    """The API of one DNS host, with one set of credentials.

    This process never makes two concurrent calls of `apply` for one zone (or one name: `edits_together`).
    Every method raises `SolverError` or a subclass, with one sentence (the request, the answer, the fix);
    every method has a timeout, and does not wait for propagation.
    """

    edits_together: EditsTogether

    @abstractmethod
    async def find_zone(self, name: str) -> HostedZone | None:
        """The zone of exactly this name, in lower case, without a final dot. None: the account has none."""

    @abstractmethod
    async def apply(self, zone: HostedZone, edits: Sequence[Edit]) -> str:
        """Make the edits. Other values of the same names stay. Adding an existing value and removing a
        missing value succeed. Returns the ID of the change if it is known to be pending, else the empty
        string."""

    @abstractmethod
    async def verify(self) -> None:
        """Raises `SolverError` if the credentials do not work; sends one request, or none. `NotPermitted`
        counts as a success: a role for one zone need not allow e.g. to list the zones."""

    def check_name(self, name: str) -> None:  # noqa: ARG002
        """Raises `SolverError` if the settings show that the host cannot serve a record of this name."""
        return

    async def is_pending(self, change: str) -> bool:  # noqa: ARG002
        """Whether the host has not yet brought the change to all of its name servers."""
        return False


@dataclass(frozen=True, slots=True)
class Outside:
    """The dependencies of a host: the time, an HTTPS client that follows the rules, and the limits of child
    processes."""

    client: Callable[[ServerRules], HttpClient]
    now: Callable[[], datetime]
    children: Children = field(default_factory=Children)


class HostSettings(Protocol):
    """The settings of a host: endpoint, credentials, IDs.

    A frozen dataclass with a field `zone`. Challenges with equal settings share tokens and cached zones;
    challenges whose settings differ at most in the zone share pauses. Secret values are excluded from its
    `repr`.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __hash__(self) -> int: ...

    @property
    def zone(self) -> HostedZone | None:
        """The zone in the manifest; None: the zone is looked up."""

    def connect(self, outside: Outside) -> DnsHost:
        """The host. Raises `SolverError` for settings that cannot work."""
