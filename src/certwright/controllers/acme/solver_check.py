"""End-to-end check of a solver for one name, without a CA: for `certwright check solver`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

import msgspec

from certwright.acme.protocol import challenges
from certwright.acme.protocol.challenges import PersistentRecord
from certwright.acme.solvers.contract import Check, NotYet, Ready, SolverError, Task, Verifiable
from certwright.controllers.acme.challenge_progress import SolverAndCheck, SolverUse
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.acme.order_challenges import choose
from certwright.controllers.acme.preflight import offered_types
from certwright.controllers.acme.solver_factory import Solvers
from certwright.controllers.servers import Servers
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import NotFound
from certwright.kube.client.rest import Client
from certwright.kube.util.clock import Clock
from certwright.kube.util.encoding import base64url
from certwright.pki import sans
from certwright.pki.errors import BadName
from certwright.resources.issuer import ClusterIssuer, Issuer
from certwright.resources.solver import DNS01Solver, Solver
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS

_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 5.0


class SolverCheckFailed(Exception):
    """The solver does not work for the name; the text is one sentence with the reason of the provider."""


class SolverCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A solver to check, and a name. `namespace`: of the Issuer, empty for a ClusterIssuer, whose Secrets are
    in `secrets_in`. `number` None: the solver of a certificate without labels. `patience`: how long to wait
    until the record or page is visible."""

    issuer: str
    namespace: str
    secrets_in: str
    name: str
    number: int | None = None
    patience: timedelta = timedelta(minutes=2)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of the check: `client` reads the issuer and its Secrets with the user's rights."""

    client: Client
    options: AcmeOptions
    clock: Clock
    user_agent: str
    report: Callable[[str, str], None]
    """Called with each step that has succeeded: a word and its result."""


async def check_solver(check: SolverCheck, environment: Environment) -> None:
    """Present and remove a challenge response for the name. Raises `SolverCheckFailed`, `ApiError`."""
    client, options = environment.client, environment.options
    issuer: Issuer | ClusterIssuer
    if check.namespace:
        issuer = await client.get(ISSUERS, check.issuer, check.namespace)
    else:
        issuer = await client.get(CLUSTER_ISSUERS, check.issuer)
    number, solver = _solver(issuer, check)
    kind = CLUSTER_ISSUERS.kind if not check.namespace else ISSUERS.kind
    words = f"{solver.challenge_type} by {_provider(solver)}"
    environment.report("solver", f'spec.acme.solvers[{number}] of {kind} "{check.issuer}": {words}')

    async def get_secret(name: str) -> Mapping[str, bytes] | None:
        try:
            return (await client.get(SECRETS, name, check.secrets_in)).data
        except NotFound:
            return None

    use = SolverUse(solver=solver, issuer_kind=kind, get_secret=get_secret, secrets_in=check.secrets_in)
    servers = Servers(client, user_agent=environment.user_agent, policy=options.policy)
    try:
        made = await Solvers(options, client, servers, environment.clock.now).make(use)
        await _run(made, _task(check, solver, issuer), check, environment)
    except SolverError as error:
        raise SolverCheckFailed(str(error)) from error
    finally:
        await servers.close()


async def _run(made: SolverAndCheck, task: Task, check: SolverCheck, environment: Environment) -> None:
    solver, self_check = made
    if isinstance(solver, Verifiable) and (zone := await solver.verify_name(task)):
        environment.report("zone", zone)
    if task.persistent is not None:
        await _wait_until_seen(self_check, task, check, environment)
        return
    began = environment.clock.monotonic()
    try:
        await solver.present(task)
        environment.report("added", f"{_what(task)} after {_seconds(environment, began)}")
        await _wait_until_seen(self_check, task, check, environment)
    except BaseException:
        # The first error is the one to report.
        with suppress(SolverError):
            await solver.clean_up(task)
        raise
    began = environment.clock.monotonic()
    await solver.clean_up(task)
    environment.report("removed", f"after {_seconds(environment, began)}")


