"""Limits of connections: of all clients, of an address, of a user, and of clients unknown yet."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from certwright.kube.api.errors import TooManyRequests, Unavailable
from certwright.kube.apiserver.base.users import flow_of, service_account, service_account_groups
from certwright.kube.apiserver.http import protocol
from certwright.kube.apiserver.http.connections import (
    Connection,
    ConnectionLimits,
    Connections,
    limits_within_files,
)
from certwright.kube.util.http_messages import Identity
from kube.apiserver.callers import CONFIG_MAPS, StartApi, grant, rule
from kube.apiserver.over_tls import FOR_EVER, Served, head, is_closed, served
from support.waiting import until


class Sockets:
    """A table of connections, and which of them were closed by it."""

    def __init__(self, total: int) -> None:
        self.closed = list[str]()
        self.table = Connections(ConnectionLimits(total=total), lambda limits: limits)

    def open(self, name: str, address: str = "10.0.0.1") -> Connection | None:
        """A socket that is accepted."""
        return self.table.accept(address, partial(self.closed.append, name))

    def known(self, user: str, address: str = "10.0.0.1", *, is_privileged: bool = False) -> Connection:
        """A socket on which a request was authenticated."""
        made = self.open(f"of {user}", address)
        assert made is not None
        made.identify(user, is_privileged=is_privileged)
        return made


def test_a_new_connection_displaces_the_oldest_unidentified_one() -> None:
    sockets = Sockets(total=16)
    for number in range(6):
        assert sockets.open(str(number)) is not None
    assert sockets.closed == ["0", "1"]
    assert len(sockets.table) == 4


def test_the_address_with_most_unidentified_connections_is_displaced() -> None:
    sockets = Sockets(total=16)
    sockets.open("victim", "10.0.0.2")
    for number in range(20):
        assert sockets.open(str(number)) is not None
    assert "victim" not in sockets.closed


def test_an_identified_connection_is_never_displaced() -> None:
    sockets = Sockets(total=16)
    sockets.known("a")
    for number in range(100):
        sockets.open(str(number))
    assert "of a" not in sockets.closed


def test_a_user_has_a_bounded_number_of_connections() -> None:
    sockets = Sockets(total=16)
    mine = [sockets.known("a") for _ in range(4)]
    with pytest.raises(TooManyRequests):
        sockets.known("a")
    sockets.known("b")
    mine[0].release()
    sockets.known("a")


def test_a_new_flow_displaces_the_newest_connection_of_the_largest_one() -> None:
    sockets = Sockets(total=64)
    large = [sockets.known(user, f"10.0.{user}.{number}") for user in "123" for number in range(13)]
    large.append(sockets.known("1", "10.0.9.9"))  # 40 in all
    for number in range(10):
        sockets.known("late", f"10.0.4.{number}")
    assert len(sockets.closed) == 10
    assert set(sockets.closed) == {"of 1", "of 2", "of 3"}
    # From equal shares on nobody's connection makes room.
    with pytest.raises(Unavailable):
        sockets.known("late", "10.0.5.1")
    assert len(sockets.closed) == 10


@pytest.mark.parametrize(
    ("name", "flow"),
    [
        ("jane", "jane"),
        ("system:serviceaccount:team:a", "system:serviceaccounts:team"),
        ("system:serviceaccount:team:b", "system:serviceaccounts:team"),
        (
            "system:serviceaccount:cert-manager:cert-manager",
            "system:serviceaccount:cert-manager:cert-manager",
        ),
        ("system:serviceaccount:certwright-users:jane", "system:serviceaccount:certwright-users:jane"),
        ("system:serviceaccount:", "system:serviceaccount:"),
    ],
)
def test_the_service_accounts_of_a_namespace_share_a_flow(name: str, flow: str) -> None:
    account = service_account(name)
    groups = service_account_groups(name) if account is not None else ()
    assert flow_of(Identity(name, groups=groups)) == flow


def test_privileged_users_have_a_reserve() -> None:
    sockets = Sockets(total=16)
    for number in range(10):
        sockets.known(str(number), f"10.0.1.{number}")
    with pytest.raises(Unavailable):
        sockets.known("one more")
    sockets.known("root", is_privileged=True)
    sockets.known("root", is_privileged=True)


def test_an_address_has_a_bounded_share() -> None:
    sockets = Sockets(total=16)
    kept = [sockets.known("root", is_privileged=True) for _ in range(12)]
    assert sockets.open("one more") is None
    assert sockets.table.refused == 1
    assert sockets.open("elsewhere", "10.0.0.2") is not None
    kept[0].release()
    assert sockets.open("again") is not None


def test_a_connection_of_several_users_counts_for_the_last_one() -> None:
    sockets = Sockets(total=16)
    shared = sockets.known("a")
    for _ in range(3):
        sockets.known("a")
    shared.identify("b", is_privileged=False)
    sockets.known("a")
    shared.release()
    shared.release()
    assert len(sockets.table) == 4


@pytest.mark.parametrize(("files", "total"), [(256, 128), (1 << 16, 4096), (resource.RLIM_INFINITY, 4096)])
def test_connections_leave_file_descriptors_for_everything_else(
    monkeypatch: pytest.MonkeyPatch, files: int, total: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert limits_within_files(ConnectionLimits()).total == total


SCALED = ConnectionLimits(total=64)
FLOOD = 200


async def alive(it: Served) -> None:
    """The administrator's health check on a new connection is answered."""
    reader, writer = await it.connect()
    writer.write(head("GET", "/livez", connection="close"))
    async with asyncio.timeout(FOR_EVER):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.transport.abort()


