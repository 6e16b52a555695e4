"""API errors in the form of Kubernetes' `Status`; raised by the server, and by the client.

    ApiError                    any response of 400 and above
    ├── BadRequest              400 BadRequest: malformed, or not understood
    ├── Unauthorized            401 Unauthorized: no or wrong credentials
    ├── Forbidden               403 Forbidden: authenticated, but not allowed
    ├── NotFound                404 NotFound: no such object, or no such kind
    ├── MethodNotAllowed        405 MethodNotAllowed: the resource does not support the verb
    ├── NotAcceptable           406 NotAcceptable: none of the requested representations
    ├── AlreadyExists           409 AlreadyExists: the name is taken
    ├── Conflict                409 Conflict: the object was changed in the meantime
    ├── Expired                 410 Expired (or Gone): that revision is no longer kept
    ├── TooLarge                413 RequestEntityTooLarge
    ├── UnsupportedMediaType    415 UnsupportedMediaType
    ├── Invalid                 422 Invalid: understood, but wrong; `causes` name the fields
    │   └── Denied              406 NotAcceptable: cert-manager's webhook, or our rules in its place
    ├── TooManyRequests         429 TooManyRequests: wait `retry_after_s`
    ├── InternalError           500 InternalError
    ├── StorageReadError        500 StorageReadError: the stored object is damaged
    ├── Unavailable             503 ServiceUnavailable: try again
    └── Timeout                 504 Timeout
    Unreachable                 no response at all (client only)

Source: Kubernetes API conventions, "Error codes"; apimachinery `pkg/api/errors`.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import msgspec

from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.encoding import holds_private_key, one_line, quoted


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of several causes (`Status.details.causes[]`)."""

    reason: str = ""
    message: str = ""
    field: str = ""


