"""The process that carries requests: when it is there, what it is given, and how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acme.carrier.children import (
    carriers,
    environment,
    files_of,
    is_carrier,
    open_files,
    state,
    that_does,
)
from acme.carrier.conftest import NOW, MakeChild, Server, carried
from certwright.acme.carrier import child as module
from certwright.acme.carrier.child import Child
from certwright.acme.carrier.link import Link
from certwright.acme.protocol.errors import Unreachable
from support.waiting import until

_WITHIN_S = 120.0


async def test_it_is_started_by_the_first_request_and_gone_when_it_is_closed(
    server: Server, child: Child
) -> None:
    sender = carried(child)
    assert carriers() == []
    before = open_files()
    answers = await asyncio.gather(*(sender.send(server.post(b"four")) for _ in range(20)))
    assert {(one.status, one.body, one.header("replay-nonce")) for one in answers} == {(200, b"4", "one")}
    assert {one.received_at for one in answers} == {NOW}
    assert len(carriers()) == 1
    await sender.close()
    await child.close()
    assert carriers() == []
    await until(lambda: open_files() <= before, within_s=_WITHIN_S)


async def test_killed_amid_a_request_it_is_unreachable_and_the_next_request_starts_another(
    server: Server, child: Child
) -> None:
    sender = carried(child)
    under_way = asyncio.create_task(sender.send(server.get("/hang")))
    await asyncio.wait_for(server.hanging.acquire(), _WITHIN_S)
    (pid,) = carriers()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(Unreachable, match=r"/hang cannot be reached: the process that carries requests has"):
        await under_way
    assert (await sender.send(server.get())).status == 200
    assert carriers() != [pid]
    assert len(carriers()) == 1


async def test_a_request_that_nobody_waits_for_is_broken_off(server: Server, child: Child) -> None:
    sender = carried(child)
    under_way = asyncio.create_task(sender.send(server.get("/hang")))
    await asyncio.wait_for(server.hanging.acquire(), _WITHIN_S)
    under_way.cancel()
    await asyncio.wait_for(server.gone.wait(), _WITHIN_S)
    assert (await sender.send(server.get())).status == 200


async def test_whoever_starts_it_may_be_cancelled(server: Server, child: Child) -> None:
    sender = carried(child)
    first = asyncio.create_task(sender.send(server.get()))
    second = asyncio.create_task(sender.send(server.get()))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status == 200
    assert len(carriers()) == 1


async def test_large_bodies_wait_for_room_in_the_socket(server: Server, child: Child) -> None:
    sender = carried(child)
    sizes = [300_000 + n for n in range(30)]
    answers = await asyncio.gather(*(sender.send(server.post(b"x" * size)) for size in sizes))
    assert [one.body for one in answers] == [str(size).encode() for size in sizes]


async def test_a_few_requests_are_no_reason_to_start_it_and_a_rush_is(
    server: Server, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RUSH_S", 1000.0)
    child = make_child(rush=10)
    sender = carried(child)
    for _ in range(9):
        assert (await sender.send(server.get())).status == 200
    assert carriers() == []
    answers = await asyncio.gather(*(sender.send(server.get()) for _ in range(3)))
    assert {one.status for one in answers} == {200}
    assert len(carriers()) == 1
    await sender.close()


async def test_a_few_requests_in_a_long_time_are_no_rush(
    server: Server, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RUSH_S", 0.0)
    sender = carried(make_child(rush=2))
    for _ in range(4):
        assert (await sender.send(server.get())).status == 200
    assert carriers() == []
    await sender.close()


async def test_without_work_it_ends_and_the_next_request_starts_another(
    server: Server, make_child: MakeChild
) -> None:
    child = make_child(idle_s=0.05)
    sender = carried(child)
    await sender.send(server.get())
    await until(lambda: not carriers(), within_s=_WITHIN_S)
    assert (await sender.send(server.get())).status == 200


async def test_one_that_ends_for_want_of_work_before_it_has_had_any_is_started_again(
    server: Server, make_child: MakeChild, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, busy_s = Link._begin, iter([0.3])

    def begin_on_a_busy_loop(link: Link) -> None:
        begin(link)
        time.sleep(next(busy_s, 0.0))

    monkeypatch.setattr(Link, "_begin", begin_on_a_busy_loop)
    assert (await carried(make_child(idle_s=0.2)).send(server.get())).status == 200
    assert list(busy_s) == []


async def test_one_that_stands_still_is_replaced(server: Server, make_child: MakeChild) -> None:
    child = make_child(patience_s=0.5)
    sender = carried(child)
    await sender.send(server.get())
    (pid,) = carriers()
    os.kill(pid, signal.SIGSTOP)
    hasty = carried(child, timeout_s=0.1)
    with pytest.raises(Unreachable, match="stands still"):
        await hasty.send(server.get())
    assert (await sender.send(server.get())).status == 200
    assert not is_carrier(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_what_ends_a_group_of_processes_is_for_its_parent_to_decide(
    number: signal.Signals, server: Server, child: Child
) -> None:
    sender = carried(child)
    await sender.send(server.get())
    (pid,) = carriers()
    os.kill(pid, number)
    assert (await sender.send(server.get())).status == 200
    assert carriers() == [pid]


def room() -> int:
    """How many bytes a socket pair holds on this machine."""
    one, other = socket.socketpair()
    with one, other:
        return one.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of no child being started any more."""
    said = [one.getMessage() for one in caplog.records]
    return [one for one in said if "ACME servers are asked by this process itself from now on" in one]


