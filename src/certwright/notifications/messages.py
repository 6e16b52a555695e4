"""Problems, and the digest that reports them, as text for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

import msgspec

from certwright.kube.util.encoding import one_line

_SHOWN: Final = 50
"""Problems that one digest lists; their number is always given."""
_LONGEST: Final = 1000


class ProblemKind(Enum):
    """What is wrong with an object; the values are stable."""

    FAILING = "certificateFailing"
    EXPIRING = "certificateExpiring"
    ISSUER = "issuerFailing"
    NEW_KEY = "caKeyReplacement"


_TITLES: Final = {
    ProblemKind.FAILING: "cannot be issued or renewed",
    ProblemKind.EXPIRING: "expires soon and has not been renewed",
    ProblemKind.ISSUER: "is not ready",
    ProblemKind.NEW_KEY: "is a root CA and will be renewed with another key",
}
_RECOVERIES: Final = {
    ProblemKind.FAILING: "no longer fails",
    ProblemKind.EXPIRING: "no longer expires soon",
    ProblemKind.ISSUER: "is ready again, or was deleted",
    ProblemKind.NEW_KEY: "has another key now, or keeps its key",
}


class SendError(Exception):
    """A digest could not be sent; the text is a sentence for the log."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of one object, e.g. `Certificate default/web`. None: unknown, or does not apply."""

    kind: ProblemKind
    subject: str
    cause: str
    fix: str
    since: datetime | None = None
    attempts: int | None = None
    next_attempt: datetime | None = None
    not_after: datetime | None = None

    @property
    def key(self) -> str:
        """The identity of the problem, constant while it lasts."""
        return f"{self.kind.value} {self.subject}"

    @property
    def title(self) -> str:
        """The problem in a phrase."""
        return f"{self.subject} {_TITLES[self.kind]}"

    def lines(self) -> list[str]:
        """The problem in lines of text."""
        dated = (
            ("failing since", self.since),
            ("valid until", self.not_after),
            ("next attempt", self.next_attempt),
        )
        return [
            self.title,
            f"  cause: {one_line(self.cause[:_LONGEST])}",
            f"  fix: {self.fix}",
            *(f"  {name}: {_shown(moment)}" for name, moment in dated if moment is not None),
            *([f"  failed attempts: {self.attempts}"] if self.attempts else []),
        ]

    def content(self) -> dict[str, Any]:
        """The problem as a JSON object."""
        return {
            "problem": self.kind.value,
            "object": self.subject,
            "title": self.title,
            "cause": self.cause[:_LONGEST],
            "fix": self.fix,
            "since": _rfc3339(self.since),
            "attempts": self.attempts,
            "nextAttempt": _rfc3339(self.next_attempt),
            "notAfter": _rfc3339(self.not_after),
        }


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """The changes since the last digest: new problems, problems that still exist after the reminder interval,
    and solved problems (`kind subject`)."""

    sender: str
    at: datetime
    new: Sequence[Problem] = ()
    remaining: Sequence[Problem] = ()
    resolved: Sequence[str] = ()

    @property
    def subject(self) -> str:
        """One line."""
        counts = {"new": len(self.new), "remaining": len(self.remaining), "resolved": len(self.resolved)}
        shown = [f"{count} {what}" for what, count in counts.items() if count]
        titles = [problem.title for problem in (*self.new, *self.remaining)]
        if len(titles) == 1 and not self.resolved:
            return f"certwright: {titles[0]}"
        return f"certwright: {'problems: ' + ', '.join(shown) if shown else 'test of notifications'}"

    @property
    def text(self) -> str:
        """The whole digest as text."""
        lines: list[str] = []
        for heading, problems in (("New problems", self.new), ("Remaining problems", self.remaining)):
            if problems:
                lines += [f"{heading}:", ""]
                for problem in problems[:_SHOWN]:
                    lines += [*problem.lines(), ""]
                lines += _more(problems)
        if self.resolved:
            lines += ["Resolved:", ""]
            for kind, _, subject in (key.partition(" ") for key in self.resolved[:_SHOWN]):
                lines.append(f"  {subject} {_RECOVERIES[ProblemKind(kind)]}")
            lines += [*_more(self.resolved), ""]
        if not lines:
            lines = ["This is a test: notifications reach this destination.", ""]
        return "\n".join([*lines, f"Sent by {self.sender} at {_shown(self.at)}."])

    def content(self) -> dict[str, Any]:
        """The digest as a JSON object. `text` is for chat services, whose webhooks expect it."""
        return {
            "version": 1,
            "text": f"{self.subject}\n\n{self.text}",
            "subject": self.subject,
            "sender": self.sender,
            "at": _rfc3339(self.at),
            "new": [problem.content() for problem in self.new[:_SHOWN]],
            "remaining": [problem.content() for problem in self.remaining[:_SHOWN]],
            "resolved": [
                {"problem": kind, "object": subject}
                for kind, _, subject in (key.partition(" ") for key in self.resolved[:_SHOWN])
            ],
            "counts": {
                "new": len(self.new),
                "remaining": len(self.remaining),
                "resolved": len(self.resolved),
            },
        }


class Destination(msgspec.Struct, frozen=True):
    """A destination; `kind` is that of its transport (`smtp`, `webhook` or `apprise`), and `send` raises
    `SendError`."""

    name: str
    kind: str
    send: Callable[[Digest], Awaitable[None]]


def _more(problems: Sequence[object]) -> list[str]:
    left = len(problems) - _SHOWN
    return [f"… and {left} more; `certwright get certificates -A` lists all", ""] if left > 0 else []


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _rfc3339(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
