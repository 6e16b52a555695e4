"""Dynamic updates (RFC 2136) on PowerDNS and Knot; `test_dns01.py` has those on BIND."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from certwright.acme.solvers import names
from certwright.acme.solvers.checks import DnsCheck
from certwright.acme.solvers.contract import Ready, SolverError, Task
from certwright.acme.solvers.dns01.rfc2136 import Rfc2136, tsig_key
from certwright.acme.solvers.names import NameServers
from certwright.kube.util.clock import SystemClock
from conformance.check_solver import check_solver
from support.bind import running_knot
from support.dns.powerdns import TSIG_SECRET, running_powerdns

TASK = Task(type="dns-01", identifier="a.example.org", token="t", key="value", uid="u")


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than name servers are given."""
    monkeypatch.setattr(names, "_TIMEOUT_S", 60.0)


@pytest.fixture(scope="module", params=["knot", "powerdns"])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    running = running_knot() if request.param == "knot" else running_powerdns()
    with running as server:
        yield server.port


def names_of(port: int) -> NameServers:
    return NameServers([f"127.0.0.1:{port}"], authority_port=port)


def solver_of(
    port: int, secret: str = TSIG_SECRET, *, name: str = "certwright", tcp: bool = False
) -> Rfc2136:
    key = tsig_key(name, secret, "HMACSHA256")
    return Rfc2136(("127.0.0.1", port), names_of(port), key=key, tcp=tcp)


async def values_at(port: int, task: Task) -> set[str]:
    return set((await names_of(port).txt(f"_acme-challenge.{task.identifier}")).values)


@pytest.mark.parametrize("tcp", [False, True], ids=["UDP", "TCP"])
async def test_updates_are_a_solver(port: int, tcp: bool) -> None:
    await check_solver(solver_of(port, tcp=tcp), lambda task: values_at(port, task), TASK)


async def test_many_certificates_share_a_name(port: int) -> None:
    solver = solver_of(port)
    tasks = [replace(TASK, key=f"v{number}", uid=str(number)) for number in range(20)]
    await asyncio.gather(*(solver.present(task) for task in tasks))
    assert await values_at(port, TASK) == {task.key for task in tasks}
    assert await DnsCheck(names_of(port), SystemClock().now).check(tasks[7]) == Ready()
    await asyncio.gather(*(solver.clean_up(task) for task in tasks))
    assert await values_at(port, TASK) == set()


@pytest.mark.parametrize(
    ("name", "secret"),
    [("certwright", "QUJDRA=="), ("unknown", TSIG_SECRET)],
    ids=["wrong secret", "unknown key"],
)
async def test_a_wrong_key_is_refused(port: int, name: str, secret: str) -> None:
    with pytest.raises(SolverError, match=f"127.0.0.1:{port} .*(TSIG|NOTAUTH|REFUSED)"):
        await solver_of(port, secret, name=name).present(TASK)
    assert await values_at(port, TASK) == set()


async def test_a_zone_that_the_server_does_not_have(port: int) -> None:
    with pytest.raises(SolverError):
        await solver_of(port).present(replace(TASK, identifier="a.elsewhere.test"))
