"""The notifications of one process."""

from __future__ import annotations

from dataclasses import dataclass

from certwright.notifications.messages import Destination
from certwright.notifications.settings import NotificationSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Notifications:
    """The settings, their destinations, what messages are signed with, and the namespace of the record."""

    settings: NotificationSettings
    destinations: tuple[Destination, ...]
    sender: str
    namespace: str
