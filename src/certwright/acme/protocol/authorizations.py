"""Authorizations and their challenges: fetch, accept (RFC 8555 §7.1.4, §7.5, §8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from certwright.acme.protocol import reading
from certwright.acme.protocol.exchange import Session, post
from certwright.acme.protocol.messages import Action, Flow, Response
from certwright.acme.protocol.problem import Identifier, Problem, problem_of


@dataclass(frozen=True, slots=True)
class Challenge:
    """A challenge. `status` is pending, processing, valid or invalid; unknown values survive. `token` is
    empty for types that have none (dns-persist-01)."""

    url: str
    type: str
    token: str
    status: str
    error: Problem | None = None
    raw: Mapping[str, object] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Authorization:
    """An authorization. `status` is pending, valid, invalid, deactivated, expired or revoked; unknown values
    survive."""

    url: str
    status: str
    identifier: Identifier
    wildcard: bool = False
    expires: datetime | None = None
    challenges: tuple[Challenge, ...] = ()
    retry_after: datetime | None = None
    raw: Mapping[str, object] = field(default_factory=dict, repr=False)

    @property
    def error(self) -> Problem | None:
        """Why the authorization is not valid: the error of the challenge that failed."""
        return next((challenge.error for challenge in self.challenges if challenge.error), None)


def fetch_authorization(session: Session, url: str) -> Flow[Authorization]:
    """Fetch the current authorization."""
    response = yield from post(session, Action.AUTHORIZATION, url)
    return _read(url, response)


def accept_challenge(session: Session, url: str, payload: Mapping[str, Any] | None = None) -> Flow[Challenge]:
    """Accept the challenge: the server may validate it from now on (§7.5.1)."""
    response = yield from post(session, Action.CHALLENGE, url, dict(payload or {}))
    return _challenge(reading.read_object(response, "a challenge"), url)


def _read(url: str, response: Response) -> Authorization:
    content = reading.read_object(response, "an authorization")
    identifier = content.get("identifier")
    identifier = identifier if isinstance(identifier, dict) else {}
    return Authorization(
        url=url,
        status=reading.needed_text(content, "status", url=url, what="an authorization"),
        identifier=Identifier(reading.text(identifier, "type"), reading.text(identifier, "value")),
        wildcard=content.get("wildcard") is True,
        expires=reading.moment(content, "expires"),
        challenges=tuple(_challenge(item, "") for item in reading.objects(content, "challenges")),
        retry_after=response.retry_after,
        raw=content,
    )


def _challenge(content: dict[str, Any], url: str) -> Challenge:
    return Challenge(
        url=reading.text(content, "url") or url,
        type=reading.text(content, "type"),
        token=reading.text(content, "token"),
        status=reading.text(content, "status"),
        error=problem_of(content.get("error")),
        raw=content,
    )