async def silent_tcp(it: Served, ends: list[Callable[[], None]]) -> None:
    """A connection without a handshake."""
    raw = socket.socket()
    raw.setblocking(False)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", it.face.port))
    ends.append(raw.close)


async def silent_tls(it: Served, ends: list[Callable[[], None]]) -> None:
    """A connection with a handshake and nothing else."""
    _, writer = await it.connect()
    ends.append(writer.transport.abort)


@pytest.mark.parametrize("silent", [silent_tcp, silent_tls])
async def test_connections_that_send_nothing_keep_nobody_out(
    start_api: StartApi,
    tmp_path: Path,
    silent: Callable[[Served, list[Callable[[], None]]], asyncio.Future[None]],
) -> None:
    ends = list[Callable[[], None]]()
    async with served(start_api, tmp_path, limits=SCALED) as it:
        for number in range(FLOOD):
            await silent(it, ends)
            if number % 20 == 0:
                await alive(it)
        assert len(it.face.accepted) <= SCALED.total
        await alive(it)
        for end in ends:
            end()
        await until(lambda: len(it.face.accepted) == 0)


async def test_one_user_with_thousands_of_watches_keeps_nobody_out(
    start_api: StartApi, tmp_path: Path
) -> None:
    async with served(start_api, tmp_path, limits=SCALED) as it:
        await grant(it.api, rule("watch", "configmaps"), user="greedy")
        statuses = list[bytes]()
        for _ in range(FLOOD // 4):
            reader = await it.send(head("GET", f"{CONFIG_MAPS}?watch=1", authorization="Bearer greedy"))
            async with asyncio.timeout(FOR_EVER):
                statuses.append((await reader.readline()).split()[1])
        assert statuses == [b"200"] * SCALED.per_flow + [b"429"] * (FLOOD // 4 - SCALED.per_flow)
        assert it.api.server.open_watches == SCALED.per_flow
        await alive(it)
        reader = await it.send(head("GET", "/livez", authorization="Bearer polite"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent", [b"", head("GET", CONFIG_MAPS, authorization="Bearer wrong")])
async def test_an_idle_unauthenticated_connection_ends_early(
    server: Served, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(protocol, "UNIDENTIFIED_S", 0.2)
    reader = await server.send(sent)
    assert await is_closed(reader)
    await until(lambda: len(server.face.accepted) == 0)


async def test_an_authenticated_connection_may_lie_idle(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = await server.connect()
    writer.write(head("GET", "/livez"))
    await reader.readuntil(b"\r\n\r\nok")
    monkeypatch.setattr(protocol, "UNIDENTIFIED_S", 0.0)
    writer.write(head("GET", "/livez"))
    await reader.readuntil(b"\r\n\r\nok")
    _, other = await server.connect()
    await until(lambda: len(server.face.accepted) == 1)
    writer.write(head("GET", "/livez"))
    await reader.readuntil(b"\r\n\r\nok")
    other.transport.abort()


@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize(
    ("method", "is_closed"), [("PATCH", True), ("DELETE", True), ("POST", True), ("PATCH", False)]
)
async def test_a_write_whose_client_is_gone_is_not_carried_out_after_a_pause(
    server: Served, method: str, *, is_reset: bool, is_closed: bool
) -> None:
    await server.api.config_map("c", {"v": "new"})
    raw = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", server.face.port))
    client = await asyncio.to_thread(server.tls().wrap_socket, raw, server_hostname="127.0.0.1")
    target, name = (CONFIG_MAPS, "d") if method == "POST" else (f"{CONFIG_MAPS}/c", "c")
    body = json.dumps({"metadata": {"name": name}, "data": {"v": "old"}}).encode()
    patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
    # The event loop stands still here, as in a process that was stopped.
    client.sendall(head(method, target, content_type=patch, content_length=str(len(body))) + body)
    if is_closed:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", is_reset, 0))
        client.close()
        await until(lambda: len(server.face.accepted) == 0)
    else:
        assert (await asyncio.to_thread(client.recv, 100)).startswith(b"HTTP/1.1 200")
        client.close()
    found = {
        item["metadata"]["name"]: item["data"] for item in (await server.api.ok("GET", CONFIG_MAPS))["items"]
    }
    assert found == {"c": {"v": "new" if is_closed else "old"}}
