"""The notifications of a process, from the operator's file, and a test message."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from pathlib import Path

from certwright.app.options import ControllerOptions, StartError
from certwright.controllers.notifications.notifier import Notifications
from certwright.kube.util.clock import SystemClock
from certwright.notifications.destinations import destinations_of
from certwright.notifications.messages import Digest, SendError
from certwright.notifications.settings import BadSettings, read_settings


def read_notifications(options: ControllerOptions) -> Notifications | None:
    """The notifications; None without a file. Raises `StartError`."""
    if options.notifications is None:
        return None
    # Where the controllers may write a ConfigMap in any case.
    namespace = options.namespace or options.cluster_resource_namespace
    return _read(options.notifications, namespace)


def _read(path: Path, namespace: str) -> Notifications:
    try:
        settings = read_settings(path)
        destinations = destinations_of(settings)
    except BadSettings as error:
        raise StartError(f"--notifications: {error}") from error
    sender = settings.sender or f"certwright on {socket.gethostname()}"
    return Notifications(settings=settings, destinations=destinations, sender=sender, namespace=namespace)


async def send_test(path: Path) -> AsyncIterator[tuple[str, str]]:
    """Send a test message to each destination of a file; yields its name and the error, empty for none.
    Raises `StartError` for a file that cannot be used."""
    settings = _read(path, "")
    for destination in settings.destinations:
        problem = ""
        try:
            await destination.send(Digest(sender=settings.sender, at=SystemClock().now()))
        except SendError as error:
            problem = str(error)
        yield destination.name, problem
