"""HTTP-01: the responder, and the check that looks as a CA does."""

from __future__ import annotations

import asyncio
import dataclasses
import resource
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress

import aiohttp
import pytest
from aiohttp import web

from acme.solvers.test_tlsalpn01 import first_message
from certwright.acme.protocol.challenges import WELL_KNOWN
from certwright.acme.solvers import admitted, checks
from certwright.acme.solvers.admitted import Admissions, Limits
from certwright.acme.solvers.checks import HttpCheck
from certwright.acme.solvers.contract import NotYet, Ready, Task
from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.names import NameServers
from certwright.acme.solvers.tlsalpn01 import Listener
from certwright.kube.util.encoding import in_brackets
from conformance.check_solver import See, check_solver
from support.programs import free_port
from support.real import has_ipv6

TASK = Task(type="http-01", identifier="127.0.0.1", token="abc-DEF_1", key="abc-DEF_1.print", uid="u1")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine, or its name servers, may take longer than somebody who looks has time."""
    monkeypatch.setattr(checks, "_TIMEOUT_S", 120.0)


@pytest.fixture
async def responder() -> AsyncIterator[tuple[Responder, int]]:
    made = Responder()
    yield made, await made.listen("127.0.0.1", 0)
    await made.close()


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """An HTTP server of that function; its port."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def page_at(port: int) -> See:
    """Fetches the page of a task."""

    async def see(task: Task) -> set[str]:
        url = f"http://127.0.0.1:{port}{WELL_KNOWN}{task.token}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return {await answer.text()} if answer.status == 200 else set()

    return see


async def test_the_responder_is_a_solver(responder: tuple[Responder, int]) -> None:
    await check_solver(responder[0], page_at(responder[1]), TASK)


async def test_one_listener_answers_for_any_name_and_for_nothing_else(
    responder: tuple[Responder, int],
) -> None:
    solver, port = responder
    await solver.present(TASK)
    base = f"http://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:
        headers = {"Host": "anything.example.org"}
        async with session.get(f"{base}{WELL_KNOWN}{TASK.token}?x=1", headers=headers) as answer:
            assert (answer.status, await answer.text()) == (200, TASK.key)
        for path in ("/", WELL_KNOWN, f"{WELL_KNOWN}other", f"/x{WELL_KNOWN}{TASK.token}"):
            async with session.get(base + path) as answer:
                assert answer.status == 404
        async with session.post(f"{base}{WELL_KNOWN}{TASK.token}") as answer:
            assert answer.status == 405


async def test_a_port_that_is_taken_is_an_error(responder: tuple[Responder, int]) -> None:
    with pytest.raises(OSError, match="in use"):
        await Responder().listen("127.0.0.1", responder[1])


async def test_it_listens_with_ipv6_as_well() -> None:
    solver = Responder()
    port = await solver.listen("", free_port())
    await solver.present(TASK)
    try:
        for host in ("127.0.0.1", "[::1]") if has_ipv6() else ("127.0.0.1",):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{host}:{port}{WELL_KNOWN}{TASK.token}") as answer,
            ):
                assert await answer.text() == TASK.key
    finally:
        await solver.close()


async def test_the_check_sees_the_page(responder: tuple[Responder, int]) -> None:
    solver, port = responder
    check = HttpCheck(port=port)
    verdict = await check.check(TASK)
    assert isinstance(verdict, NotYet)
    assert "answered HTTP status 404" in verdict.reason
    await solver.present(TASK)
    assert await check.check(TASK) == Ready()


async def test_the_check_follows_redirects_from_port_to_port(responder: tuple[Responder, int]) -> None:
    solver, port = responder
    await solver.present(TASK)

    async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
        raise web.HTTPMovedPermanently(f"http://127.0.0.1:{port}{request.path}")

    async with serving(elsewhere) as first:
        assert await HttpCheck(port=first, redirect_ports={port}).check(TASK) == Ready()
        verdict = await HttpCheck(port=first).check(TASK)
    assert isinstance(verdict, NotYet)
    assert verdict.reason.endswith(f"redirects to port {port}; CAs follow redirects to ports 80 and 443 only")


async def _in_a_circle(request: web.BaseRequest) -> web.StreamResponse:
    raise web.HTTPFound(request.path)


async def _to_a_file(request: web.BaseRequest) -> web.StreamResponse:
    raise web.HTTPFound("file:///etc/passwd")


async def _nowhere(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(status=302)


async def _another_page(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="<html>Welcome</html>" * 100_000)


async def _with_a_newline(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text=f"{TASK.key}\r\n")


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (_in_a_circle, "more than 10 redirects"),
        (_to_a_file, "redirects to something that is not an http or https URL"),
        (_nowhere, "redirects to something that is not an http or https URL"),
        (_another_page, "answered with a page that is not the key authorization"),
    ],
)
async def test_what_is_wrong_is_reported_without_the_page(handler: Handler, words: str) -> None:
    async with serving(handler) as port:
        verdict = await HttpCheck(port=port).check(TASK)
    assert isinstance(verdict, NotYet)
    assert words in verdict.reason
    assert "Welcome" not in verdict.reason
    assert "passwd" not in verdict.reason


async def test_white_space_after_the_proof_is_forgiven() -> None:
    async with serving(_with_a_newline) as port:
        assert await HttpCheck(port=port).check(TASK) == Ready()


async def test_a_closed_port_and_an_unknown_name_are_told() -> None:
    verdict = await HttpCheck(port=1).check(TASK)
    assert isinstance(verdict, NotYet)
    assert "http://127.0.0.1:1/.well-known" in verdict.reason
    assert verdict.reason.endswith("cannot be reached: Connection refused at 127.0.0.1:1")
    task = Task(type="http-01", identifier="no-such.invalid", token="t", key="k", uid="u")
    verdict = await HttpCheck(port=1).check(task)
    assert isinstance(verdict, NotYet)
    assert "the name of http://" in verdict.reason
    assert " cannot be resolved: " in verdict.reason


class BothFamilies(NameServers):
    """A name with an A and an AAAA record, both of this machine."""

    async def addresses(self, name: str) -> tuple[str, ...]:
        return ("127.0.0.1", "::1")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
@pytest.mark.parametrize(("right", "wrong"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
async def test_both_address_families_must_show_the_page(right: str, wrong: str) -> None:
    task = dataclasses.replace(TASK, identifier="both.example.org")
    responder, other = Responder(), Responder()
    await responder.present(task)
    port = await responder.listen(right, 0)
    try:
        check = HttpCheck(port=port, names=BothFamilies(()))
        # A CA takes the other family if it cannot connect.
        assert await check.check(task) == Ready()
        await other.listen(wrong, port)
        verdict = await check.check(task)
        assert isinstance(verdict, NotYet)
        assert verdict.reason.endswith(f"instead of 200 (at {in_brackets(wrong)})")
        await other.present(task)
        assert await check.check(task) == Ready()
    finally:
        await responder.close()
        await other.close()


async def test_many_checks_at_once_do_not_disturb_each_other(responder: tuple[Responder, int]) -> None:
    solver, port = responder
    tasks = [
        Task(type="http-01", identifier="127.0.0.1", token=f"t{n}", key=f"k{n}", uid=f"u{n}")
        for n in range(20)
    ]
    for task in tasks:
        await solver.present(task)
    check = HttpCheck(port=port)
    assert await asyncio.gather(*(check.check(task) for task in tasks)) == [Ready()] * 20


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
