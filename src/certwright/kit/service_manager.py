"""Notification of the service manager (systemd) about start, reload and stop.

Source: `sd_notify(3)`: datagrams of `NAME=value` lines to the socket in $NOTIFY_SOCKET.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress


class ServiceManager:
    """Sends notifications; does nothing without $NOTIFY_SOCKET.

    The environment is changed, so that child processes do not report for this one.
    """

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        microseconds, process = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        is_watched = microseconds.isdigit() and process in ("", str(os.getpid()))
        self._watchdog_s = int(microseconds) / 1e6 if is_watched else None

    def ready(self, status: str) -> None:
        """The start, or a reload, has succeeded; `status` is a sentence for `systemctl status`."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """A reload begins; `ready` MUST follow."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The shutdown begins."""
        self._send("STOPPING=1", "STATUS=stopping")

    async def keep_alive(self) -> None:
        """Notify the watchdog twice within its time limit, for as long as the event loop runs; returns if
        there is no limit."""
        while self._watchdog_s is not None and self._address:
            self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 2)

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # "@" begins an abstract name, whose first byte is zero.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # The service works without its manager.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto("\n".join(lines).encode(), address)
