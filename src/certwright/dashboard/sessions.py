"""Sessions of the dashboard: sealed cookies, one-time links, and tokens against forged forms.

A session is a cookie with the user's credential, encrypted with a key of the server. The server stores
nothing until a log-out (`log_outs`), and any server of the store accepts the cookie. A session is only as
good as its credential, which is checked with each request. It ends `IDLE` after the last page, and `LIFETIME`
after the log-in. Source: OWASP, "Session Management Cheat Sheet" and "Cross-Site Request Forgery Prevention".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import zlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from certwright.dashboard.access import Credential
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import msgpack_decoder

COOKIE: Final = "__Secure-certwright"
"""Browsers accept this prefix over TLS only (RFC 6265bis §4.1.3.1): no page without TLS plants a session."""
LIFETIME: Final = timedelta(hours=8)
"""How long a session lasts, however often it is used; its credential may end earlier."""
IDLE: Final = timedelta(hours=1)
"""How long a session lasts without a page of it: an open page that is visible counts."""
RENEWAL: Final = timedelta(minutes=5)
"""How often a session that is used gets a new cookie."""
LINK_LIFETIME: Final = timedelta(minutes=15)
"""How long a one-time link can be used."""
_LONGEST_COOKIE: Final = 3800
"""Bytes. Browsers keep some 4,096 of a cookie with its name and attributes (RFC 6265 §6.1)."""
_MOST_LINKS: Final = 1024
_MOST_LINKS_OF_ONE: Final = 8
_MOST_ENDED: Final = 65_536


class TooLong(ValueError):
    """A credential that fits into no cookie."""


class Session(msgspec.Struct, frozen=True):
    """What a cookie contains. `id` identifies the session, `end` and `idle_end` are in Unix time."""

    id: str
    end: float
    idle_end: float
    token: str
    certificate: bytes

    @property
    def credential(self) -> Credential:
        """The user's credential."""
        return Credential(self.token, self.certificate)


_SESSIONS = msgpack_decoder(Session)


class Sessions:
    """The sessions of all servers that have the same `seal_key` (any secret bytes)."""

    def __init__(self, seal_key: bytes, clock: Clock) -> None:
        self._key = hashlib.sha256(b"certwright dashboard sessions\0" + seal_key).digest()
        self._aead = AESGCM(self._key)
        self._clock = clock
        self._links: dict[bytes, tuple[datetime, Credential]] = {}
        self._ended: dict[str, float] = {}

    def begin(self, credential: Credential) -> str:
        """The value of the cookie of a new session. Raises `TooLong`."""
        now = self._clock.now()
        end, idle_end = (now + LIFETIME).timestamp(), (now + IDLE).timestamp()
        return self._seal(
            Session(secrets.token_urlsafe(12), end, idle_end, credential.token, credential.certificate)
        )

    def renewed(self, session: Session) -> str:
        """The value of another cookie of a session that is being used; empty while the present one is new."""
        idle_end = (self._clock.now() + IDLE).timestamp()
        if idle_end - session.idle_end < RENEWAL.total_seconds():
            return ""
        return self._seal(msgspec.structs.replace(session, idle_end=idle_end))

    def _seal(self, session: Session) -> str:
        nonce = secrets.token_bytes(12)
        sealed = self._aead.encrypt(nonce, zlib.compress(msgspec.msgpack.encode(session), 9), b"session")
        value = base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()
        if len(value) > _LONGEST_COOKIE:
            raise TooLong(f"the credential is too long for a session: {len(value)} bytes sealed")
        return value

    def read(self, value: str) -> Session | None:
        """The session of a cookie; None if it has ended, or no server of the store has made it."""
        try:
            sealed = base64.urlsafe_b64decode(value.encode() + b"=" * (-len(value) % 4))
            opened = self._aead.decrypt(sealed[:12], sealed[12:], b"session")
            session = _SESSIONS.decode(zlib.decompress(opened))
        except (ValueError, InvalidTag, zlib.error, msgspec.MsgspecError):
            return None
        is_idle = session.idle_end <= self._clock.now().timestamp()
        return session if self.is_valid(session) and not is_idle else None

    def is_valid(self, session: Session) -> bool:
        """Whether the session has not ended: a page that stays open is not idle."""
        return session.end > self._clock.now().timestamp() and _id_digest(session) not in self._ended

    def end(self, session: Session) -> tuple[str, float]:
        """Accept the session's cookies no more. Returns what `add_ended` gets on other servers."""
        # No cookie of it is valid longer: an ended session gets no others.
        until = min(session.end, (self._clock.now() + IDLE).timestamp())
        digest = _id_digest(session)
        self.add_ended({digest: until})
        return digest, until

    def add_ended(self, digests: Mapping[str, float]) -> None:
        """Refuse cookies of the sessions with these digests until these Unix times, when they end anyway."""
        now = self._clock.now().timestamp()
        self._ended = {digest: end for digest, end in {**self._ended, **digests}.items() if end > now}
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def form_token(self, session: Session) -> str:
        """The token that forms of the session carry."""
        return hmac.new(self._key, b"form\0" + session.id.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, session: Session, token: str) -> bool:
        """Whether a form of this session was sent."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode())

    def seal_notice(self, session: Session, sentence: str) -> str:
        """The seal of a sentence that the session's next page shows: no other site can make it show one."""
        return hmac.new(self._key, f"notice\0{session.id}\0{sentence}".encode(), hashlib.sha256).hexdigest()

    def is_notice(self, session: Session, sentence: str, seal: str) -> bool:
        """Whether that is the seal of the sentence."""
        return bool(seal) and hmac.compare_digest(self.seal_notice(session, sentence).encode(), seal.encode())

    def make_link(self, credential: Credential) -> str:
        """A code that begins one session of the user, once, within `LINK_LIFETIME`."""
        now = self._clock.now()
        self._links = {key: entry for key, entry in self._links.items() if entry[0] > now}
        same = [key for key, entry in self._links.items() if entry[1] == credential]
        for key in same[: max(0, len(same) + 1 - _MOST_LINKS_OF_ONE)]:
            del self._links[key]
        while len(self._links) >= _MOST_LINKS:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(24)
        self._links[_digest(code)] = (now + LINK_LIFETIME, credential)
        return code

    def use_link(self, code: str) -> Credential | None:
        """The credential of the code, which is used up; None for one that is unknown, used or too old."""
        entry = self._links.pop(_digest(code), None)
        return entry[1] if entry is not None and entry[0] > self._clock.now() else None


def _id_digest(session: Session) -> str:
    return _digest(session.id).hex()[:32]


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="surrogateescape")).digest()