@pytest.mark.parametrize("command", [("/bin/false",), ("/nowhere/python",), ("/bin/sleep", "600")])
async def test_where_it_cannot_start_its_parent_makes_the_requests_and_none_fails(
    command: tuple[str, ...], server: Server, make_child: MakeChild, caplog: pytest.LogCaptureFixture
) -> None:
    before = open_files()
    child = make_child(command, start_s=0.2)
    sender = carried(child)
    for _ in range(5):
        answers = await asyncio.gather(*(sender.send(server.get()) for _ in range(3)))
        assert {one.status for one in answers} == {200}
    assert len(given_up(caplog)) == 1
    assert carriers() == []
    await sender.close()
    await child.close()
    await until(lambda: open_files() <= before, within_s=_WITHIN_S)


async def test_where_it_dies_of_each_request_its_parent_makes_them_after_three(
    server: Server, make_child: MakeChild, caplog: pytest.LogCaptureFixture
) -> None:
    child = make_child(that_does("end.recv(1)"))
    sender = carried(child)
    for _ in range(3):
        with pytest.raises(Unreachable, match="the process that carries requests has ended"):
            await sender.send(server.get())
    for _ in range(2):
        assert (await sender.send(server.get())).status == 200
    assert len(given_up(caplog)) == 1
    await sender.close()


