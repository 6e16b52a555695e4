"""The notifications of one process."""

from __future__ import annotations

import msgspec

from certwright.notifications.messages import Destination
from certwright.notifications.settings import NotificationSettings


class Notifications(msgspec.Struct, frozen=True, kw_only=True):
    """The settings, their destinations, what messages are signed with, and the namespace of the record."""

    settings: NotificationSettings
    destinations: tuple[Destination, ...]
    sender: str
    namespace: str
