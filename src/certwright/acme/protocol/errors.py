"""Errors of the exchange with an ACME server.

    AcmeError
    ├── Unreachable         no response: no connection, no DNS name, no trust, timeout
    │   └── Untrusted       the server's TLS certificate is not trusted; waiting does not help
    ├── NotAcme             a response, but not from an ACME server
    ├── ForeignUrl          a URL of another server; no request is sent
    └── Refused             the server refuses, with or without a problem document
        └── AccountTrouble  … because of our account

Whether and when to retry is in the type and in `retry_after`, never in a text.
"""

from __future__ import annotations

from datetime import datetime

from certwright.acme.protocol.messages import Response
from certwright.acme.protocol.problem import Fault, Problem, Reaction, read_problem
from certwright.kit.outgoing import place_of


class AcmeError(Exception):
    """Base class. The text is one sentence for a condition: what happened, and the server's words."""

    @property
    def reaction(self) -> Reaction:
        """How to react to the error."""
        return Reaction.WAIT

    @property
    def in_full(self) -> str:
        """The text for an object that fails by the error."""
        return str(self)


class Unreachable(AcmeError):
    """No response arrived, and the request may have had no effect: retry later."""


class Untrusted(Unreachable):
    """The server's TLS certificate is not trusted, has expired, or is for another name."""


class NotAcme(AcmeError):
    """The server does not speak ACME, or violates RFC 8555."""


class ForeignUrl(AcmeError):
    """A URL whose origin differs from those of its server's directory and the URLs in it. No request was
    sent."""

    def __init__(self, url: str, directory_url: str) -> None:
        super().__init__(
            f"{place_of(url)} is not a URL of the ACME server at {directory_url}: neither its "
            "directory nor a URL in it has this scheme, host and port; no request is sent there"
        )

    @property
    def reaction(self) -> Reaction:
        """Sending the request again changes nothing."""
        return Reaction.OUR_MISTAKE


class Refused(AcmeError):
    """The server refused the request to `url`. `retry_after` is the moment that the server named, if any."""

    def __init__(
        self, problem: Problem, *, status: int, retry_after: datetime | None = None, url: str = ""
    ) -> None:
        super().__init__(problem.sentence)
        self.problem = problem
        self.status = status
        self.retry_after = retry_after
        self.url = url

    @property
    def reaction(self) -> Reaction:
        """How to react to the error."""
        return self.problem.reaction

    @property
    def in_full(self) -> str:
        """With the HTTP status and the URN of the problem type."""
        return self.problem.sentence_with_urn

    @property
    def is_gone(self) -> bool:
        """Whether the server does not know what the URL names, or not any more."""
        return self.status in (404, 405, 410)

    @property
    def is_limit(self) -> bool:
        """Whether a rate limit is the cause (RFC 8555 §6.6)."""
        known = self.problem.known
        return self.status == 429 or (known is not None and known.fault is Fault.LIMIT)


class AccountTrouble(Refused):
    """The account must be repaired before any other request can succeed."""

    @property
    def reaction(self) -> Reaction:
        """Also for `unauthorized`, if the account is the cause."""
        return Reaction.ACCOUNT


def refusal(problem: Problem, response: Response) -> Refused:
    """The error of the right type for the problem in a response."""
    kind = AccountTrouble if problem.reaction is Reaction.ACCOUNT else Refused
    return kind(problem, status=response.status, retry_after=response.retry_after, url=response.url)


def checked(response: Response) -> Response:
    """The response, if it is a success. Raises `Refused` otherwise."""
    problem = problem_in(response)
    if problem is None:
        return response
    raise refusal(problem, response)


def problem_in(response: Response) -> Problem | None:
    """The problem that the response reports; None for a success. A refusal without a problem document
    (e.g. by a proxy) becomes one."""
    if 200 <= response.status < 300:
        return None
    problem = read_problem(response.body, response.status, media_type=response.header("content-type"))
    if problem is not None:
        return problem
    return Problem(
        detail=f"{place_of(response.url)} answered HTTP status {response.status} without saying why",
        status=response.status,
    )
