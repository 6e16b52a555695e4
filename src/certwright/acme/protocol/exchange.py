"""Signed requests: nonces, and what a server's refusal becomes.

Source: RFC 8555 §6.2 to §6.7.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from certwright.acme.protocol.errors import ForeignUrl, NotAcme, refusal
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Flow, Request, Response, Unsigned
from certwright.acme.protocol.problem import Problem, Reaction, read_problem
from certwright.kit.outgoing import place_of

if TYPE_CHECKING:
    from certwright.acme.protocol.directory import Directory

# A server that refuses half of all nonces refuses this many in a row once in a million requests.
_MOST_NONCES = 20
# Nonces die with age at most servers; the newest are used first, and there is no use in hoarding.
_POOL = 64


class Nonces:
    """Unused nonces, the newest first (RFC 8555 §6.5). Shared by all flows of an account."""

    def __init__(self) -> None:
        self._held: deque[str] = deque(maxlen=_POOL)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._held)

    def take(self) -> str | None:
        """A nonce nobody else will get; None where there is none."""
        return self._held.pop() if self._held else None

    def keep(self, response: Response) -> None:
        """Remember the nonce that came with a response, if one did."""
        if nonce := response.header("replay-nonce"):
            self._held.append(nonce)


@dataclass(slots=True)
class Session:
    """What signed requests to one server by one account need. `kid` is the account's URL, empty before it
    is known."""

    directory: Directory
    key: AccountKey
    kid: str = ""
    nonces: Nonces = field(default_factory=Nonces)


def post(
    session: Session,
    action: Action,
    url: str,
    payload: Any | None = None,
    *,
    key: AccountKey | None = None,
    accept: str = "",
) -> Flow[Response]:
    """One signed request; without a payload it is a POST-as-GET (RFC 8555 §6.3).

    `key` signs instead of the account, and shows itself in the header. Raises `Refused` for what the server
    refuses; a refused nonce is not among that: "clients … SHOULD retry" at once (§6.5). Raises `ForeignUrl`
    before anything is sent where the URL is not one of the server's.
    """
    if not session.directory.serves(url):
        raise ForeignUrl(url, session.directory.url)
    body = b"" if payload is None else msgspec.json.encode(payload)
    for _ in range(_MOST_NONCES):
        nonce = session.nonces.take()
        if nonce is None:
            nonce = yield from _new_nonce(session)
        header: dict[str, Any] = {"nonce": nonce, "url": url}
        signer = key or session.key
        if key is None and session.kid:
            header["kid"] = session.kid
        else:
            header["jwk"] = signer.public
        sign = partial(signer.sign, header, body)
        response = yield Unsigned(action, url, sign, is_slow=signer.is_slow, accept=accept)
        session.nonces.keep(response)
        problem = problem_in(response)
        if problem is None:
            return response
        if problem.reaction is not Reaction.AT_ONCE:
            raise refusal(problem, status=response.status, retry_after=response.retry_after)
    raise NotAcme(f"{place_of(url)} refused {_MOST_NONCES} fresh nonces in a row")


def _new_nonce(session: Session) -> Flow[str]:
    url = session.directory.new_nonce
    response = checked((yield Request(Action.NEW_NONCE, "HEAD", url)))
    nonce = response.header("replay-nonce")
    if not nonce:
        raise NotAcme(f"{place_of(url)} answered {response.status}, but without a Replay-Nonce")
    return nonce


def checked(response: Response) -> Response:
    """The response, if it is a success. Raises `Refused` otherwise."""
    problem = problem_in(response)
    if problem is None:
        return response
    raise refusal(problem, status=response.status, retry_after=response.retry_after)


def problem_in(response: Response) -> Problem | None:
    """What is wrong according to the response; None for a success. A refusal without a problem document
    (by a proxy, say) becomes one."""
    if 200 <= response.status < 300:
        return None
    found = read_problem(response.body, response.status, media_type=response.header("content-type"))
    if found is not None:
        return found
    return Problem(
        detail=f"{place_of(response.url)} answered HTTP status {response.status} without saying why",
        status=response.status,
    )
