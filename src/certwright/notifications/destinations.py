"""The transport of each destination."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from certwright.notifications import apprise_urls, smtp, webhook
from certwright.notifications.messages import Destination, Digest
from certwright.notifications.settings import BadSettings, DestinationSettings, NotificationSettings


def destinations_of(settings: NotificationSettings) -> tuple[Destination, ...]:
    """The destinations of the settings. Raises `BadSettings` where a package is missing."""
    if (
        any(destination.apprise is not None for destination in settings.destinations)
        and not apprise_urls.is_installed()
    ):
        raise BadSettings(apprise_urls.MISSING)
    return tuple(_destination(destination) for destination in settings.destinations)


def _destination(settings: DestinationSettings) -> Destination:
    kind, send = _transport(settings)
    return Destination(settings.name, kind, partial(_in_a_thread, send))


def _transport(settings: DestinationSettings) -> tuple[str, Callable[[Digest], None]]:
    """The kind and the transport; `NotificationSettings` has checked that there is one."""
    if settings.smtp is not None:
        return "smtp", partial(smtp.send, settings.smtp)
    if settings.webhook is not None:
        return "webhook", partial(webhook.send, settings.webhook)
    assert settings.apprise is not None
    return "apprise", partial(apprise_urls.send, settings.apprise)


async def _in_a_thread(send: Callable[[Digest], None], digest: Digest) -> None:
    await asyncio.to_thread(send, digest)
