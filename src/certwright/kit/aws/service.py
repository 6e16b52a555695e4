"""Calls of an AWS service that answers in XML (the Query and REST-XML protocols): signature, errors."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Final
from xml.etree import ElementTree

import msgspec

from certwright.kit.aws.credentials import AwsTools
from certwright.kit.aws.errors import (
    DENIED,
    THROTTLED,
    AwsDenied,
    AwsError,
    AwsRefused,
    AwsThrottled,
    AwsUnreachable,
)
from certwright.kit.aws.signature import AwsCredentials, AwsRequest, SigningScope, sign
from certwright.kit.outgoing import HTTPS_ONLY, HttpAnswer, ServerError, ServerRules, quote

_THROTTLED_STATUSES: Final = (429, 503)


class AwsEndpoint(msgspec.Struct, frozen=True):
    """Where a service is, without a final slash; requests are signed for `region`."""

    url: str
    region: str
    rules: ServerRules = HTTPS_ONLY


class AwsService(msgspec.Struct, frozen=True):
    """A service by the name that signatures contain (`sts`) and the one for messages (`AWS STS`)."""

    name: str
    title: str
    endpoint: AwsEndpoint

    def signed(self, request: AwsRequest, credentials: AwsCredentials, now: datetime) -> AwsRequest:
        """The request with a signature for this service."""
        return sign(request, credentials, SigningScope(self.name, self.endpoint.region), now)

    async def call(
        self,
        request: AwsRequest,
        what: str,
        tools: AwsTools,
        credentials: AwsCredentials | None,
        *,
        allowed: Collection[str] = (),
    ) -> Answer:
        """Send a request, signed unless `credentials` is None, whose URL is relative to the endpoint.

        `what` is the purpose in the infinitive, for errors. Returns a success, or an error whose code is in
        `allowed`. Raises `AwsError`.
        """
        request = AwsRequest(
            request.method, f"{self.endpoint.url}{request.url}", request.headers, request.body
        )
        if credentials is not None:
            request = self.signed(request, credentials, tools.now())
        try:
            response = await tools.client(self.endpoint.rules).send(
                request.method, request.url, body=request.body, headers=request.headers
            )
        except ServerError as error:
            raise AwsUnreachable(f"{self.title} cannot be asked to {what}: {error}") from error
        answer = Answer(response, _document(response.body))
        if not 200 <= response.status < 300:
            if answer.code in allowed:
                return answer
            raise self.failure(answer, what)
        if not answer.is_response:
            raise AwsError(
                f"{self.title} did not answer as documented when asked to {what}; is the endpoint right?"
            )
        return answer

    def failure(self, answer: Answer, what: str) -> AwsRefused:
        """The error for an answer that is not a success."""
        status, code, text = answer.http.status, answer.code, answer.text
        reason = ": ".join(part for part in (code, text) if part)
        message = f"{self.title} refused to {what}: status {status}" + (f", {reason}" if reason else "")
        kind = AwsRefused
        if code in DENIED or (not code and status in (401, 403)):
            kind = AwsDenied
        elif code in THROTTLED or code.startswith("Throttl") or status in _THROTTLED_STATUSES:
            kind = AwsThrottled
        return kind(message, status=status, code=code, text=text)


class Answer(msgspec.Struct, frozen=True):
    """An answer; `document` is None if its body is not XML."""

    http: HttpAnswer
    document: ElementTree.Element | None

    def find(self, path: str) -> str:
        """The text of the first element at a path such as `ChangeInfo/Id`; empty: there is none."""
        return text_of(self.document, path)

    def all(self, path: str) -> list[ElementTree.Element]:
        """The elements at a path."""
        return [] if self.document is None else self.document.findall(_any_namespace(path))

    @property
    def code(self) -> str:
        """The error code; empty for a success, and for an error that has none."""
        batch = "InvalidChangeBatch"
        return quote(self._error("Code") or (batch if self._is_root(batch) else ""), 100)

    @property
    def text(self) -> str:
        """The message of an error, or the messages of an invalid change batch."""
        batch = [element.text or "" for element in self.all("Messages/Message")]
        return quote(" ".join(batch) or self._error("Message"), 400)

    @property
    def is_response(self) -> bool:
        """Whether the document is a success: of each action, its name ends like this."""
        return self.document is not None and self.document.tag.endswith("Response")

    def _error(self, name: str) -> str:
        # Some servers leave out the element around it.
        return self.find(f"Error/{name}") or (self.find(name) if self._is_root("Error") else "")

    def _is_root(self, name: str) -> bool:
        return self.document is not None and self.document.tag.rpartition("}")[2] == name


def text_of(element: ElementTree.Element | None, path: str) -> str:
    """The text of the first element at a path below another one; empty: there is none."""
    child = element.find(_any_namespace(path)) if element is not None else None
    return (child.text or "").strip() if child is not None else ""


def _any_namespace(path: str) -> str:
    return "/".join(f"{{*}}{part}" for part in path.split("/"))


def _document(body: bytes) -> ElementTree.Element | None:
    # A document type is never part of an answer; entities in one could fill the memory.
    if b"<!DOCTYPE" in body[:1000].upper():
        return None
    try:
        return ElementTree.fromstring(body)  # noqa: S314
    except ElementTree.ParseError:
        return None