async def _wait_until_seen(
    self_check: Check | None, task: Task, check: SolverCheck, environment: Environment
) -> None:
    if self_check is None:
        return
    clock, wait_s = environment.clock, _FIRST_WAIT_S
    began = clock.monotonic()
    while isinstance(outcome := await self_check.check(task), NotYet):
        left_s = check.patience.total_seconds() - (clock.monotonic() - began)
        if left_s <= 0 or task.persistent is not None:
            raise SolverCheckFailed(f"not seen after {_seconds(environment, began)}: {outcome.reason}")
        await clock.sleep(min(max(wait_s, outcome.not_before.total_seconds()), left_s))
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
    assert isinstance(outcome, Ready)
    environment.report("seen", f"after {_seconds(environment, began)}")


def _seconds(environment: Environment, began: float) -> str:
    return f"{environment.clock.monotonic() - began:.1f} s"


def _what(task: Task) -> str:
    match task.type:
        case challenges.DNS_01 | challenges.DNS_ACCOUNT_01:
            return f'{task.record} TXT "{task.key}"'
        case challenges.HTTP_01:
            return f"{challenges.WELL_KNOWN}{task.token}"
        case _:
            return f"the response for {task.identifier}"


def _solver(issuer: Issuer | ClusterIssuer, check: SolverCheck) -> tuple[int, Solver]:
    """The solver to check, and its number."""
    if issuer.spec.acme is None:
        raise SolverCheckFailed(f'issuer "{check.issuer}" is not an ACME issuer, so it has no solvers')
    solvers = issuer.spec.acme.solvers
    if check.number is not None:
        if check.number >= len(solvers):
            raise SolverCheckFailed(f"there is no spec.acme.solvers[{check.number}]; it has {len(solvers)}")
        return check.number, solvers[check.number]
    is_address = True
    try:
        sans.canonical_ip(check.name)
    except BadName:
        is_address = False
    offered = offered_types(check.name, is_address=is_address)
    solver = choose(solvers, name=check.name, labels={}, offered=offered)
    if solver is None:
        raise SolverCheckFailed(
            f"no solver of the issuer fits {check.name}; add one to spec.acme.solvers, widen its selector, "
            "or choose one that is for certificates with certain labels by --solver"
        )
    return solvers.index(solver), solver


def _provider(solver: Solver) -> str:
    match solver:
        case Solver(dns01=DNS01Solver() as dns01):
            fields = ("cname_strategy", "type", "nameservers")
            given = (name for name in dns01.__struct_fields__ if name not in fields and getattr(dns01, name))
            encoded = dict(zip(dns01.__struct_fields__, dns01.__struct_encode_fields__, strict=True))
            return next((encoded[name] for name in given), "no provider")
        case Solver(http01=http01) if http01 is not None:
            return "webroot" if http01.webroot is not None else "the listener of this command"
        case Solver(exec=exec_) if exec_ is not None:
            return exec_.command[0]
        case Solver(dns_persist01=persist) if persist is not None:
            return "a record that exists"
        case _:
            return "the listener of this command"


def _task(check: SolverCheck, solver: Solver, issuer: Issuer | ClusterIssuer) -> Task:
    """A task like that of a challenge, with a random response."""
    token, type_ = base64url(secrets.token_bytes(32)), solver.challenge_type.lower()
    authorization = f"{token}.{base64url(secrets.token_bytes(32))}"
    is_dns = type_ in (challenges.DNS_01, challenges.DNS_ACCOUNT_01)
    account = issuer.status.acme
    task = Task(
        type=type_,
        identifier=check.name.removeprefix("*."),
        wildcard=check.name.startswith("*."),
        token=token,
        key=challenges.dns_value(authorization) if is_dns else authorization,
        uid=f"check-{token[:12]}",
        account=account.uri if account is not None else "",
    )
    if solver.dns_persist01 is None:
        return task
    record = account.persistent_record if account is not None else None
    if account is None or record is None:
        raise SolverCheckFailed(
            "status.acme.persistentRecord of the issuer is empty: its account has not been registered yet"
        )
    return replace(task, persistent=PersistentRecord(record.issuer_domain_names, account.uri))