@pytest.mark.parametrize("amid", ["before there is a process", "while it starts"])
async def test_one_that_has_not_started_yet_is_ended_at_once_when_it_is_closed(
    amid: str, server: Server, make_child: MakeChild, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    child = make_child(("/bin/sh", "-c", f"echo > {begun}; exec sleep 600"), start_s=600.0)
    under_way = asyncio.create_task(carried(child).send(server.get()))
    await asyncio.sleep(0)
    if amid == "while it starts":
        await until(begun.exists, within_s=_WITHIN_S)
    await asyncio.wait_for(child.close(), _WITHIN_S)
    with pytest.raises(Unreachable, match="about to end"):
        await under_way


async def test_who_waits_for_room_in_the_socket_of_one_that_stands_still_is_told(
    server: Server, make_child: MakeChild
) -> None:
    child = make_child(patience_s=0.5)
    # Requests that may take for ever: what is told is told for want of room only.
    sender = carried(child, timeout_s=10_000.0)
    await sender.send(server.get())
    (pid,) = carriers()
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(_WITHIN_S):
        ended = await asyncio.gather(
            *(sender.send(server.post(b"x" * 300_000)) for _ in range(2 * room() // 300_000 + 10)),
            return_exceptions=True,
        )
    assert {str(one).partition(": ")[2] for one in ended} == {
        "the process that carries requests stands still"
    }
    assert (await sender.send(server.get())).status == 200


async def test_another_is_started_though_all_threads_are_busy(server: Server, child: Child) -> None:
    sender = carried(child)
    under_way = asyncio.create_task(sender.send(server.get("/hang")))
    await asyncio.wait_for(server.hanging.acquire(), _WITHIN_S)
    loop, release = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    busy = loop.run_in_executor(None, release.wait)
    try:
        os.kill(carriers()[0], signal.SIGKILL)
        with pytest.raises(Unreachable):
            await under_way
        answer = await asyncio.wait_for(sender.send(server.get()), _WITHIN_S)
    finally:
        release.set()
    await busy
    assert answer.status == 200


async def test_it_inherits_no_secrets_and_no_files(
    server: Server, child: Child, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CERTWRIGHT_ENCRYPTION_KEY", "secret")
    monkeypatch.setenv("NO_PROXY", "example.org")
    monkeypatch.setenv("RES_OPTIONS", "ndots:1")
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(lock, True)
    await carried(child).send(server.get())
    (pid,) = carriers()
    names = environment(pid)
    assert {"NO_PROXY", "RES_OPTIONS"} <= names
    assert "CERTWRIGHT_ENCRYPTION_KEY" not in names
    assert str(tmp_path / "lock") not in files_of(pid)
    os.close(lock)


async def test_it_ends_with_its_parent_however_that_ends(server: Server) -> None:
    program = f"""
        import asyncio, sys
        sys.path[:0] = {sys.path!r}
        from acme.carrier.children import carriers
        from acme.carrier.conftest import Child, Server, carried

        async def main():
            await carried(Child()).send(Server({server.url!r}).get())
            print(carriers()[0], flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    try:
        pid = int(await asyncio.wait_for(parent.stdout.readline(), _WITHIN_S))
        assert is_carrier(pid)
    finally:
        parent.kill()
        await parent.communicate()
    # Where nobody waits for orphans it stays as a name.
    await until(lambda: state(pid) in ("", "Z"), within_s=_WITHIN_S)


def test_it_loads_nothing_of_the_rest_of_the_house() -> None:
    program = "import sys, certwright.acme.carrier.__main__; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours = {name for name in found.stdout.split() if name.startswith("certwright.")}
    rooms = {name.split(".")[1] for name in ours}
    assert rooms == {"acme", "kit"}
    solvers = {name for name in ours if name.startswith("certwright.acme.solvers.")}
    # What looks for proofs is loaded with the first look.
    assert solvers == {"certwright.acme.solvers.contract"}


async def test_on_the_loop_of_the_daemon_it_leaves_nothing_and_spares_it_a_client_for_http(
    server: Server,
) -> None:
    program = f"""
        import sys
        sys.path[:0] = {sys.path!r}
        from datetime import UTC, datetime
        from certwright.acme.carrier.choice import Transports
        from certwright.acme.protocol.messages import Action, Request
        from certwright.acme.protocol.transport import TlsOptions
        from certwright.app.loop import run
        import certwright.controllers.acme.solving
        from acme.carrier.children import carriers

        async def main():
            made = Transports(user_agent="t", now=lambda: datetime.now(UTC), apart=True)
            answer = await made(TlsOptions()).send(Request(Action.DIRECTORY, "GET", {server.url!r}))
            print(answer.status, len(carriers()), "aiohttp" in sys.modules)
            await made.close()
            print(carriers())

        run(main())
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(program), stdout=subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert said.decode().splitlines() == ["200 1 False", "[]"]
