"""Preflight of an Order: whether the solvers can serve its names, before the order is placed at the CA.

A new order counts against the CA's limits, so one that cannot succeed is not placed: its solver has no
credentials, or the account at the DNS provider has no zone for the name. What only the CA's authorizations
show is left to the Challenges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from certwright.acme.protocol.errors import AcmeError
from certwright.acme.solvers.contract import Check, NotYet, SolverError, Task, Verifiable
from certwright.controllers.acme import announcing, order_requests
from certwright.controllers.acme.challenge_solving import with_account
from certwright.controllers.acme.choice import choose
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.resolved_issuer import ResolvedIssuer, Wait
from certwright.controllers.acme.solver_lookup import SolverLookup
from certwright.controllers.acme.solver_use import missing_listener
from certwright.kube.api.meta import ObjectKey
from certwright.resources.order import Order
from certwright.resources.solver import CHALLENGE_TYPES

if TYPE_CHECKING:
    from certwright.acme.protocol.problem import Identifier

_RETRY: Final = timedelta(minutes=1)
# An Order whose preflight takes longer leaves its worker, and is enqueued when the result exists.
_PATIENCE_S: Final = 0.5
_TAKES_S: Final = 30.0
_MOST_SHOWN: Final = 3
# Names in parallel: each may take a few DNS queries.
_AT_ONCE: Final = 20

_WILDCARD_TYPES: Final = frozenset({"DNS-01", "DNS-ACCOUNT-01", "DNS-PERSIST-01"})
_ADDRESS_TYPES: Final = frozenset({"HTTP-01", "TLS-ALPN-01"})
# Whether a CA offers the other types is known only when it has accepted the order.
_OFFERED_BY_ALL: Final = frozenset({"HTTP-01", "DNS-01"})


@dataclass(frozen=True, slots=True)
class _Problem:
    """Why a name cannot be served; a retry before `not_before` is useless."""

    why: str
    not_before: datetime | None = None


class Preflight:
    """Preflights run beside the workers, one for each Order; `wake` enqueues an Order whose preflight has
    ended after its worker stopped waiting."""

    def __init__(
        self,
        lookup: SolverLookup,
        options: AcmeOptions,
        wake: Callable[[ObjectKey], None],
        now: Callable[[], datetime],
    ) -> None:
        self._lookup = lookup
        self._options = options
        self._wake = wake
        self._now = now
        self._running: dict[ObjectKey, asyncio.Task[Wait | None]] = {}

    @property
    def idle(self) -> bool:
        """Whether no preflight runs."""
        return all(task.done() for task in self._running.values())

    async def close(self) -> None:
        """Cancel all preflights."""
        tasks = list(self._running.values())
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, key: ObjectKey) -> None:
        """Cancel the preflight of an Order that has ended."""
        if (task := self._running.pop(key, None)) is not None:
            task.cancel()

    async def admit(self, order: Order, issuer: ResolvedIssuer) -> Wait | None:
        """None: nothing is known that would prevent the proof of a name. Otherwise why the order is not
        placed, and until when."""
        key = order.metadata.key
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.create_task(
                self._check(order, issuer), name=f"preflight {key}"
            )
            await asyncio.wait({task}, timeout=_PATIENCE_S)
            if not task.done():
                task.add_done_callback(lambda ended: None if ended.cancelled() else self._wake(key))
        if not task.done():
            return Wait("checking the solvers of its names", is_brief=True)
        self._running.pop(key, None)
        return task.result()

    async def _check(self, order: Order, issuer: ResolvedIssuer) -> Wait | None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def problem(identifier: Identifier) -> tuple[str, _Problem | None]:
            async with gate:
                return identifier.value, await self._problem(order, issuer, identifier)

        try:
            async with asyncio.timeout(_TAKES_S):
                found = await asyncio.gather(*map(problem, order_requests.identifiers_of(order.spec)))
        except TimeoutError:
            return self._wait(f"the solvers of its names could not be checked within {_TAKES_S:g} s", [])
        problems = [(name, one) for name, one in found if one is not None]
        if not problems:
            return None
        return self._wait(_summary(problems), [one.not_before for _, one in problems if one.not_before])

    def _wait(self, why: str, moments: Sequence[datetime]) -> Wait:
        until = max([self._now() + _RETRY, *moments])
        text = f"not ordered yet: {why}; checked again {announcing.within(_RETRY)}"
        return Wait(text, until, names_time=True)

    async def _problem(self, order: Order, issuer: ResolvedIssuer, identifier: Identifier) -> _Problem | None:
        name, is_address = identifier.value, identifier.type == "ip"
        offered = _offered(name, is_address=is_address)
        find = partial(choose, issuer.spec.solvers, name=name, labels=order.metadata.labels)
        solver = find(offered=offered)
        # A CA that does not offer the other types makes another solver take their place.
        if solver is None or find(offered=offered & _OFFERED_BY_ALL) not in (solver, None):
            return None
        if why := missing_listener(solver, self._options):
            return _Problem(why)
        if solver.dns01 is None and solver.dns_persist01 is None:
            return None
        task = Task(
            type=solver.challenge_type.lower(),
            identifier=name.removeprefix("*."),
            wildcard=name.startswith("*."),
            token="",
            key="",
            uid=order.metadata.uid,
        )
        try:
            means = await self._lookup.make(self._lookup.use(solver, order.spec.issuer_ref, order.metadata))
            task = await with_account(task, issuer)
            if isinstance(means.solver, Verifiable):
                await means.solver.verify_name(task)
        except SolverError as error:
            return _Problem(str(error), error.not_before)
        except AcmeError:
            # The order itself reports it.
            return None
        if solver.dns_persist01 is None or solver.wait_instead_of_self_check is not None:
            return None
        return await _unseen(means.check, task)


def _summary(problems: Sequence[tuple[str, _Problem]]) -> str:
    """The problems, each with its names."""
    names_by_reason: dict[str, list[str]] = {}
    for name, problem in problems:
        names_by_reason.setdefault(problem.why, []).append(name)
    return "; ".join(f"{_shown(names)}: {why}" for why, names in names_by_reason.items())


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _offered(name: str, *, is_address: bool) -> frozenset[str]:
    """The types of challenge that a CA may offer for a name."""
    if is_address:
        return _ADDRESS_TYPES
    return _WILDCARD_TYPES if name.startswith("*.") else frozenset(CHALLENGE_TYPES)


async def _unseen(check: Check | None, task: Task) -> _Problem | None:
    found = await check.check(task) if check is not None else None
    return _Problem(found.reason) if isinstance(found, NotYet) else None
