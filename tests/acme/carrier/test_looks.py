"""Looks for proofs that a child makes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from certwright.acme.carrier.choice import Transports
from certwright.acme.carrier.frames import Look, Seen, encode, orders, results
from certwright.acme.protocol.challenges import HTTP_01
from certwright.acme.solvers.contract import Check, Looking, NotYet, Ready, Task
from certwright.acme.solvers.http01 import Responder

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
async def transports() -> AsyncIterator[Transports]:
    made = Transports(user_agent="test", now=lambda: datetime.now(UTC), apart=True)
    yield made
    await made.close()


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


async def test_without_a_child_this_process_looks() -> None:
    inside = Inside()
    alone = Transports(user_agent="test", now=lambda: datetime.now(UTC), apart=False)
    assert alone.check(Looking(type=HTTP_01), lambda: inside) is inside


def test_looks_cross_the_socket_unchanged() -> None:
    look = Look(7, Looking(type="dns-01", servers=("192.0.2.1:53",), recursive_only=True), TASK)
    assert list(orders().feed(encode(look))) == [look]
    seen = Seen(7, "not yet", 3.0)
    assert list(results().feed(encode(seen))) == [seen]