class Details(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object of the error (`Status.details`)."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[Cause, ...] = ()
    retry_after_seconds: int = 0


DENIED = 'admission webhook "webhook.cert-manager.io" denied the request: '
"""The prefix of Kubernetes' message for a denial by cert-manager's webhook; clients match on it."""


class ApiError(Exception):
    """A response of 400 and above. `reason` is the machine-readable word; `message` goes over the wire. The
    text (`str`) is for people, and omits the prefix of cert-manager's webhook."""

    code: ClassVar[int] = 500
    default_reason: ClassVar[str] = ""

    def __init_subclass__(cls, *, code: int = 0, reason: str = "") -> None:
        """`reason` is the name of the class unless given."""
        if code:
            cls.code, cls.default_reason = code, reason or cls.__name__

    def __init__(
        self, message: str, *, details: Details | None = None, reason: str = "", code: int = 0
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = details
        self.reason = reason or self.default_reason
        self.http_status = code or self.code

    def __str__(self) -> str:
        return self.message.removeprefix(DENIED)

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The single causes, where there are several."""
        return self.details.causes if self.details else ()

    @property
    def retry_after_s(self) -> int:
        """Seconds to wait before the next try; 0 where the server did not send any."""
        return self.details.retry_after_seconds if self.details else 0

    def status(self) -> dict[str, Any]:
        """The `Status` object that goes over the wire."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = msgspec.to_builtins(self.details)
        body["code"] = self.http_status
        return body


class BadRequest(ApiError, code=400):
    """400: malformed, or not understood."""


class Unauthorized(ApiError, code=401):
    """401: no or wrong credentials."""


class Forbidden(ApiError, code=403):
    """403: known, but not allowed."""


class NotFound(ApiError, code=404):
    """404: no such object, resource or path."""


class MethodNotAllowed(ApiError, code=405):
    """405: the resource does not support the verb."""


class NotAcceptable(ApiError, code=406):
    """406: the server has none of the requested representations."""


class AlreadyExists(ApiError, code=409):
    """409: the name is taken."""


class Conflict(ApiError, code=409):
    """409: the object has changed since it was read, or a precondition does not hold."""


class Expired(ApiError, code=410):
    """410: the requested revision is no longer kept; list again."""


class TooLarge(ApiError, code=413, reason="RequestEntityTooLarge"):
    """413: the body exceeds the server's limit."""


class UnsupportedMediaType(ApiError, code=415):
    """415: the server does not read the body's content type."""


class Invalid(ApiError, code=422):
    """422: one or more fields are wrong; `causes` names each."""


class Denied(Invalid, code=406, reason="NotAcceptable"):
    """406: refused by cert-manager's admission webhook, or by this server in its place; `causes` may name
    fields.

    Source: cert-manager `pkg/webhook/admission/request_handler.go` for code and reason.
    """


class TooManyRequests(ApiError, code=429):
    """429: wait `retry_after_s`."""


class InternalError(ApiError, code=500):
    """500: an internal error of the server."""


class StorageReadError(ApiError, code=500):
    """500: the object exists but cannot be read, because its stored form is damaged."""


class Unavailable(ApiError, code=503, reason="ServiceUnavailable"):
    """503: temporarily unavailable."""


class Timeout(ApiError, code=504):
    """504: the request took too long."""


class Unreachable(Exception):
    """No response: connection refused, TLS failed, or the connection broke. The text is one sentence."""


class NoCredentials(Unreachable):
    """No request was sent, because there are no credentials for the server that could be sent."""


class NoApi(Unreachable):
    """The answer is none that an API server gives: another program listens there, or a proxy answered."""


class Untrusted(Unreachable):
    """The certificate that the server presents is not accepted; `verify_code` is OpenSSL's reason."""

    def __init__(self, message: str, verify_code: int = 0) -> None:
        super().__init__(message)
        self.verify_code = verify_code


_BY_REASON: dict[str, type[ApiError]] = {
    kind.default_reason: kind for kind in (AlreadyExists, StorageReadError)
}
"""Errors that share their code with a more general one."""
# A client requests representations that every server has: a 406 can only come from a webhook.
_BY_CODE: dict[int, type[ApiError]] = {
    kind.code: kind for kind in ApiError.__subclasses__() if kind not in _BY_REASON.values()
} | {Denied.code: Denied}


class _WireStatus(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: Details | None = None


def from_response(code: int, body: bytes, *, retry_after_s: float | None = None) -> ApiError:
    """The error for a response of 400 and above; accepts any body, and decodes a `Status`.

    `retry_after_s` is the header `Retry-After`; it is used where the body has no value.
    """
    try:
        wire = json_decoder(_WireStatus).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = one_line(body[:200].decode(errors="replace"))
        wire = _WireStatus(message=f"HTTP status {code}: {text}" if text else "")
    kind = _BY_REASON.get(wire.reason) or _BY_CODE.get(code, ApiError)
    details = wire.details
    if retry_after_s and not (details and details.retry_after_seconds):
        details = msgspec.structs.replace(details or Details(), retry_after_seconds=math.ceil(retry_after_s))
    return kind(wire.message or f"HTTP status {code}", details=details, reason=wire.reason, code=code)


class FieldError(msgspec.Struct, frozen=True):
    """One field that is wrong, in the words of apimachinery `pkg/util/validation/field`.

    `field` is a path such as `spec.dnsNames[0]`; make these with the functions below.
    """

    field: str
    reason: str
    detail: str

    @property
    def message(self) -> str:
        """The sentence of `Status.details.causes[].message` (without the field's path)."""
        return self.detail

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"


def _show(value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{value}"
    shown = quoted(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    return '"<private key>"' if holds_private_key(shown) else shown


def invalid(field: str, value: object, detail: str) -> FieldError:
    """`Invalid value: "x": detail`."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_show(value)}: {detail}")


def required(field: str, detail: str = "") -> FieldError:
    """`Required value: detail`."""
    return FieldError(field, "FieldValueRequired", f"Required value{': ' + detail if detail else ''}")


def forbidden(field: str, detail: str) -> FieldError:
    """`Forbidden: detail`."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate(field: str, value: object) -> FieldError:
    """`Duplicate value: "x"`."""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_show(value)}")


def not_supported(field: str, value: object, supported: tuple[str, ...]) -> FieldError:
    """`Unsupported value: "x": supported values: "a", "b"`."""
    values = ", ".join(_show(item) for item in supported)
    return FieldError(
        field, "FieldValueNotSupported", f"Unsupported value: {_show(value)}: supported values: {values}"
    )


def too_long(field: str, limit: int) -> FieldError:
    """`Too long: may not be more than N bytes`."""
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """`Too many: 3: must have at most 2 items`."""
    noun = "item" if limit == 1 else "items"
    return FieldError(field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} {noun}")


MAX_CAUSES = 1_000
"""The number of causes that are reported for one invalid object."""
_MAX_REPORTED = 1 << 20
"""Characters of all causes: each may show a large value."""


def _reported(errors: list[FieldError]) -> list[FieldError]:
    """The first of `errors`, one at least."""
    length = 0
    for index, error in enumerate(errors[:MAX_CAUSES]):
        length += len(error.message) + len(error.field)
        if index and length > _MAX_REPORTED:
            return errors[:index]
    return errors[:MAX_CAUSES]


def invalid_object(group: str, kind: str, name: str, errors: list[FieldError]) -> Invalid:
    """The 422 that carries `errors`, worded as Kubernetes' `errors.NewInvalid`, which carries any number."""
    qualified = f"{kind}.{group}" if group else kind
    listed, details = _listed(group, kind, name, errors)
    return Invalid(f'{qualified} "{name}" is invalid: {listed}', details=details)


def denied_object(group: str, kind: str, name: str, errors: list[FieldError]) -> Denied:
    """The 406 that carries `errors`, worded as a denial by cert-manager's webhook."""
    listed, details = _listed(group, kind, name, errors)
    return Denied(f"{DENIED}{listed}", details=details)


def _listed(group: str, kind: str, name: str, errors: list[FieldError]) -> tuple[str, Details]:
    count = len(errors)
    errors = _reported(errors)
    causes = tuple(Cause(reason=e.reason, message=e.message, field=e.field) for e in errors)
    # Each cause is listed, and each sentence appears once.
    texts = list(dict.fromkeys(map(str, errors)))
    if len(errors) < count:
        texts.append(f"and {count - len(errors)} more")
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return listed, Details(name=name, group=group, kind=kind, causes=causes)
