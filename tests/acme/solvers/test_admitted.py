"""Limits on the connections of the listeners for CAs: silent clients neither keep a CA out nor take all
files."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable
from contextlib import suppress

import pytest

from acme.solvers.test_http01 import TASK, page_at
from acme.solvers.test_tlsalpn01 import first_message
from certwright.acme.solvers import admitted
from certwright.acme.solvers.admitted import Admissions, Limits
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.tlsalpn01 import Listener


def closers(admissions: Admissions, *addresses: str) -> list[str]:
    """Admit connections from these addresses, in turn; which of them were closed for others."""
    closed: list[str] = []
    for number, address in enumerate(addresses):
        admissions.admit(address, lambda name=f"{address}-{number}": closed.append(name))  # type: ignore[misc]
    return closed


async def close_all(writers: Iterable[asyncio.StreamWriter]) -> None:
    """Close connections, some of which the peer has closed."""
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def test_a_new_connection_displaces_the_oldest_of_the_address_with_the_most() -> None:
    admissions = Admissions(lambda: Limits(pending=3, passed_on=1))
    assert closers(admissions, "ca", "x", "x", "x", "ca", "x") == ["x-1", "x-2", "ca-0"]
    assert admissions.displaced == 3


def test_released_connections_do_not_count() -> None:
    admissions = Admissions(lambda: Limits(pending=1, passed_on=1))
    first = admissions.admit("a", lambda: pytest.fail("it has ended"))
    first.release()
    first.release()
    admissions.admit("a", lambda: None)
    assert admissions.displaced == 0


def test_connections_passed_on_are_limited_and_keep_no_pending_one_out() -> None:
    admissions = Admissions(lambda: Limits(pending=1, passed_on=1))
    first = admissions.admit("a", lambda: None)
    assert first.pass_on()
    second = admissions.admit("a", lambda: None)
    assert not second.pass_on()
    first.release()
    assert admissions.admit("a", lambda: None).pass_on()
    assert admissions.displaced == 0


def test_the_limits_leave_most_files_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for files in (256, 1024, 8192, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=files: (limit, limit))
        limits = admitted.limits_within_files()
        assert limits.pending + 2 * limits.passed_on <= (files if files > 0 else 1 << 20) / 2
        assert limits.pending <= 512


async def test_silent_clients_do_not_keep_a_ca_out() -> None:
    responder = Responder(Admissions(lambda: Limits(pending=2, passed_on=1)))
    port = await responder.listen("127.0.0.1", 0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    try:
        await responder.present(TASK)
        assert await page_at(port)(TASK) == {TASK.key}
        # The first two were closed for the third, and for the CA's.
        async with asyncio.timeout(60):
            for reader, _ in silent[:2]:
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await reader.readexactly(1)
    finally:
        await close_all(writer for _, writer in silent)
        await responder.close()


async def test_more_connections_than_may_be_passed_on_are_closed() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await close_all([writer])

    backend = await asyncio.start_server(greet, "127.0.0.1", 0)
    where = ("127.0.0.1", int(backend.sockets[0].getsockname()[1]))
    listener = Listener(backend=where, admissions=Admissions(lambda: Limits(pending=5, passed_on=1)))
    port = await listener.listen("127.0.0.1", 0)
    writers = []
    try:
        received = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(first_message("web.example.org"))
            async with asyncio.timeout(60):
                received.append(await reader.read(5))
        assert received == [b"hello", b""]
    finally:
        await close_all(writers)
        await listener.close()
        backend.close()
        await backend.wait_closed()
