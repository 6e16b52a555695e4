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
    if any(one.apprise is not None for one in settings.destinations) and not apprise_urls.is_installed():
        raise BadSettings(apprise_urls.MISSING)
    return tuple(_destination(one) for one in settings.destinations)


def _destination(one: DestinationSettings) -> Destination:
    kind, send = _transport(one)
    return Destination(one.name, kind, partial(_in_a_thread, send))


def _transport(one: DestinationSettings) -> tuple[str, Callable[[Digest], None]]:
    """The kind and the transport; `NotificationSettings` has checked that there is one."""
    if one.smtp is not None:
        return "smtp", partial(smtp.send, one.smtp)
    if one.webhook is not None:
        return "webhook", partial(webhook.send, one.webhook)
    assert one.apprise is not None
    return "apprise", partial(apprise_urls.send, one.apprise)


async def _in_a_thread(send: Callable[[Digest], None], digest: Digest) -> None:
    await asyncio.to_thread(send, digest)
