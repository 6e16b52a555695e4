"""Notifications of systemd, received on a real socket."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from certwright.kit.service_manager import ServiceManager


@pytest.mark.parametrize("abstract", [False, True], ids=["path", "abstract"])
async def test_the_manager_receives_each_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool
) -> None:
    name = f"@certwright-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name[1:]}" if abstract else name)
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        monkeypatch.setenv("WATCHDOG_USEC", "20000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
        service = ServiceManager()
        assert "NOTIFY_SOCKET" not in os.environ
        service.ready("serving")
        assert manager.recv(1000) == b"READY=1\nSTATUS=serving"
        service.reloading()
        assert manager.recv(1000).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        alive = asyncio.ensure_future(service.keep_alive())
        loop = asyncio.get_running_loop()
        assert [await loop.sock_recv(manager, 1000) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        alive.cancel()
        await asyncio.wait({alive})
        service.stopping()
        while (last := manager.recv(1000)) == b"WATCHDOG=1":
            pass  # sent before the end of `alive`
        assert last.startswith(b"STOPPING=1")


async def test_without_a_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    # For example of a process that the service has started.
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.delattr(socket, "socket")
    service = ServiceManager()
    service.ready("serving")
    async with asyncio.timeout(60):
        await service.keep_alive()
