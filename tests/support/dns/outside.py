"""A clock for the tests of DNS hosts."""

from __future__ import annotations

from datetime import UTC, datetime

START = datetime(2030, 1, 1, tzinfo=UTC)


class Time:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = START
