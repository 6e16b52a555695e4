"""Lists in pieces: `limit`, `continue`, and the revision that a list is of.

Source: Kubernetes documentation, "Kubernetes API Concepts", retrieving large results sets in chunks, and
resource versions.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from certwright.resources.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    Expired,
    FieldError,
    Timeout,
    invalid_object,
)

_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)


class Token(msgspec.Struct):
    """Where a list goes on: the revision it is of (0: whatever is now), and the last row shown."""

    rv: int
    namespace: str
    name: str
    v: str = "meta.k8s.io/v1"

    def encode(self) -> str:
        """The opaque text that clients send back."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")


def decode_token(text: str) -> Token:
    """Raises `BadRequest` for a text that is not one of ours."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Token)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        raise BadRequest("continue key is not valid: it must be the one of the page before") from None


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The parameters of a list. `exact` is the revision the list must be of, `not_older` the least it may be
    of; 0: any will do. `after` is the last row of the page before."""

    limit: int = 0
    exact: int = 0
    not_older: int = 0
    after: tuple[str, str] | None = None
    continued: bool = False


def forbidden(field: str, detail: str) -> ApiError:
    """The 422 of parameters that do not go together."""
    wrong = FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")
    return invalid_object("meta.k8s.io", "ListOptions", "", [wrong])


def revision_of(text: str) -> int:
    """A resourceVersion as a number; empty is 0. Raises `Invalid`."""
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 19:
        raise invalid_object(
            "meta.k8s.io",
            "ListOptions",
            "",
            [
                FieldError(
                    "resourceVersion",
                    "FieldValueInvalid",
                    f"Invalid value: {msgspec.json.encode(text).decode()}: must be an unsigned integer",
                )
            ],
        )
    return int(text)


def number(query: Mapping[str, str], name: str) -> int:
    """A parameter that is a count; 0 where it is missing. Raises `BadRequest`."""
    text = query.get(name, "")
    if not text:
        return 0
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
        raise BadRequest(f'{name}: "{text}" is not a whole number')
    return max(0, int(text))


def list_options(query: Mapping[str, str]) -> ListOptions:
    """Read the parameters of a list. Raises `Invalid` and `BadRequest`."""
    if not query:
        return ListOptions()
    limit, version = number(query, "limit"), query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    if token := query.get("continue", ""):
        return _continued(token, limit=limit, version=version, match=match)
    revision = revision_of(version)
    _check_match(match, version)
    # With a limit and no word on how to match, a revision has always meant exactly that one.
    if revision and (match == "Exact" or (not match and limit)):
        return ListOptions(limit=limit, exact=revision)
    return ListOptions(limit=limit, not_older=revision)


def _continued(token: str, *, limit: int, version: str, match: str) -> ListOptions:
    if match:
        raise forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
    if version not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    found = decode_token(token)
    return ListOptions(limit=limit, exact=found.rv, after=(found.namespace, found.name), continued=True)


def _check_match(match: str, version: str) -> None:
    if not match:
        return
    if not version:
        raise forbidden(
            "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if match not in ("Exact", "NotOlderThan"):
        wrong = FieldError(
            "resourceVersionMatch",
            "FieldValueNotSupported",
            f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""',
        )
        raise invalid_object("meta.k8s.io", "ListOptions", "", [wrong])
    if match == "Exact" and version == "0":
        raise forbidden(
            "resourceVersionMatch", 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        )


def expired(options: ListOptions) -> Expired:
    """The 410 of a list whose revision is no longer kept; it offers to go on, inconsistently."""
    if not options.continued or options.after is None:
        return Expired("The resourceVersion for the provided list is too old.")
    return ExpiredContinue(Token(0, *options.after).encode())


class ExpiredContinue(Expired):
    """A continued list whose revision is gone; the answer carries a token to go on with regardless."""

    def __init__(self, token: str) -> None:
        super().__init__(_EXPIRED_CONTINUE)
        self._token = token

    def status(self) -> dict[str, object]:
        """The `Status`, with the token in its list metadata."""
        return {**super().status(), "metadata": {"continue": self._token}}


def too_large(wanted: int, current: int) -> Timeout:
    """The 504 of a revision that has not been reached."""
    cause = Cause(reason="ResourceVersionTooLarge", message="Too large resource version")
    return Timeout(
        f"Too large resource version: {wanted}, current: {current}",
        details=Details(causes=(cause,), retry_after_seconds=1),
    )
