"""Issuers with a server's HTTP API: their Secrets, JSON calls, access tokens, sessions and outcomes.

cert-manager logs in for every check and every certificate. A login takes as long as a signature, and a server
may limit how often credentials are used. So a token is kept, renewed after two thirds of its lifetime, and
discarded when the server does not accept it any more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

import msgspec

from certwright.issuers.contract import Checked, GetSecret, Pending
from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerError, parse_retry_after, place_of, quote
from certwright.kube.util.caches import Lru
from certwright.pki.csr import CsrFacts
from certwright.resources.causes import Cause
from certwright.resources.references import SecretKeySelector

T = TypeVar("T")
S = TypeVar("S", bound="Session[Any]")
SettingsT = TypeVar("SettingsT")

_MOST_SESSIONS: Final = 256
_MOST_ERRORS: Final = 3
_RENEW_AT: Final = 2 / 3
# A token with a shorter rest may expire on its way.
_LEAST_LEFT: Final = timedelta(seconds=5)
_CHECK_AGAIN: Final = timedelta(seconds=15)
"""Until the next check of a server that does not work, and the next attempt without a circuit breaker."""
CHECK_ANYWAY: Final = timedelta(hours=1)
"""Until the next check of an issuer that is ready."""
NO_REQUESTS: Final = "this process makes no requests"
_MISSING: Final = "SecretMissing"

Headers = tuple[tuple[str, str], ...]
Fields = Mapping[str, tuple[str, Callable[[CsrFacts], tuple[str, ...]]]]

NAMES: Final[Fields] = {
    "common_name": ("spec.commonName", lambda csr: (csr.common_name,) if csr.common_name else ()),
    "dns_names": ("spec.dnsNames", lambda csr: csr.dns_names),
    "ip_addresses": ("spec.ipAddresses", lambda csr: csr.ip_addresses),
    "uris": ("spec.uris", lambda csr: csr.uris),
    "email_addresses": ("spec.emailAddresses", lambda csr: csr.email_addresses),
}
"""The fields of a Certificate with names, and their values in a signing request."""


class BadSettings(Exception):
    """The spec, or a Secret that it names, is invalid. The message is one sentence with the fix."""

    def __init__(self, message: str, *, secret: str = "", is_missing: bool = False) -> None:
        super().__init__(message)
        self.secret = secret
        self.is_missing = is_missing


async def secret_value(get_secret: GetSecret, ref: SecretKeySelector, default_key: str, where: str) -> bytes:
    """The entry of a Secret that the field `where` names. Raises `BadSettings`."""
    data = await get_secret(ref.name)
    if data is None:
        raise BadSettings(
            f'the Secret "{ref.name}" in {where} does not exist; create it', secret=ref.name, is_missing=True
        )
    key = ref.key or default_key
    if not data.get(key):
        raise BadSettings(
            f'the Secret "{ref.name}" in {where} has no entry "{key}"; add it, or correct the key',
            secret=ref.name,
        )
    return data[key]


async def secret_line(
    get_secret: GetSecret, ref: SecretKeySelector, default_key: str, where: str, *, is_ascii: bool = True
) -> str:
    """A credential as text without the newline that editors add. `is_ascii`: as headers need it."""
    value = await secret_value(get_secret, ref, default_key, where)
    try:
        text = value.decode("ascii" if is_ascii else "utf-8").strip()
    except UnicodeDecodeError:
        text = ""
    if not text or not text.isprintable():
        raise BadSettings(
            f'the entry "{ref.key or default_key}" of the Secret "{ref.name}" in {where} is not one line of '
            f"{'ASCII ' if is_ascii else ''}text; replace it",
            secret=ref.name,
        )
    return text


class CallError(Exception):
    """A call without success. The message is one sentence."""


class Unavailable(CallError):
    """The server does not work now. `not_before` is its `Retry-After`; `is_limit`: it limits requests."""

    def __init__(self, message: str, *, not_before: datetime | None = None, is_limit: bool = False) -> None:
        super().__init__(message)
        self.not_before = not_before
        self.is_limit = is_limit


class Unauthorized(CallError):
    """The server does not accept the token or the key, or it may not do this."""


class Refused(CallError):
    """Another 4xx: the server understands the call and refuses it. `errors`: its documented error texts,
    bounded and cleaned."""

    def __init__(self, message: str, status: int, errors: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.errors = errors


class LoginRefused(Exception):
    """The server refuses the login. The message is one sentence."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: its JSON object, or its text if the call asked for text."""

    status: int
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)


