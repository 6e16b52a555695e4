"""Requests to a DNS host's API, the failures that all of them have in common, and access tokens.

Source: RFC 6749 §4.4 and §5 (tokens of Google and Azure).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.contract import (
    DEFAULT_PAUSE,
    CredentialsRejected,
    NotPermitted,
    Outside,
    Throttled,
    ZoneGone,
)
from certwright.kit.outgoing import HTTPS_ONLY, HttpAnswer, ServerError, ServerRules, parse_retry_after, quote
from certwright.kube.util.decoders import UNDECODABLE, json_decoder

T = TypeVar("T")

Headers = tuple[tuple[str, str], ...]
JSON: Final[Headers] = (("content-type", "application/json"), ("accept", "application/json"))
_PAUSE_STATUSES: Final = (429, 503)
# A token with less left may expire on its way.
_LEAST_LEFT: Final = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of an API, and the rules for requests to it."""

    url: str
    rules: ServerRules = HTTPS_ONLY


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token, and when it expires."""

    value: str = field(repr=False)
    expires_at: datetime


class Login(Protocol):
    """A way to get a token. A frozen dataclass; see `HostSettings`."""

    async def fetch(self, outside: Outside) -> AccessToken:
        """Request a token. Raises `SolverError`."""

    def __hash__(self) -> int: ...


class _Token(msgspec.Struct):
    access_token: str
    # Azure's metadata service writes the number as a string.
    expires_in: int | str = 3600


class _Failure(msgspec.Struct):
    error: str = ""
    error_description: str = ""


def oauth_reason(answer: HttpAnswer) -> str:
    """The reason in an answer of OAuth 2.0 that is not a success."""
    failure = failure_in(answer, _Failure)
    # The lines after the first are trace IDs of Azure.
    described = failure.error_description.splitlines()[:1]
    return ": ".join([failure.error, *described])


def failure_in(answer: HttpAnswer, shape: type[T]) -> T:
    """The body of an answer that is not a success, in this shape; a body of another shape gives its
    defaults."""
    try:
        return json_decoder(shape).decode(answer.body)
    except UNDECODABLE:
        return shape()


def reason_at(*path: str) -> Callable[[HttpAnswer], str]:
    """The `explain` of an API whose answers have the reason there, e.g. at `error`, `message`."""

    def explain(answer: HttpAnswer) -> str:
        try:
            content: object = json.loads(answer.body)
        except (ValueError, RecursionError):
            return ""
        for key in path:
            content = content.get(key) if isinstance(content, dict) else None
        return content if isinstance(content, str) else ""

    return explain


class HostApi:
    """The API at `endpoint`; URLs of requests are relative to it and to `base`. `provider` begins every
    error.

    Every request has these `headers`, and a header that authorizes it: the token of `login`, or the result of
    `sign` for method, URL and body.

    `explain` returns the reason in an answer that is not a success, or an empty string. Leave it out for an
    endpoint that an object names: no error may quote such a server's answer.
    """

    def __init__(
        self,
        provider: str,
        endpoint: Endpoint,
        outside: Outside,
        *,
        base: str = "",
        headers: Headers = (),
        login: Login | None = None,
        sign: Callable[[str, str, bytes], Headers] = lambda _method, _url, _body: (),
        explain: Callable[[HttpAnswer], str] | None = None,
    ) -> None:
        self.provider = provider
        self._url = endpoint.url.rstrip("/") + base
        self._headers = headers
        self._tokens = TokenCache(lambda: login.fetch(outside), outside.now) if login is not None else None
        self._sign = sign
        self._client = outside.client(endpoint.rules)
        self._now = outside.now
        self._explain = explain

    async def call(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Headers = (),
        allowed: Collection[int] = (),
        gone: Collection[int] = (),
    ) -> HttpAnswer:
        """Send a request; `body` bytes as they are, anything else as JSON. Returns an answer of 2xx, or with
        a status in `allowed`.

        `what` is the purpose in the infinitive ("add the TXT record …") for the errors: `ZoneGone` for a
        status in `gone`, `CredentialsRejected` for 401, `NotPermitted` for 403, `Throttled` for 429 and 503,
        `SolverError` for all others.
        """
        content = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else b""
        if content and not isinstance(body, bytes):
            headers = (*JSON, *headers)
        headers = (*self._headers, *headers)
        url = f"{self._url}{path}" + (f"?{urlencode(query)}" if query else "")

        async def send(token: str = "") -> HttpAnswer:
            bearer = (("authorization", f"Bearer {token}"),) if token else self._sign(method, url, content)
            try:
                answer = await self._client.send(method, url, body=content, headers=(*bearer, *headers))
            except ServerError as error:
                raise SolverError(f"{self.provider} cannot be asked to {what}: {error}") from error
            if 200 <= answer.status < 300 or answer.status in allowed:
                return answer
            if answer.status in gone:
                raise ZoneGone(str(self.failure(answer, what)))
            raise self.failure(answer, what)

        return await (self._tokens.use(send) if self._tokens is not None else send())

    def failure(self, answer: HttpAnswer, what: str) -> SolverError:
        """The error for an answer that is not a success."""
        reason = quote(self._explain(answer), 300) if self._explain is not None else ""
        shown = f"{self.provider} refused to {what}: status {answer.status}" + (
            f", {reason}" if reason else ""
        )
        if answer.status in _PAUSE_STATUSES:
            now = self._now()
            named = parse_retry_after(answer.header("retry-after"), now)
            return Throttled(shown, named or now + DEFAULT_PAUSE)
        if answer.status == 401:
            return CredentialsRejected(f"{shown}; the credentials are wrong or have expired")
        if answer.status == 403:
            return NotPermitted(f"{shown}; check the permissions of the credentials")
        return SolverError(shown)

    async def log_in(self, path: str, form: Mapping[str, str], *, who: str, fix: str) -> AccessToken:
        """The token for a form of OAuth 2.0. Raises `CredentialsRejected` with `fix` if it is refused."""
        what = f"log in {who}"
        answer = await self.call(
            "POST",
            path,
            what,
            body=urlencode(form).encode(),
            headers=(("content-type", "application/x-www-form-urlencoded"),),
            allowed=(400, 401),
        )
        if answer.status >= 400:
            raise CredentialsRejected(f"{self.failure(answer, what)}; {fix}")
        return self.token(answer, what)

    def token(self, answer: HttpAnswer, what: str) -> AccessToken:
        """The token in an answer of OAuth 2.0. Raises `SolverError`."""
        token = self.parse(answer, _Token, what)
        seconds = int(token.expires_in) if str(token.expires_in).isdigit() else 0
        return AccessToken(token.access_token, self._now() + timedelta(seconds=seconds))

    def parse(self, answer: HttpAnswer, shape: type[T], what: str) -> T:
        """The JSON of an answer in this shape. Raises `SolverError`."""
        try:
            return json_decoder(shape).decode(answer.body)
        except UNDECODABLE as error:
            raise SolverError(
                f"{self.provider} did not answer as documented when asked to {what}: {quote(str(error), 200)}"
            ) from error


class TokenCache:
    """The current token. `fetch` requests a new token, and raises `SolverError`."""

    def __init__(self, fetch: Callable[[], Awaitable[AccessToken]], now: Callable[[], datetime]) -> None:
        self._fetch = fetch
        self._now = now
        self._token: AccessToken | None = None
        self._token_lock = asyncio.Lock()

    async def use(self, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call with a token. A cached token that the API rejects is replaced once."""
        cached = self._token
        token = await self._current()
        try:
            return await call(token.value)
        except CredentialsRejected:
            if token is not cached:
                raise
            if self._token is token:
                self._token = None
            return await call((await self._current()).value)

    async def _current(self) -> AccessToken:
        async with self._token_lock:
            if self._token is None or self._token.expires_at - self._now() < _LEAST_LEFT:
                self._token = await self._fetch()
            return self._token
