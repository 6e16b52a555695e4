"""How long a server takes for a verdict, as far as the last ones told.

A server that is asked too early names a moment for the next question, usually a second away: a question that
comes 50 ms too early costs a second, and a request.
"""

from __future__ import annotations

from datetime import timedelta

_SHORTEST, _LONGEST = timedelta(seconds=0.1), timedelta(seconds=1)
# Nine in ten first questions shall find the verdict: the delay comes to rest where one step up for each that
# does not is as much as ten down for those that do.
_UP, _DOWN = timedelta(seconds=0.02), timedelta(seconds=0.002)


class Pace:
    """The wait before a first question, between 0.1 s and 1 s."""

    def __init__(self) -> None:
        self.delay = _SHORTEST

    def asked(self, *, is_there: bool) -> None:
        """Whether a first question has found a verdict."""
        self.delay = max(self.delay - _DOWN, _SHORTEST) if is_there else min(self.delay + _UP, _LONGEST)