class ErrorFormat(msgspec.Struct, frozen=True):
    """How a product reports errors: the documented texts in the JSON object of an answer, the status for a
    token that it does not accept, and what other statuses mean (appended to the message)."""

    product: str
    texts: Callable[[Mapping[str, Any]], Sequence[object]]
    unauthorized: int = 401
    hints: Mapping[int, str] = msgspec.field(default_factory=dict)


class Calls:
    """Sends JSON calls with `http`. `now` returns the time. Methods raise `CallError`."""

    def __init__(self, http: HttpClient, now: Callable[[], datetime], errors: ErrorFormat) -> None:
        self._http = http
        self._now = now
        self._errors = errors

    async def get(
        self, url: str, headers: Headers = (), *, is_text: bool = False, accepted: Collection[int] = ()
    ) -> Answer:
        """A GET. Statuses of `accepted` are answers as well as 2xx ones."""
        return await self._send("GET", url, headers, b"", is_text=is_text, accepted=accepted)

    async def post(
        self, url: str, body: Mapping[str, Any], headers: Headers = (), *, accepted: Collection[int] = ()
    ) -> Answer:
        """A POST of a JSON object."""
        headers = (("Content-Type", "application/json"), *headers)
        return await self._send("POST", url, headers, json.dumps(body).encode(), accepted=accepted)

    async def post_form(self, url: str, body: bytes, headers: Headers = ()) -> Answer:
        """A POST of an encoded form."""
        headers = (("Content-Type", "application/x-www-form-urlencoded"), *headers)
        return await self._send("POST", url, headers, body)

    async def is_reachable(self, url: str) -> None:
        """Return if the server answers at all, whatever it thinks of a GET without credentials. Raises
        `Unavailable`."""
        try:
            await self._send("GET", url, (), b"", is_text=True)
        except (Unauthorized, Refused):
            return

    async def _send(
        self,
        method: str,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        is_text: bool = False,
        accepted: Collection[int] = (),
    ) -> Answer:
        headers = (("Accept", "*/*" if is_text else "application/json"), *headers)
        try:
            answer = await self._http.send(method, url, body=body, headers=headers)
        except ServerError as error:
            raise Unavailable(str(error)) from error
        if not 200 <= answer.status < 300 and answer.status not in accepted:
            raise self._error(answer, place_of(url))
        if is_text or not answer.body:
            return Answer(answer.status, text=answer.body.decode("utf-8", "replace"))
        try:
            return Answer(answer.status, mapping(json.loads(answer.body)))
        except (ValueError, RecursionError) as error:
            message = f"{place_of(url)} answered with {answer.status} and no JSON"
            raise Unavailable(f"{message}: is that a {self._errors.product}?") from error

    def _error(self, answer: HttpAnswer, place: str) -> CallError:
        try:
            raw = self._errors.texts(mapping(json.loads(answer.body)))
        except (ValueError, RecursionError):
            raw = ()
        # Nothing else of an answer is quoted.
        errors = tuple(quote(text.strip()) for text in raw if isinstance(text, str) and text.strip())
        errors, status = errors[:_MOST_ERRORS], answer.status
        text = f"{place} answered {status}" + (f": {'; '.join(errors)}" if errors else "")
        text += self._errors.hints.get(status, "")
        if status == self._errors.unauthorized:
            return Unauthorized(text)
        if status == 429 or not 400 <= status < 500:
            not_before = parse_retry_after(answer.header("retry-after"), self._now())
            return Unavailable(text, not_before=not_before, is_limit=status == 429)
        return Refused(text, status, errors)


def mapping(value: object) -> Mapping[str, Any]:
    """The JSON object; empty for any other value."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """The JSON string; empty for any other value."""
    return value if isinstance(value, str) else ""


def texts_of(value: object) -> tuple[str, ...]:
    """The strings of a JSON array; empty if it is another value."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def lifetime_of(seconds: object) -> timedelta | None:
    """The lifetime of a token; None for 0 (for ever) and for another value than a number of seconds."""
    return timedelta(seconds=seconds) if isinstance(seconds, int) and 0 < seconds < 2**31 else None


@dataclass(frozen=True, slots=True)
class Token:
    """An access token. `lifetime` None: unknown, or the token does not expire. `renewal`: the token that
    renews it; empty: only a login gives a new token."""

    value: str = field(repr=False)
    lifetime: timedelta | None = None
    renewal: str = field(default="", repr=False)


class _Kept(msgspec.Struct, frozen=True):
    token: Token
    received_at: datetime

    def is_due(self, now: datetime) -> bool:
        """Whether it is to be renewed."""
        lifetime = self.token.lifetime
        return lifetime is not None and now >= self.received_at + lifetime * _RENEW_AT

    def is_over(self, now: datetime) -> bool:
        """Whether the token may expire before its use."""
        lifetime = self.token.lifetime
        return lifetime is not None and now >= self.received_at + lifetime - _LEAST_LEFT

    def is_renewable(self, now: datetime) -> bool:
        """A refresh token outlives the access token; a token that renews itself does not."""
        renewal = self.token.renewal
        return bool(renewal) and not (renewal == self.token.value and self.is_over(now))


