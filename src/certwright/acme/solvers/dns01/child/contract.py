"""What the child requires of the code that changes records."""

from __future__ import annotations

from typing import Protocol


class Provider(Protocol):
    """A provider with its credentials; all methods are synchronous. Names have no final dot."""

    def verify(self) -> None:
        """Check the settings, without a request."""

    def has_zone(self, name: str) -> bool:
        """Whether the account has the zone of exactly this name."""

    def add(self, zone: str, name: str, value: str) -> None:
        """Add one TXT value; a success if it exists already."""

    def remove(self, zone: str, name: str, value: str) -> None:
        """Remove one TXT value; a success if it does not exist."""


class Failed(Exception):
    """The provider cannot do it; the text is a clause with the reason and the fix."""


class Rejected(Failed):
    """The API does not accept the credentials."""


class Busy(Failed):
    """The API asks for a pause, as in the header `Retry-After`."""

    def __init__(self, reason: str, retry_after: str) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
