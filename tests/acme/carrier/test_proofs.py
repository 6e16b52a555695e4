"""A child's work with proofs: it looks for them, and writes TXT records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from acme.carrier.children import READS_FOR_EVER, that_does
from acme.carrier.conftest import TXT, MakeChild, no_solver_here, updating
from certwright.acme.carrier.check import CarriedCheck
from certwright.acme.carrier.choice import Transports
from certwright.acme.carrier.frames import Look, Seen, Show, encode, orders, results
from certwright.acme.carrier.solver import CarriedSolver
from certwright.acme.protocol.challenges import HTTP_01
from certwright.acme.solvers.contract import (
    Check,
    Looking,
    NotYet,
    Ready,
    SolverError,
    Task,
    Updating,
)
from certwright.acme.solvers.dns01.rfc2136 import make_updater
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.names import NameServers
from support.bind import Bind

TASK = Task(type=HTTP_01, identifier="127.0.0.1", token="abc", key="abc.print", uid="u1")


class Inside:
    """A check that this process makes."""

    def __init__(self) -> None:
        self.looks = 0

    async def check(self, task: Task) -> Ready | NotYet:
        """See `Check`."""
        self.looks += 1
        return Ready()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Where the proof of `TASK` is shown."""
    responder = Responder()
    found = await responder.listen("127.0.0.1", 0)
    await responder.present(TASK)
    yield found
    await responder.close()


def not_here() -> Check:
    """What must not be asked for."""
    raise AssertionError("this process looks itself")


async def test_the_child_sees_a_proof(transports: Transports, port: int) -> None:
    check = transports.check(Looking(type=HTTP_01, port=port), not_here)
    assert await check.check(TASK) == Ready()


async def test_the_child_tells_what_it_sees_instead(transports: Transports, port: int) -> None:
    other = Task(type=HTTP_01, identifier="127.0.0.1", token="other", key="other.print", uid="u2")
    found = await transports.check(Looking(type=HTTP_01, port=port), not_here).check(other)
    assert isinstance(found, NotYet)
    assert "answered HTTP status 404 instead of 200" in found.reason


async def test_a_name_server_that_is_none_is_told(transports: Transports) -> None:
    found = await transports.check(Looking(type="dns-01", servers=("a:b",)), not_here).check(TASK)
    assert isinstance(found, NotYet)
    assert '"a:b" is not a name server' in found.reason


async def test_this_process_looks_where_no_child_can(transports: Transports, port: int) -> None:
    inside = Inside()
    check = transports.check(Looking(type=HTTP_01, port=port), lambda: inside)
    await transports.close()
    assert (await check.check(TASK), inside.looks) == (Ready(), 1)


async def test_what_a_child_dies_of_this_process_does(port: int, bind: Bind, make_child: MakeChild) -> None:
    child, inside = make_child(that_does("end.recv(1)")), Inside()
    assert await CarriedCheck(child, Looking(type=HTTP_01, port=port), lambda: inside).check(TASK) == Ready()
    assert inside.looks == 1
    asked, names = updating(bind), NameServers((bind.address,), authority_port=bind.port)
    solver = CarriedSolver(child, asked, lambda: make_updater(asked, names))
    await solver.present(TXT)
    assert TXT.key in (await names.txt("_acme-challenge.web.example.org")).values
    await solver.clean_up(TXT)


async def test_what_a_child_does_not_come_to_an_end_with_is_told(make_child: MakeChild) -> None:
    child = make_child(that_does(READS_FOR_EVER), proof_s=0.5)
    found = await CarriedCheck(child, Looking(type=HTTP_01), not_here).check(TASK)
    assert found == NotYet("127.0.0.1 could not be looked at within 0.5 s")
    solver = CarriedSolver(child, Updating(server=("192.0.2.1", 53)), no_solver_here)
    with pytest.raises(SolverError, match=r"192\.0\.2\.1:53 could not be asked within 0.5 s"):
        await solver.present(TXT)


async def test_without_a_child_this_process_looks() -> None:
    inside = Inside()
    alone = Transports(user_agent="test", now=lambda: datetime.now(UTC), apart=False)
    assert alone.check(Looking(type=HTTP_01), lambda: inside) is inside


async def test_the_child_writes_a_record_and_takes_it_away(transports: Transports, bind: Bind) -> None:
    solver = transports.solver(updating(bind), no_solver_here)
    looking = Looking(type="dns-01", servers=(bind.address,), authority_port=bind.port)
    check = transports.check(looking, not_here)
    await solver.present(TXT)
    assert await check.check(TXT) == Ready()
    await solver.clean_up(TXT)
    assert isinstance(await check.check(TXT), NotYet)


async def test_what_a_server_refuses_is_told_as_by_this_process(transports: Transports, bind: Bind) -> None:
    asked = updating(bind, secret=bind.secrets["hmacsha512"])
    with pytest.raises(SolverError) as inside:
        await make_updater(asked, NameServers(asked.servers)).present(TXT)
    with pytest.raises(SolverError) as carried:
        await transports.solver(asked, no_solver_here).present(TXT)
    assert str(carried.value) == str(inside.value)


async def test_this_process_writes_where_no_child_can(transports: Transports, bind: Bind) -> None:
    asked, names = updating(bind), NameServers((bind.address,), authority_port=bind.port)
    solver = transports.solver(asked, lambda: make_updater(asked, names))
    await transports.close()
    await solver.present(TXT)
    assert TXT.key in (await names.txt("_acme-challenge.web.example.org")).values
    await solver.clean_up(TXT)


def test_proofs_cross_the_socket_unchanged() -> None:
    show = Show(8, Updating(server=("192.0.2.1", 53), tsig=("a", "b", "c"), follow=True), TXT, away=True)
    assert list(orders().feed(encode(show))) == [show]
    look = Look(7, Looking(type="dns-01", servers=("192.0.2.1:53",), recursive_only=True), TASK)
    assert list(orders().feed(encode(look))) == [look]
    seen = Seen(7, "not yet", 3.0)
    assert list(results().feed(encode(seen))) == [seen]
