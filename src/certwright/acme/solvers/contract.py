"""What a solver is, and what a check is.

A *task* is one challenge as a solver sees it. `present` puts its proof where the CA will look, `clean_up`
takes it away, `check` looks for it as the CA would.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One challenge. `identifier` is the DNS name without `*.`, or the address; `uid` tells tasks apart.

    `key` is what is shown: the key authorization (http-01, tls-alpn-01), or the value of the TXT record.
    """

    type: str
    identifier: str
    wildcard: bool = False
    token: str
    key: str = field(repr=False)
    uid: str


class SolverError(Exception):
    """The proof could not be shown or taken away. The text is one sentence: what was tried, what came back,
    and what to do. Trying again later may help."""


class SolverNotAllowed(SolverError):
    """The operator of this process does not allow the solver; the text names the flag. This process has shown
    nothing by it."""


class Solver(Protocol):
    """Shows the proofs of any number of tasks at once.

    Both methods MUST be idempotent, and MUST leave alone what other tasks (of this process or of another)
    have shown, also under the same name. `clean_up` of what was never shown, or was shown before a crash, is
    a success. Both raise `SolverError`, MUST NOT wait for the proof to be seen by others, and MUST come to an
    end by themselves: they have timeouts.
    """

    async def present(self, task: Task) -> None:
        """Show the proof."""

    async def clean_up(self, task: Task) -> None:
        """Take the proof away."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The proof is seen."""


@dataclass(frozen=True, slots=True)
class NotYet:
    """The proof is not seen. `reason` says by whom, and what was seen instead. Looking again before
    `not_before` has passed would see the same (a name server's cache, say)."""

    reason: str
    not_before: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looking:
    """How the proofs of one type are looked for: all that it takes to make a `Check`, in any process.

    `port` is where the CA connects to (http-01, tls-alpn-01). `servers` are name servers; none means the
    system's. `recursive_only` and `authority_port` are for dns-01: see `DnsCheck`, `NameServers`.
    """

    type: str
    port: int = 0
    servers: tuple[str, ...] = ()
    recursive_only: bool = False
    authority_port: int = 53


@dataclass(frozen=True, slots=True, kw_only=True)
class Updating:
    """How TXT records are written by dynamic updates: all that it takes to make an `Rfc2136`, in any process.

    `server` is host and port of the primary server; `servers` are the name servers that zones and aliases are
    asked of, at `authority_port` where they have a zone. `tsig` is the name, secret and algorithm of the key.
    """

    server: tuple[str, int]
    servers: tuple[str, ...] = ()
    authority_port: int = 53
    tsig: tuple[str, str, str] | None = field(default=None, repr=False)
    tcp: bool = False
    follow: bool = False


class Check(Protocol):
    """Looks for a proof as the CA will. MUST NOT raise for what the network does, and MUST have a timeout."""

    async def check(self, task: Task) -> Ready | NotYet:
        """Look once."""
