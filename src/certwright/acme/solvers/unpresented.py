"""Solver of challenges whose response exists already: dns-persist-01, whose record the user has created."""

from __future__ import annotations

from certwright.acme.solvers.contract import Task


class Unpresented:
    """Presents and removes nothing."""

    async def present(self, task: Task) -> None:
        """See `Solver`."""

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
