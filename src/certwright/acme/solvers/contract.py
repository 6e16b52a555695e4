"""Contracts of solvers and self-checks.

A *task* is one challenge for a solver. `present` publishes its challenge response where the CA validates it,
`clean_up` removes the response, `check` looks for it as the CA does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable

import msgspec

from certwright.acme.protocol import challenges
from certwright.acme.protocol.challenges import PersistentRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One challenge. `identifier` is the DNS name without `*.`, or the address; `uid` identifies the task.

    `key` is what the solver presents: the key authorization (http-01, tls-alpn-01), or the TXT value.
    `account` is the URL of the account (dns-account-01), `persistent` what the TXT record of dns-persist-01
    must authorize.
    """

    type: str
    identifier: str
    wildcard: bool = False
    token: str
    key: str = field(repr=False)
    uid: str
    account: str = ""
    persistent: PersistentRecord | None = None

    @property
    def record(self) -> str:
        """The name of the TXT record of the DNS types, without a final dot."""
        match self.type:
            case challenges.DNS_PERSIST_01:
                return challenges.dns_persist_name(self.identifier)
            case challenges.DNS_ACCOUNT_01:
                return challenges.dns_account_name(self.identifier, self.account)
            case _:
                return challenges.dns_name(self.identifier)


class SolverError(Exception):
    """Presenting or cleaning up failed. The text is one sentence: the attempt, the answer, and the fix. A
    retry may succeed, from `not_before` on if given."""

    def __init__(self, message: str = "", *, not_before: datetime | None = None) -> None:
        super().__init__(message)
        self.not_before = not_before


class SolverNotAllowed(SolverError):
    """The operator of this process does not allow the solver; the text names the flag. This process has
    presented nothing with it."""


class Solver(Protocol):
    """Presents challenge responses, for any number of concurrent tasks.

    Both methods MUST be idempotent, and MUST NOT change what other tasks (of this process or of another)
    have presented, also under the same name. `clean_up` of a response that was never presented, or was
    presented before a crash, is a success. Both raise `SolverError`, MUST NOT wait for propagation, and MUST
    end by themselves: they have timeouts.
    """

    async def present(self, task: Task) -> None:
        """Publish the challenge response."""

    async def clean_up(self, task: Task) -> None:
        """Remove the challenge response."""


@runtime_checkable
class Verifiable(Protocol):
    """A solver that can be verified before there is a challenge. Neither method changes anything at the
    provider; both raise `SolverError`, and end by themselves."""

    async def verify(self) -> None:
        """Raises `SolverError` if the solver cannot work for any name, e.g. with these credentials. Answers
        are cached: calls for each order are cheap."""

    async def verify_name(self, task: Task) -> str:
        """The zone of the task's record; empty if the provider has no zones. Raises `SolverError` if the
        solver cannot present this task, whose token and key may be empty."""


class Ready(msgspec.Struct, frozen=True):
    """The self-check sees the challenge response."""


class NotYet(msgspec.Struct, frozen=True):
    """The self-check does not see the challenge response. `reason` names the observer and what it saw
    instead. A check before `not_before` would see the same (e.g. because of a name server's cache)."""

    reason: str
    not_before: timedelta = timedelta(0)


class Check(Protocol):
    """A self-check. MUST NOT raise for network failures, and MUST have a timeout."""

    async def check(self, task: Task) -> Ready | NotYet:
        """Check once."""


class Unpresented:
    """Presents and removes nothing."""

    async def present(self, task: Task) -> None:
        """See `Solver`."""

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
