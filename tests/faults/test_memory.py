"""Memory of a real `serve`, as the system sees it."""

from __future__ import annotations

import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

from certwright.kube.client.kubeconfig import load
from faults.server import CONFIG_MAPS, Server, config_map, running
from support.waiting import until

OBJECTS = 150
CLIENTS = 60
MOST_MB, LEFT_MB = 150.0, 50.0
"""Over idle, while the clients are connected, and when they have left."""


def resident_mb(server: Server) -> float:
    """The resident memory of the process."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1000


def asks_and_never_reads(server: Server, target: str, ends: ExitStack) -> None:
    """A connection on which a request is sent, and nothing is read."""
    known = load(server.folder / "data" / "kubeconfig")
    context = ssl.create_default_context(cadata=known.ca_pem.decode())
    port = int(known.server.rpartition(":")[2])
    raw = socket.create_connection(("127.0.0.1", port), timeout=60)
    tls = ends.enter_context(context.wrap_socket(raw, server_hostname="127.0.0.1"))
    tls.send(f"GET {target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {known.token}\r\n\r\n".encode())


async def test_clients_that_never_read_a_large_state_cost_little(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        for number in range(OBJECTS):  # 15 MB
            made = await server.ask("POST", CONFIG_MAPS, config_map(f"c{number}", x="y" * 100_000))
            assert made.status == 201
        idle = resident_mb(server)
        with ExitStack() as ends:
            for number in range(CLIENTS):
                asks_and_never_reads(server, CONFIG_MAPS + ("?watch=1" if number % 2 else ""), ends)
            for _ in range(20):
                assert (await server.ask("GET", "/livez")).status == 200
                assert resident_mb(server) < idle + MOST_MB
        await until(lambda: resident_mb(server) < idle + LEFT_MB)


async def test_large_objects_that_are_deleted_leave_little_behind(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        await server.ask("POST", CONFIG_MAPS, config_map("first", x="y"))
        idle = resident_mb(server)
        for number in range(60):
            made = await server.ask("POST", CONFIG_MAPS, config_map(f"c{number}", x="y" * 1_000_000))
            assert made.status == 201
        assert (await server.ask("GET", CONFIG_MAPS)).status == 200
        for number in range(60):
            assert (await server.ask("DELETE", f"{CONFIG_MAPS}/c{number}")).status == 200
        await until(lambda: resident_mb(server) < idle + LEFT_MB)
