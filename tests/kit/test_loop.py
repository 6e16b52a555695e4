"""The event loop that a process runs on, and one beside it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import pytest
import trustme

from certwright.acme.solvers.side_listener import SideLoop
from certwright.kit import event_loop
from certwright.kube.client.dial import dial, endpoint
from support.waiting import until

CA = trustme.CA()


async def _loops_module() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_it_is_uvloop_where_that_is_installed() -> None:
    pytest.importorskip("uvloop")
    assert event_loop.run(_loops_module()) == "uvloop"


def test_it_is_pythons_own_where_that_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert event_loop.run(_loops_module()) == "asyncio"


class HandshakeServer:
    """Answers TLS handshakes in a thread, so also while the caller's loop is busy. `answered` is set when the
    client has what completes its handshake."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CA.issue_cert("127.0.0.1").configure_cert(self._context)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> HandshakeServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                with self._listener.accept()[0] as connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.recv(1, socket.MSG_PEEK)
            connection.settimeout(0)
            tls = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            with tls:
                with contextlib.suppress(ssl.SSLWantReadError):
                    tls.do_handshake()
                self.answered.set()
                tls.settimeout(1)
                tls.do_handshake()
                tls.recv(1)


async def cancel_in_each_turn(
    connect: Callable[[], Awaitable[object]], server: HandshakeServer, turns: range
) -> None:
    """Cancel connecting in different turns of the loop, at the moment when the server has answered."""
    for turn in turns:
        server.answered.clear()
        task = asyncio.ensure_future(connect())
        for _ in range(turn):
            time.sleep(0.002)  # noqa: ASYNC251
            await asyncio.sleep(0)
        server.answered.wait(0.1)
        task.cancel()
        await asyncio.wait([task])
        for _ in range(5):
            await asyncio.sleep(0)
    # On a busy machine a transport of a cancelled handshake closes later, and uvloop must not end before.
    await asyncio.sleep(0.5)


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


def test_a_cancelled_connection_to_an_api_server_leaves_no_error_of_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    uvloop = pytest.importorskip("uvloop")
    with HandshakeServer() as server:
        place, tls = endpoint(f"https://127.0.0.1:{server.port}"), trusting()

        async def connect() -> None:
            connection = await dial(place, tls=tls)
            connection.abort()

        # Without our exception handler.
        uvloop.run(cancel_in_each_turn(connect, server, range(12)))
    assert caplog.records == []


def test_a_cancelled_request_of_aiohttp_leaves_no_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("uvloop")

    with HandshakeServer() as server:
        url, tls = f"https://127.0.0.1:{server.port}", trusting()

        async def get() -> None:
            async with aiohttp.ClientSession() as session, session.get(url, ssl=tls):
                pass

        event_loop.run(cancel_in_each_turn(get, server, range(20)))
    assert caplog.records == []


def test_other_errors_of_the_loop_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for message, error in (
            ("Fatal error on SSL protocol", RuntimeError("unable to perform; the handler is closed")),
            ("Fatal error on SSL protocol", RuntimeError("something else")),
            ("Fatal error on SSL protocol", ValueError("the handler is closed")),
            ("Task exception was never retrieved", RuntimeError("the handler is closed")),
        ):
            loop.call_exception_handler({"message": message, "exception": error})
        loop.call_exception_handler({"message": "Unclosed connection"})

    event_loop.run(main())
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("asyncio", "ERROR", "Fatal error on SSL protocol"),
        ("asyncio", "ERROR", "Fatal error on SSL protocol"),
        ("asyncio", "ERROR", "Task exception was never retrieved"),
        ("asyncio", "ERROR", "Unclosed connection"),
    ]


@pytest.fixture
def beside() -> Iterator[SideLoop]:
    """One that is closed after the test."""
    made = SideLoop("beside")
    yield made
    made.close()


async def where() -> tuple[str, asyncio.AbstractEventLoop]:
    return threading.current_thread().name, asyncio.get_running_loop()


async def test_work_runs_in_a_thread_of_its_own(beside: SideLoop) -> None:
    (first, loop), (second, same) = await beside.run(where()), await beside.run(where())
    assert first == second == "beside"
    assert loop is same is not asyncio.get_running_loop()


async def test_work_goes_on_while_the_program_is_busy(beside: SideLoop) -> None:
    done = threading.Event()

    async def work() -> None:
        await asyncio.sleep(0.01)
        done.set()

    waiting = asyncio.create_task(beside.run(work()))
    await asyncio.sleep(0)
    # The loop of the test stands still here.
    assert done.wait(timeout=60)
    await waiting


async def test_what_the_work_raises_is_raised(beside: SideLoop) -> None:
    async def work() -> None:
        raise OSError("taken")

    with pytest.raises(OSError, match="taken"):
        await beside.run(work())


async def test_the_thread_ends_when_it_is_closed() -> None:
    beside = SideLoop("ends soon")
    await beside.run(where())
    beside.close()
    beside.close()
    await until(lambda: all(thread.name != "ends soon" for thread in threading.enumerate()))


async def test_what_still_runs_is_cancelled_when_it_is_closed() -> None:
    beside, ended, kept = SideLoop("beside"), threading.Event(), list[asyncio.Task[None]]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def begin() -> None:
        kept.append(asyncio.create_task(work()))
        await asyncio.sleep(0)

    await beside.run(begin())
    beside.close()
    await until(ended.is_set)
