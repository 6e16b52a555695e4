"""examples/acme-sh: scripts of acme.sh as programs of an `exec` solver, against a real PowerDNS."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from certwright.acme.solvers.contract import SolverError, Task
from certwright.acme.solvers.program import Program
from conformance.check_dns_host import task
from conformance.check_solver import check_solver
from support.dns.powerdns import KEY, PowerDnsServer, running_powerdns, served
from support.real import require

ROOT = Path(__file__).parents[3]
WRAPPER = str(ROOT / "examples" / "acme-sh" / "certwright-acme-sh")
HOME = ROOT / "tests" / "support" / "dns" / "acme_sh"


@pytest.fixture(scope="module")
def server() -> Iterator[PowerDnsServer]:
    require("curl")
    require("flock")
    with running_powerdns() as running:
        yield running


def program(server: PowerDnsServer, tmp_path: Path, *, script: str = "small", key: str = KEY) -> Program:
    variables = {"SMALL_Url": server.url, "SMALL_Token": key}
    home = {"ACME_SH_HOME": str(HOME), "TMPDIR": str(tmp_path)}
    return Program([WRAPPER, script], environment={**home, **variables})


async def test_a_script_is_a_solver(server: PowerDnsServer, tmp_path: Path) -> None:
    async def see(dns_task: Task) -> set[str]:
        return served(server, f"_acme-challenge.{dns_task.identifier}")

    await check_solver(program(server, tmp_path), see, task("a.example.org", "value"))
    assert not os.listdir(tmp_path), "what the script has saved is left behind"


async def test_concurrent_runs_lose_no_value(server: PowerDnsServer, tmp_path: Path) -> None:
    tasks = [task("many.example.org", f"v{number}") for number in range(4)]
    solver = program(server, tmp_path)
    await asyncio.gather(*(solver.present(dns_task) for dns_task in tasks))
    assert served(server, "_acme-challenge.many.example.org") == {dns_task.key for dns_task in tasks}
    await asyncio.gather(*(solver.clean_up(dns_task) for dns_task in tasks))
    assert served(server, "_acme-challenge.many.example.org") == set()


async def test_a_failure_of_the_script_is_the_reason(server: PowerDnsServer, tmp_path: Path) -> None:
    with pytest.raises(SolverError, match=r"status 1: PowerDNS answered with status 401$"):
        await program(server, tmp_path, key="wrong").present(task("a.example.org", "value"))
    with pytest.raises(SolverError, match=r"dns_none\.sh: No such file"):
        await program(server, tmp_path, script="none").present(task("a.example.org", "value"))
