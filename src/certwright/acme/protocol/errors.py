"""What can go wrong with an ACME server.

    AcmeError
    ├── Unreachable         no answer: no connection, no name, no trust, no time
    │   └── Untrusted       its TLS certificate is not trusted; waiting does not help
    ├── NotAcme             an answer, but not of an ACME server
    ├── ForeignUrl          a URL of another server, which is not asked
    └── Refused             the server says no, with a problem document or without
        └── AccountTrouble  … because of our account

Whether and when to try again is in the type and in `retry_after`, never in a text.
"""

from __future__ import annotations

from datetime import datetime

from certwright.acme.protocol.problem import Problem, Reaction
from certwright.kit.outgoing import place_of


class AcmeError(Exception):
    """The text is one sentence for a condition: what happened, and what the server said."""

    @property
    def reaction(self) -> Reaction:
        """What can be done about it."""
        return Reaction.WAIT


class Unreachable(AcmeError):
    """No answer came. Trying again later is right: nothing is known to have happened."""


class Untrusted(Unreachable):
    """The server's TLS certificate is not trusted, has expired, or is for another name."""


class NotAcme(AcmeError):
    """What answered does not speak ACME (RFC 8555), or breaks it."""


class ForeignUrl(AcmeError):
    """A URL has another origin than its server's directory and the URLs in it. No request was sent."""

    def __init__(self, url: str, directory_url: str) -> None:
        super().__init__(
            f"{place_of(url)} is not a URL of the ACME server at {directory_url}: neither its "
            "directory nor a URL in it has this scheme, host and port; no request is sent there"
        )

    @property
    def reaction(self) -> Reaction:
        """Sending it again changes nothing."""
        return Reaction.OUR_MISTAKE


class Refused(AcmeError):
    """The server refused. `retry_after` is the moment that it named, if it did."""

    def __init__(self, problem: Problem, *, status: int, retry_after: datetime | None = None) -> None:
        super().__init__(problem.sentence)
        self.problem = problem
        self.status = status
        self.retry_after = retry_after

    @property
    def reaction(self) -> Reaction:
        """What can be done about it."""
        return self.problem.reaction

    @property
    def is_limit(self) -> bool:
        """Whether it was refused because there have been too many (RFC 8555 §6.6)."""
        return self.problem.name == "rateLimited" or self.status == 429


class AccountTrouble(Refused):
    """The account must be mended before anything else can succeed."""


def refusal(problem: Problem, *, status: int, retry_after: datetime | None) -> Refused:
    """The error of the right type for a problem."""
    kind = AccountTrouble if problem.reaction is Reaction.ACCOUNT else Refused
    return kind(problem, status=status, retry_after=retry_after)
