"""Requests to a DNS host's API, and the failures that all of them have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from certwright.acme.solvers.contract import SolverError
from certwright.acme.solvers.dns01.hosts.contract import (
    DEFAULT_PAUSE,
    CredentialsRejected,
    NotPermitted,
    Outside,
    Throttled,
)
from certwright.kit.outgoing import HTTPS_ONLY, HttpAnswer, ServerError, ServerRules, quote
from certwright.kit.retry_after import parse_retry_after
from certwright.kube.util.decoders import UNDECODABLE, json_decoder

T = TypeVar("T")

Headers = tuple[tuple[str, str], ...]
JSON: Final[Headers] = (("content-type", "application/json"), ("accept", "application/json"))
_PAUSE_STATUSES: Final = (429, 503)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The URL of an API, and the rules for requests to it."""

    url: str
    rules: ServerRules = HTTPS_ONLY


class HostApi:
    """The API at `endpoint`, whose requests are relative to it. `provider` begins every error.

    `explain` returns the reason in an answer that is not a success; empty: it has none. Leave it out for an
    endpoint that an object names: no error may quote what such a server answers.
    """

    def __init__(
        self,
        provider: str,
        endpoint: Endpoint,
        outside: Outside,
        *,
        explain: Callable[[HttpAnswer], str] | None = None,
    ) -> None:
        self.provider = provider
        self._url = endpoint.url.rstrip("/")
        self._client = outside.client(endpoint.rules)
        self._now = outside.now
        self._explain = explain

    async def call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: object = None,
        headers: Headers = (),
        allowed: Collection[int] = (),
    ) -> HttpAnswer:
        """Send a request; `body` bytes as they are, anything else as JSON. Returns an answer of 2xx, or with
        a status in `allowed`.

        `what` is the purpose in the infinitive ("add the TXT record …") for the errors:
        `CredentialsRejected` for 401, `NotPermitted` for 403, `Throttled` for 429 and 503, `SolverError` for
        all others.
        """
        content = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else b""
        if content and not isinstance(body, bytes):
            headers = (*JSON, *headers)
        url = f"{self._url}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = await self._client.send(method, url, body=content, headers=headers)
        except ServerError as error:
            raise SolverError(f"{self.provider} cannot be asked to {what}: {error}") from error
        if 200 <= answer.status < 300 or answer.status in allowed:
            return answer
        raise self.failure(answer, what)

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

    def parse(self, answer: HttpAnswer, shape: type[T], what: str) -> T:
        """The JSON of an answer in this shape. Raises `SolverError`."""
        try:
            return json_decoder(shape).decode(answer.body)
        except UNDECODABLE as error:
            raise SolverError(
                f"{self.provider} did not answer as documented when asked to {what}: {quote(str(error), 200)}"
            ) from error
