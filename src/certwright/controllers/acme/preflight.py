"""Checks of solvers before an order: when an issuer is checked, and before each order (the preflight).

A new order counts against the CA's limits, so a hopeless order is not placed: its solver has no credentials,
or the account at the DNS provider has no zone for the name. Facts that only the CA's authorizations show are
left to the Challenges.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from certwright.acme.protocol.errors import AcmeError
from certwright.acme.solvers.contract import NotYet, SolverError, Task, Verifiable
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected
from certwright.controllers.acme import order_requests, waits
from certwright.controllers.acme.challenge_progress import SolverUse, with_account
from certwright.controllers.acme.clients import ResolvedIssuer
from certwright.controllers.acme.options import AcmeOptions, missing_listener
from certwright.controllers.acme.order_challenges import choose
from certwright.controllers.acme.solver_lookup import SolverLookup
from certwright.controllers.acme.waits import Wait
from certwright.issuers.contract import GetSecret, IssuerView, SolverProblem
from certwright.kube.api.meta import ObjectKey
from certwright.resources.acme import Order
from certwright.resources.solver import CHALLENGE_TYPES, Solver

_RETRY: Final = timedelta(minutes=1)
# An Order that waits for the CA's limits is enqueued often.
_PASSED_FOR: Final = timedelta(minutes=1)
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


class _Problem(msgspec.Struct, frozen=True):
    """Why a name cannot be served; a retry before `not_before` is useless."""

    name: str
    why: str
    not_before: datetime | None = None


class Preflight:
    """The preflights of Orders. A preflight that sends requests runs beside the workers; `wake` enqueues its
    Order if it ends after the worker has stopped waiting."""

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
        self._running: dict[ObjectKey, asyncio.Task[list[_Problem]]] = {}
        self._passed: dict[ObjectKey, datetime] = {}

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
        self._passed.pop(key, None)
        if (task := self._running.pop(key, None)) is not None:
            task.cancel()

    async def admit(self, order: Order, issuer: ResolvedIssuer) -> Wait | None:
        """None: nothing is known that would prevent the proof of a name. Otherwise why the order is not
        placed, and until when."""
        chosen = _expected_solvers(order, issuer)
        missing = ((name, missing_listener(solver, self._options)) for name, solver in chosen)
        if problems := [_Problem(name, why) for name, why in missing if why]:
            return self._wait(problems)
        chosen = [(name, solver) for name, solver in chosen if solver.dns01 or solver.dns_persist01]
        key = order.metadata.key
        passed = self._passed.get(key)
        if not chosen or (passed is not None and self._now() - passed < _PASSED_FOR):
            return None
        task = await self._run(key, partial(self._check, order, issuer, chosen))
        if not task.done():
            return Wait("checking the solvers of its names", is_brief=True)
        self._running.pop(key, None)
        if problems := task.result():
            return self._wait(problems)
        self._passed[key] = self._now()
        return None

    async def _run(
        self, key: ObjectKey, check: Callable[[], Coroutine[None, None, list[_Problem]]]
    ) -> asyncio.Task[list[_Problem]]:
        """The preflight of the Order, ended or not."""
        if (task := self._running.get(key)) is not None:
            return task
        task = self._running[key] = asyncio.create_task(check(), name=f"preflight {key}")
        await asyncio.wait({task}, timeout=_PATIENCE_S)
        if not task.done():
            task.add_done_callback(lambda ended: None if ended.cancelled() else self._wake(key))
        return task

    def _wait(self, problems: Sequence[_Problem]) -> Wait:
        moments = [problem.not_before for problem in problems if problem.not_before is not None]
        names: dict[str, list[str]] = {}
        for problem in problems:
            names.setdefault(problem.why, []).append(problem.name)
        parts = []
        for why, alike in names.items():
            more = len(alike) - _MOST_SHOWN
            shown = ", ".join(alike[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")
            parts.append(f"{shown}: {why}")
        text = f"not ordered yet: {'; '.join(parts)}; checked again {waits.within(_RETRY)}"
        return Wait(text, max([self._now() + _RETRY, *moments]), names_time=True)

    async def _check(
        self, order: Order, issuer: ResolvedIssuer, chosen: Sequence[tuple[str, Solver]]
    ) -> list[_Problem]:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def problem_of(name: str, solver: Solver) -> _Problem | None:
            async with gate:
                return await self._problem(order, issuer, name, solver)

        try:
            async with asyncio.timeout(_TAKES_S):
                problems = await asyncio.gather(*(problem_of(name, solver) for name, solver in chosen))
        except TimeoutError:
            why = f"the DNS provider did not answer within {_TAKES_S:g} s"
            return [_Problem(name, why) for name, _ in chosen]
        return [problem for problem in problems if problem is not None]

    async def _problem(
        self, order: Order, issuer: ResolvedIssuer, name: str, solver: Solver
    ) -> _Problem | None:
        task = Task(
            type=solver.challenge_type.lower(),
            identifier=name.removeprefix("*."),
            wildcard=name.startswith("*."),
            token="",
            key="",
            uid=order.metadata.uid,
        )
        try:
            use = self._lookup.use(solver, order.spec.issuer_ref, order.metadata)
            instance, check = await self._lookup.make(use)
            task = await with_account(task, issuer)
            if isinstance(instance, Verifiable):
                await instance.verify_name(task)
        except SolverError as error:
            return _Problem(name, str(error), error.not_before)
        except AcmeError:
            # The order itself reports it.
            return None
        if solver.dns_persist01 is None or solver.wait_instead_of_self_check is not None:
            return None
        outcome = await check.check(task) if check is not None else None
        return _Problem(name, outcome.reason) if isinstance(outcome, NotYet) else None


def _expected_solvers(order: Order, issuer: ResolvedIssuer) -> list[tuple[str, Solver]]:
    """The names of the Order with the solvers that they certainly get."""
    chosen: list[tuple[str, Solver]] = []
    for identifier in order_requests.identifiers_of(order.spec):
        name, offered = identifier.value, offered_types(identifier.value, is_address=identifier.type == "ip")
        find = partial(choose, issuer.spec.solvers, name=name, labels=order.metadata.labels)
        solver = find(offered=offered)
        # A CA that does not offer the other types makes another solver take their place.
        if solver is not None and find(offered=offered & _OFFERED_BY_ALL) in (solver, None):
            chosen.append((name, solver))
    return chosen


def offered_types(name: str, *, is_address: bool) -> frozenset[str]:
    """The types of challenge that a CA may offer for a name."""
    if is_address:
        return _ADDRESS_TYPES
    return _WILDCARD_TYPES if name.startswith("*.") else frozenset(CHALLENGE_TYPES)


_VERIFICATION_TAKES_S: Final = 10.0
_VERIFICATION_RETRY: Final = timedelta(minutes=1)
# The Secret may stay as it is while the provider accepts the credentials again.
_RETRY_REJECTED: Final = timedelta(minutes=10)


class SolverVerification:
    """Verifies the solvers of an issuer: Secrets, credentials, listeners. Those of `lookup` share connections
    and cached answers with challenges."""

    def __init__(self, lookup: SolverLookup, options: AcmeOptions, now: Callable[[], datetime]) -> None:
        self._lookup = lookup
        self._options = options
        self._now = now

    async def problems(
        self, issuer: IssuerView, get_secret: GetSecret, secrets_in: str
    ) -> tuple[SolverProblem, ...]:
        """What is known to be wrong with the solvers of an ACME issuer, in their order."""
        spec = issuer.spec.acme
        assert spec is not None
        uses = [
            SolverUse(solver=solver, issuer_kind=issuer.kind, get_secret=get_secret, secrets_in=secrets_in)
            for solver in spec.solvers
        ]
        paths = (f"spec.acme.solvers[{number}]" for number in range(len(uses)))
        problems = await asyncio.gather(*map(self._problem, paths, uses))
        return tuple(problem for problem in problems if problem is not None)

    async def _problem(self, path: str, use: SolverUse) -> SolverProblem | None:
        if why := missing_listener(use.solver, self._options):
            return SolverProblem(path, why)
        exec_ = use.solver.exec
        command = self._options.policy.command_of(exec_.command) if exec_ is not None else None
        if command is not None and not os.access(command[0], os.X_OK):
            return SolverProblem(path, f"the program {command[0]} does not exist or is not executable")
        if use.solver.dns01 is None:
            return None
        try:
            solver, _ = await self._lookup.make(use)
        except SolverError as error:
            return SolverProblem(path, str(error))
        if not isinstance(solver, Verifiable):
            return None
        try:
            async with asyncio.timeout(_VERIFICATION_TAKES_S):
                await solver.verify()
        except CredentialsRejected as error:
            return SolverProblem(path, str(error), retry_at=self._now() + _RETRY_REJECTED)
        except SolverError as error:
            retry_at = max(self._now() + _VERIFICATION_RETRY, error.not_before or self._now())
            return SolverProblem(path, str(error), retry_at=retry_at, is_certain=False)
        except TimeoutError:
            why = f"the DNS provider did not answer within {_VERIFICATION_TAKES_S:g} s"
            return SolverProblem(path, why, retry_at=self._now() + _VERIFICATION_RETRY, is_certain=False)
        return None
