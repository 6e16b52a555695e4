"""Signed requests: nonces, retries after badNonce, and refusals as errors.

Source: RFC 8555 §6.2 to §6.7.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from certwright.acme.protocol.directory import Directory
from certwright.acme.protocol.errors import ForeignUrl, NotAcme, checked, problem_in, refusal
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Flow, Request, Response, Unsigned
from certwright.acme.protocol.problem import Reaction
from certwright.kit.outgoing import place_of

# A server that rejects a tenth of all nonces rejects this many in a row once in 100,000 requests. One that
# rejects all of them is asked again later.
_MOST_NONCES = 5
# Nonces expire at most servers: the newest are used first, and a large stock is useless.
_POOL = 64


class Nonces:
    """Unused nonces, the newest first (RFC 8555 §6.5). Shared by all flows of an account."""

    def __init__(self) -> None:
        self._nonces: deque[str] = deque(maxlen=_POOL)

    def __len__(self) -> int:
        """The number of unused nonces."""
        return len(self._nonces)

    def pop(self) -> str | None:
        """Remove and return a nonce; None if there is none."""
        return self._nonces.pop() if self._nonces else None

    def keep(self, response: Response) -> None:
        """Store the nonce of a response, if it has one."""
        if nonce := response.header("replay-nonce"):
            self._nonces.append(nonce)


@dataclass(slots=True)
class Session:
    """The state for signed requests to one server by one account. `kid` is the account's URL, empty until it
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
    """Send one signed request; without a payload it is a POST-as-GET (RFC 8555 §6.3).

    `key` signs instead of the account, with itself as `jwk` in the header. Raises `Refused` if the server
    refuses, except for badNonce: "clients … SHOULD retry" immediately (§6.5). Raises `ForeignUrl` before
    anything is sent if the URL is not one of the server's.
    """
    if not session.directory.serves(url):
        raise ForeignUrl(url, session.directory.url)
    body = b"" if payload is None else msgspec.json.encode(payload)
    for _ in range(_MOST_NONCES):
        nonce = session.nonces.pop()
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
            raise refusal(problem, response)
    raise NotAcme(f"{place_of(url)} refused {_MOST_NONCES} fresh nonces in a row")


def _new_nonce(session: Session) -> Flow[str]:
    url = session.directory.new_nonce
    response = checked((yield Request(Action.NEW_NONCE, "HEAD", url)))
    nonce = response.header("replay-nonce")
    if not nonce:
        raise NotAcme(f"{place_of(url)} answered {response.status}, but without a Replay-Nonce")
    return nonce
