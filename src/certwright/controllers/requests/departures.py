"""When an Order of a request to an IssuerSet is given up, so that another member signs."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, Protocol

from certwright.resources.acme import Order


class Departure(NamedTuple):
    """An Order is given up for another member: why, and until when its member is avoided."""

    why: str
    not_before: datetime


class Departures(Protocol):
    """What the reconciler of Orders asks. `Members` answers."""

    async def leaves(
        self, order: Order, *, has_failed: bool = False, until: datetime | None = None
    ) -> Departure | None:
        """Why an Order is given up so that another member signs; None: it goes on. `has_failed`: its member
        has just failed it; `until`: it must wait that long for a rate limit."""

    def patience_ends(self, order: Order) -> datetime | None:
        """When an Order that its failing member has taken may be given up; None: no such Order."""
