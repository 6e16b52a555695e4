"""Validation time of a server, estimated from the last validations.

A server that is polled too early names a time for the next poll, usually a second away: a poll that comes 50
ms too early costs a second, and a request.
"""

from __future__ import annotations

from datetime import timedelta

_FIRST, _SHORTEST, _LONGEST = timedelta(seconds=0.1), timedelta(seconds=0.05), timedelta(seconds=1)
# Forty-nine in fifty first polls shall find the verdict: the delay settles where a step up for each that does
# not is as much as 49 down for those that do. Of many concurrent polls, one that does not delays the end.
_UP, _DOWN = 1.25, 1.25 ** (-1 / 49)


class Pace:
    """The wait before a first poll: 0.1 s in the beginning, later between 0.05 s and 1 s."""

    def __init__(self) -> None:
        self.delay = _FIRST

    def asked(self, *, after: timedelta, is_there: bool) -> None:
        """Whether a first poll, so long after the server was notified, has found a verdict.

        Sixty concurrent polls that were all too early count as one: those after the first, which had not
        waited as long as one would now, change nothing.
        """
        if is_there:
            self.delay = max(self.delay * _DOWN, _SHORTEST)
        elif after >= self.delay:
            self.delay = min(self.delay * _UP, _LONGEST)
