"""Sessions of the dashboard: sealed cookies, one-time links, and tokens against forged forms.

A session is a cookie that contains the user's credential, encrypted with a key of the server: nothing is kept
for it, any server of the store accepts it, and it is only as good as the credential, which is checked with
each request. Source: OWASP, "Session Management Cheat Sheet" and "Cross-Site Request Forgery Prevention".
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import zlib
from datetime import datetime, timedelta
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from certwright.dashboard.access import Credential
from certwright.kube.util.clock import Clock

COOKIE: Final = "certwright-session"
LIFETIME: Final = timedelta(hours=8)
"""How long a session lasts, however often it is used; its credential may end earlier."""
LINK_LIFETIME: Final = timedelta(minutes=15)
"""How long a one-time link can be used."""
_LONGEST_COOKIE: Final = 3800
"""Bytes. Browsers keep some 4,096 of a cookie with its name and attributes (RFC 6265 §6.1)."""
_MOST_LINKS: Final = 64
_MOST_ENDED: Final = 4096


class TooLong(ValueError):
    """A credential that fits into no cookie."""


class Session(msgspec.Struct, frozen=True):
    """What a cookie contains. `id` identifies the session, `end` is in Unix time."""

    id: str
    end: float
    token: str
    certificate: bytes

    @property
    def credential(self) -> Credential:
        """The user's credential."""
        return Credential(self.token, self.certificate)


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
        end = (self._clock.now() + LIFETIME).timestamp()
        session = Session(secrets.token_urlsafe(12), end, credential.token, credential.certificate)
        nonce = secrets.token_bytes(12)
        sealed = self._aead.encrypt(nonce, zlib.compress(msgspec.msgpack.encode(session), 9), b"session")
        value = base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()
        if len(value) > _LONGEST_COOKIE:
            raise TooLong(f"the credential is too long for a session: {len(value)} bytes sealed")
        return value

    def read(self, value: str) -> Session | None:
        """The session of a cookie; None for one that has ended, or that no server here has made."""
        try:
            sealed = base64.urlsafe_b64decode(value.encode() + b"=" * (-len(value) % 4))
            opened = self._aead.decrypt(sealed[:12], sealed[12:], b"session")
            session = msgspec.msgpack.decode(zlib.decompress(opened), type=Session)
        except (ValueError, InvalidTag, zlib.error, msgspec.MsgspecError):
            return None
        return session if self.is_valid(session) else None

    def is_valid(self, session: Session) -> bool:
        """Whether the session has not ended."""
        return session.end > self._clock.now().timestamp() and session.id not in self._ended

    def end(self, session: Session) -> None:
        """Accept the session's cookie no more."""
        now = self._clock.now().timestamp()
        self._ended = {name: end for name, end in self._ended.items() if end > now}
        while len(self._ended) >= _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[session.id] = session.end

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
        """A code that begins one session of that user, once, within `LINK_LIFETIME`."""
        now = self._clock.now()
        self._links = {key: entry for key, entry in self._links.items() if entry[0] > now}
        while len(self._links) >= _MOST_LINKS:
            del self._links[next(iter(self._links))]
        code = secrets.token_urlsafe(24)
        self._links[_digest(code)] = (now + LINK_LIFETIME, credential)
        return code

    def use_link(self, code: str) -> Credential | None:
        """The credential of the code, which is used up; None for one that is unknown, used or too old."""
        entry = self._links.pop(_digest(code), None)
        return entry[1] if entry is not None and entry[0] > self._clock.now() else None


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode(errors="surrogateescape")).digest()
