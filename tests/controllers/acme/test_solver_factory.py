"""Which solver and which self-check a challenge gets, by its solver and the flags."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
import pytest

from certwright.acme.solvers.contract import Check, CheckSettings, NotYet, Ready, SolverError, Task
from certwright.acme.solvers.dns01.hosts.contract import Outside
from certwright.acme.solvers.dns01.hosts.session import HostSessions
from certwright.controllers.acme import solver_factory
from certwright.controllers.acme.challenge_work import SolverUse
from certwright.kit.outgoing import HttpClient, ServerRules
from certwright.resources.solver import Solver


class NoCheck:
    """A self-check that is never made."""

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        raise AssertionError(task)


async def check_of(solver: object) -> CheckSettings:
    """The settings of its self-check, with `--dns01-recursive-nameservers=192.0.2.1:53`."""
    made: list[CheckSettings] = []

    def make_check(settings: CheckSettings) -> Check:
        made.append(settings)
        return NoCheck()

    def no_client(_rules: ServerRules) -> HttpClient:
        raise AssertionError("no DNS host is asked")

    async def no_secret(_name: str) -> Mapping[str, bytes] | None:
        return None

    spec = msgspec.convert(solver, Solver)
    use = SolverUse(solver=spec, issuer_kind="Issuer", get_secret=no_secret, secrets_in="default")
    surroundings = solver_factory.Surroundings(
        hosts=HostSessions(Outside(no_client, lambda: datetime.now(UTC))),
        now=lambda: datetime.now(UTC),
        dns_names=("192.0.2.1:53",),
        make_check=make_check,
    )
    await solver_factory.means_of(use, surroundings)
    (settings,) = made
    return settings


async def test_name_servers_of_a_solver_replace_those_of_the_flag_and_no_others_are_asked() -> None:
    update = {"nameserver": "192.0.2.9"}
    by_flag = await check_of({"dns01": {"rfc2136": update}})
    assert (by_flag.servers, by_flag.recursive_only) == (("192.0.2.1:53",), False)
    chosen = ["192.0.2.2:53", "[2001:db8::2]:53"]
    own = await check_of({"dns01": {"rfc2136": update, "nameservers": chosen}})
    assert (own.servers, own.recursive_only) == (tuple(chosen), True)


async def test_an_issuer_names_no_server_of_dns_over_https() -> None:
    spec = {"rfc2136": {"nameserver": "192.0.2.9"}, "nameservers": ["https://internal.example/dns-query"]}
    with pytest.raises(SolverError, match="only --dns01-recursive-nameservers may name"):
        await check_of({"dns01": spec})
