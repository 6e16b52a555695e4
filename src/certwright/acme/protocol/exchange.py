"""A server's directory, and signed requests to it: nonces, retries after badNonce, refusals as errors.

A server chooses the URLs of its orders, authorizations, challenges and certificates, and Orders and
Challenges repeat them. A signed request to any other server would disclose an account's signature to it,
and let the author of the URL choose a target inside our network: so requests go to its origins (RFC 6454 §4)
only.

Source: RFC 8555 §6.2 to §6.7, §7.1.1 (directory).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from certwright.acme.protocol import reading
from certwright.acme.protocol.errors import ForeignUrl, NotAcme, Reaction, checked, problem_in, refusal
from certwright.acme.protocol.jws import AccountKey
from certwright.acme.protocol.messages import Action, Flow, Request, Response, Unsigned
from certwright.kit.outgoing import place_of

_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}


def origin_of(url: str) -> str:
    """`https://host` or `https://host:port` in lower case, without the scheme's default port; empty if the
    URL has no host."""
    # Split by hand, because `urlsplit` would cache the unique URLs of each order. Origins are
    # compared as whole strings, so that user names, backslashes and control characters never match.
    scheme, separator, rest = url.partition("://")
    for mark in "/?#":
        rest = rest.partition(mark)[0]
    if not separator or not rest:
        return ""
    scheme = scheme.lower()
    return f"{scheme}://{rest.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ''))}"


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory. `renewal_info` is empty if the server lacks RFC 9773, `profiles` if it has none."""

    url: str
    new_nonce: str
    new_account: str
    new_order: str
    revoke_cert: str = ""
    key_change: str = ""
    renewal_info: str = ""
    caa_identities: tuple[str, ...] = ()
    external_account_required: bool = False
    profiles: Mapping[str, str] = field(default_factory=dict)
    origins: frozenset[str] = field(init=False, repr=False)
    """The origins of the directory and of the URLs in it: requests go to no others."""

    urls: frozenset[str] = field(init=False, repr=False)
    """The URLs in it."""

    def __post_init__(self) -> None:
        urls = {self.new_nonce, self.new_account, self.new_order}
        urls |= {self.revoke_cert, self.key_change, self.renewal_info} - {""}
        object.__setattr__(self, "urls", frozenset(urls))
        object.__setattr__(self, "origins", frozenset(map(origin_of, (self.url, *urls))) - {""})

    def serves(self, url: str) -> bool:
        """Whether the URL belongs to this server."""
        return origin_of(url) in self.origins


def fetch_directory(url: str) -> Flow[Directory]:
    """Fetch the directory at `url`. Raises `NotAcme` if the response is not a directory."""
    response = checked((yield Request(Action.DIRECTORY, "GET", url)))
    content = reading.read_object(response, "an ACME directory")
    meta = content.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    missing = [name for name in ("newNonce", "newAccount", "newOrder") if not reading.text(content, name)]
    if missing:
        lacks = f"it has no {', '.join(missing)}"
        raise NotAcme(f"{place_of(url)} is not an ACME directory: {lacks}; check the URL with your CA")
    profiles = meta.get("profiles")
    return Directory(
        url=url,
        new_nonce=content["newNonce"],
        new_account=content["newAccount"],
        new_order=content["newOrder"],
        revoke_cert=reading.text(content, "revokeCert"),
        key_change=reading.text(content, "keyChange"),
        renewal_info=reading.text(content, "renewalInfo"),
        caa_identities=reading.texts(meta, "caaIdentities"),
        external_account_required=meta.get("externalAccountRequired") is True,
        profiles={k: str(v) for k, v in profiles.items()} if isinstance(profiles, dict) else {},
    )


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
        """Store the nonce of a response, if any."""
        if nonce := response.header("replay-nonce"):
            self._nonces.append(nonce)


@dataclass(slots=True)
class Session:
    """The state for signed requests to one server by one account. `kid` is the account's URL, empty while
    unknown."""

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
            fresh = checked((yield Request(Action.NEW_NONCE, "HEAD", session.directory.new_nonce)))
            nonce = fresh.header("replay-nonce")
            if not nonce:
                place = place_of(session.directory.new_nonce)
                raise NotAcme(f"{place} answered {fresh.status}, but without a Replay-Nonce")
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