class Tokens:
    """The token of one issuer. `now` returns the time.

    `log_in` and `renew` raise `CallError`; `log_in` may raise `LoginRefused` and `BadSettings`. `is_valid`:
    whether the server knows a token that it does not accept for a call; None: such a token is invalid.
    """

    def __init__(
        self,
        log_in: Callable[[], Awaitable[Token]],
        now: Callable[[], datetime],
        *,
        renew: Callable[[str], Awaitable[Token]] | None = None,
        is_valid: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self._log_in = log_in
        self._renew = renew
        self._is_valid = is_valid
        self._now = now
        self._kept: _Kept | None = None
        self._token_lock = asyncio.Lock()

    async def use(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with the token. A token that the server does not accept is replaced once.

        Raises what `log_in` and `call` raise, and `LoginRefused`.
        """
        token = await self._get()
        try:
            return await call(token)
        except Unauthorized:
            # A policy forbids the call, or the token was revoked, or has ended early.
            if self._is_kept(token) and self._is_valid is not None and await self._is_valid(token):
                raise
            if self._is_kept(token):
                self._kept = None
            return await call(await self._get())

    async def _get(self) -> str:
        """A valid token: the cached token, a renewed token, or the token of a new login."""
        async with self._token_lock:
            kept, now = self._kept, self._now()
            if kept is not None and kept.is_due(now):
                if self._renew is not None and kept.is_renewable(now):
                    try:
                        kept = _Kept(await self._renew(kept.token.renewal), self._now())
                    except (Unauthorized, Refused):
                        kept = None
                # A renewal may be as good as none, at the end of the longest lifetime.
                if kept is not None and kept.is_over(self._now()):
                    kept = None
            if kept is None:
                try:
                    kept = _Kept(await self._log_in(), self._now())
                except (Unauthorized, Refused) as error:
                    raise LoginRefused(f"the server refuses the login: {error}") from error
            self._kept = kept
            return kept.token.value

    def _is_kept(self, token: str) -> bool:
        return self._kept is not None and self._kept.token.value == token


class Session(Generic[SettingsT]):
    """One issuer at its server: its settings, and its tokens, or the fixed token of its Secret."""

    def __init__(self, settings: SettingsT, tokens: Tokens | str) -> None:
        self.settings = settings
        self._tokens = tokens

    async def use(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with a token; see `Tokens.use`."""
        return await (call(self._tokens) if isinstance(self._tokens, str) else self._tokens.use(call))


class Sessions(Generic[S]):
    """The sessions of this process, by the UIDs of the issuers."""

    def __init__(self) -> None:
        self._sessions: Lru[str, S] = Lru(_MOST_SESSIONS)

    def get(self, uid: str, settings: object, make: Callable[[], S]) -> S:
        """The session of an issuer; a new one when its settings have changed."""
        kept = self._sessions.get(uid)
        if kept is not None and kept.settings == settings:
            return kept
        return self._sessions.put(uid, make())


def not_ready(reason: str, message: str, secret: str = "") -> Checked:
    """The verdict on an issuer that is checked again soon, or when the Secret changes that is at fault."""
    if secret:
        return Checked(ready=False, reason=reason, message=message, secrets=(secret,))
    return Checked(ready=False, reason=reason, message=message, retry_after=_CHECK_AGAIN)


def failing(reason: str, message: str, error: Exception | None = None, *, is_taken: bool = False) -> Pending:
    """The issuer's own failure. The circuit breaker decides when the request is sent again; requests that
    have none are sent again like a check."""
    is_limit = isinstance(error, Unavailable) and error.is_limit
    return Pending(
        reason,
        message,
        retry_after=_CHECK_AGAIN,
        cause=Cause.RATE_LIMITED if is_limit else Cause.UNAVAILABLE,
        not_before=error.not_before if isinstance(error, Unavailable) else None,
        is_taken=is_taken,
    )


def unusable(error: BadSettings, reason: str, client: str, *, is_taken: bool = False) -> Pending:
    """The outcome of a request to an issuer with such settings; `client` names the product's client."""
    if error.is_missing:
        return Pending(_MISSING, f"Required secret resource not found: {error}", secrets=(error.secret,))
    text = f"Failed to initialise {client} client for signing: {error}"
    if error.secret:
        return Pending(reason, text, secrets=(error.secret,))
    return failing(reason, text, is_taken=is_taken)
