"""JSON calls to the servers of all three products: errors as types, with the documented error texts only."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from certwright.issuers.venafi.policies import ZonePolicy
from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerError, parse_retry_after, place_of, quote
from certwright.pki.csr import CsrFacts

_MOST_ERRORS: Final = 3
Headers = tuple[tuple[str, str], ...]


class CustomField(NamedTuple):
    """A custom field of the certificate object, from the annotation `custom-fields`."""

    name: str
    value: str


class CertificateOrder(msgspec.Struct, frozen=True):
    """An order of one certificate."""

    csr_pem: str
    csr: CsrFacts
    lifetime: timedelta
    custom_fields: Sequence[CustomField] = ()


class ProductClient(Protocol):
    """The calls of one product, with a token or key as their first argument. Methods raise `VenafiError`."""

    async def check_credentials(self, token: str) -> None:
        """Return if the server accepts the token."""

    async def read_zone(self, token: str) -> ZonePolicy:
        """The zone of the issuer. Raises `Refused` for one that does not exist."""

    def pickup_id(self, csr: CsrFacts) -> str:
        """The pickup ID that an order for this signing request will have, if it is known before; empty: the
        server chooses it."""

    async def place(self, token: str, order: CertificateOrder, zone: ZonePolicy) -> str:
        """Order a certificate; the pickup ID."""

    async def fetch(self, token: str, pickup_id: str) -> str | None:
        """The certificate with its chain (PEM, leaf first); None: not issued yet.

        Raises `Refused` if the order does not exist or has failed.
        """

    async def check_reachable(self) -> None:
        """Return if the server answers at all; without credentials, and at no cost. Raises `Unavailable`."""


class VenafiError(Exception):
    """A call without success. The message is one sentence."""


class Unavailable(VenafiError):
    """The server does not work now. `not_before` is its `Retry-After`; `is_limit`: it limits requests."""

    def __init__(self, message: str, *, not_before: datetime | None = None, is_limit: bool = False) -> None:
        super().__init__(message)
        self.not_before = not_before
        self.is_limit = is_limit


class Unauthorized(VenafiError):
    """401: the server does not accept the token or the key."""


class Refused(VenafiError):
    """Another 4xx: the server understands the call and refuses it."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Answer:
    """A successful answer: its JSON object, or its text if the call asked for text."""

    status: int
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    text: str = field(default="", repr=False)


class Calls:
    """Sends calls with `http`. `now` returns the time. Methods raise `VenafiError`."""

    def __init__(self, http: HttpClient, now: Callable[[], datetime]) -> None:
        self._http = http
        self._now = now

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
            raise _error_of(answer, place_of(url), self._now())
        if is_text:
            return Answer(answer.status, text=answer.body.decode("utf-8", "replace"))
        return Answer(answer.status, _parsed(answer, place_of(url)))


def _parsed(answer: HttpAnswer, place: str) -> Mapping[str, Any]:
    if not answer.body:
        return {}
    try:
        content = json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise Unavailable(
            f"{place} answered with {answer.status} and no JSON: is that a Certificate Manager?"
        ) from error
    return mapping(content)


def _error_of(answer: HttpAnswer, place: str, received_at: datetime) -> VenafiError:
    errors = _errors(answer)
    text = f"{place} answered {answer.status}" + (f": {'; '.join(errors)}" if errors else "")
    if answer.status == 401:
        return Unauthorized(text)
    if answer.status == 429 or not 400 <= answer.status < 500:
        not_before = parse_retry_after(answer.header("retry-after"), received_at)
        return Unavailable(text, not_before=not_before, is_limit=answer.status == 429)
    return Refused(text, answer.status)


def _errors(answer: HttpAnswer) -> tuple[str, ...]:
    """The documented error texts of an answer: `Error` (TPP), `errors[].message` (SaaS, NGTS), `error` and
    `error_description` (RFC 6749 §5.2). Nothing else of it is quoted."""
    try:
        content = mapping(json.loads(answer.body))
    except (ValueError, RecursionError):
        return ()
    listed = content.get("errors")
    raw = [mapping(item).get("message") for item in listed] if isinstance(listed, list) else []
    raw += [content.get("Error"), content.get("error_description") or content.get("error")]
    return tuple(quote(text.strip()) for text in raw if isinstance(text, str) and text.strip())[:_MOST_ERRORS]


def mapping(value: object) -> Mapping[str, Any]:
    """The JSON object; empty if it is another value."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """The JSON string; empty if it is another value."""
    return value if isinstance(value, str) else ""


def texts_of(value: object) -> tuple[str, ...]:
    """The strings of a JSON array; empty if it is another value."""
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
