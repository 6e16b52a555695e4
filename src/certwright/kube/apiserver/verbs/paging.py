"""Paged lists: `limit`, `continue`, and the revision of a list.

Source: Kubernetes documentation, "Kubernetes API Concepts", retrieving large results sets in chunks, and
resource versions; for valid combinations, and for the messages about invalid ones, apimachinery
`apis/meta/internalversion/validation` and apiserver `storage`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from certwright.kube.api import errors
from certwright.kube.api.errors import ApiError, BadRequest, Cause, Details, Expired, FieldError, Timeout
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.encoding import base64url, quoted

_EXPIRED_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new "
    "list without the continue parameter, or use the continue token in this response to retrieve the "
    "remainder of the results. Continuing with the provided token results in an inconsistent list - objects "
    "that were created, modified, or deleted between the time the first chunk was returned and now may show "
    "up in the list."
)
_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - a version, not a password
UNCOUNTED = -1
"""The number of remaining objects where they are too many to count."""
_LATEST = -1
"""The revision of a token that continues with the newest state."""
_NOT_VALID = "continue key is not valid"
_MATCH = "resourceVersionMatch"
_MAX_INT64 = 2**63
_MAX_UINT64 = 2**64


class _Token(msgspec.Struct):
    """The content of a continue token. `start` is the key where the list continues, without the bucket."""

    v: str = ""
    rv: int = 0
    start: str = ""
    left: int | None = None


class Position(NamedTuple):
    """Where a list continues: its revision (0: the newest), the last key that was read, and the number of
    objects left (or `UNCOUNTED`); None: not counted."""

    revision: int
    after: tuple[str, str]
    left: int | None


def encode_token(revision: int, after: tuple[str, str], left: int | None = None) -> str:
    """The opaque continue token for the page after that namespace and name. `left`: how many objects remain
    (or `UNCOUNTED`); None: not counted."""
    start = "/".join(part for part in after if part) + "\0"
    token = msgspec.json.encode(_Token(_TOKEN_VERSION, revision, start, left))
    return base64url(token)


def decode_token(text: str, *, namespaced: bool, namespace: str) -> Position:
    """Decode a continue token. Raises `BadRequest` for a malformed one."""
    wrong = re.search(r"[^A-Za-z0-9_-]", text)
    if wrong is not None or len(text) % 4 == 1:
        at = wrong.start() if wrong is not None else len(text) - 1
        raise _bad_token(f"{_NOT_VALID}: illegal base64 data at input byte {at}")
    try:
        token = json_decoder(_Token).decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (msgspec.MsgspecError, ValueError) as error:
        raise _bad_token(f"{_NOT_VALID}: {error}") from None
    if token.v != _TOKEN_VERSION:
        raise _bad_token(f"{_NOT_VALID}: server does not recognize this encoded version {token.v}")
    if token.rv == 0:
        raise _bad_token(f"{_NOT_VALID}: incorrect encoded start resourceVersion (version {_TOKEN_VERSION})")
    if not token.start:
        raise _bad_token(f"{_NOT_VALID}: encoded start key empty (version {_TOKEN_VERSION})")
    parts = token.start.removeprefix("/").split("/")
    # A path that leads elsewhere would bypass the namespace of the request.
    if any(part in ("", ".", "..") for part in parts) or len(parts) > 1 + namespaced:
        raise _bad_token(f"{_NOT_VALID}: {token.start}")
    name = parts[-1].removesuffix("\0")
    within = namespace or (parts[0] if namespaced and len(parts) > 1 else "")
    return Position(max(0, token.rv), (within, name), token.left)


def _bad_token(detail: str) -> BadRequest:
    return BadRequest(f"invalid continue token: {detail}")


class ListOptions(msgspec.Struct, frozen=True):
    """The parameters of a list. `exact` is the revision the list must be of, `not_older` the least it may be
    of; 0: any. `after` is where the previous page ended, `left` how many objects remained after it (or
    `UNCOUNTED`), where they were counted."""

    limit: int = 0
    exact: int = 0
    not_older: int = 0
    after: tuple[str, str] | None = None
    left: int | None = None


def revision_of(text: str) -> int:
    """A resourceVersion as a number; empty is 0.

    Raises `ApiError` with Kubernetes' message and its code: 500.
    """
    try:
        return _unsigned(text)
    except ValueError as error:
        raise ApiError(str(error)) from None


def _unsigned(text: str) -> int:
    if not text:
        return 0
    if not text.isascii() or not text.isdecimal() or len(text) > 20 or int(text) >= _MAX_UINT64:
        raise ValueError(f"resourceVersion: expected a whole number of 64 bits, got {quoted(text)}")
    return int(text)


def number(query: Mapping[str, str], name: str) -> int:
    """A parameter that is a count; 0 where it is missing. Raises `BadRequest`."""
    text = query.get(name)
    if text is None:
        return 0
    is_number = len(text) <= 20 and re.fullmatch(r"[+-]?[0-9]+", text)
    if not is_number or not -_MAX_INT64 <= int(text) < _MAX_INT64:
        raise BadRequest(f"{name}: expected a whole number of 64 bits, got {quoted(text)}")
    return int(text)


def check_query(query: Mapping[str, str], *, watch: bool) -> None:
    """Check that the parameters of a list or watch have the right types and do not conflict. Raises `Invalid`
    and `BadRequest`."""
    number(query, "limit")
    number(query, "timeoutSeconds")
    if wrong := _conflicts(query, watch=watch):
        raise errors.invalid_object("meta.k8s.io", "ListOptions", "", wrong)


def list_options(query: Mapping[str, str], *, namespaced: bool, namespace: str) -> ListOptions:
    """Read the parameters of a list. Raises `Invalid` and `BadRequest`."""
    if not query:
        return ListOptions()
    check_query(query, watch=False)
    limit, version = max(0, number(query, "limit")), query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    if token := query.get("continue", ""):
        at = decode_token(token, namespaced=namespaced, namespace=namespace)
        if version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        return ListOptions(limit=limit, exact=at.revision, after=at.after, left=at.left)
    try:
        revision = _unsigned(version)
    except ValueError as error:
        raise BadRequest(f"invalid resource version: {error}") from None
    # With a limit and no resourceVersionMatch, a revision means exactly that one.
    if revision and (match == "Exact" or (not match and limit)):
        return ListOptions(limit=limit, exact=revision)
    if version == "0":
        # Any revision, and all objects: Kubernetes' cache ignores the limit here, and clients expect it.
        return ListOptions()
    return ListOptions(limit=limit, not_older=revision)


def _conflicts(query: Mapping[str, str], *, watch: bool) -> list[FieldError]:
    """Conflicts between the parameters of a list or a watch."""
    wrong: list[FieldError] = []
    match, version = query.get(_MATCH, ""), query.get("resourceVersion", "")
    is_streamed = "sendInitialEvents" in query

    def forbid(text: str) -> None:
        wrong.append(errors.forbidden(_MATCH, text))

    if watch:
        if not match and not is_streamed and version in ("", "0"):
            # Such a watch begins with the objects there are, as if that had been asked for.
            match, is_streamed = "NotOlderThan", True
        if is_streamed and match != "NotOlderThan":
            forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        if match and not is_streamed:
            forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
        if match and match != "NotOlderThan":
            wrong.append(errors.not_supported(_MATCH, match, ("NotOlderThan",)))
    elif match and not version:
        forbid("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match and query.get("continue"):
        forbid("resourceVersionMatch is forbidden when continue is provided")
    if not watch:
        if match not in ("", "Exact", "NotOlderThan"):
            wrong.append(errors.not_supported(_MATCH, match, ("Exact", "NotOlderThan", "")))
        if match == "Exact" and version == "0":
            forbid('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
        if is_streamed:
            wrong.append(errors.forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return wrong


def expired(options: ListOptions) -> Expired:
    """The 410 of a list whose revision is no longer kept; it offers to go on, inconsistently."""
    if options.after is None:
        return Expired("The resourceVersion for the provided list is too old.")
    return ExpiredContinue(encode_token(_LATEST, options.after))


class ExpiredContinue(Expired):
    """A continued list whose revision is gone; the answer carries a token to go on with regardless."""

    def __init__(self, token: str) -> None:
        super().__init__(_EXPIRED_CONTINUE)
        self._token = token

    def status(self) -> dict[str, object]:
        """The `Status`, with the token in its list metadata."""
        return {**super().status(), "metadata": {"continue": self._token}}


def too_large(requested: int, current: int) -> Timeout:
    """The 504 of a revision that has not been reached."""
    cause = Cause(reason="ResourceVersionTooLarge", message="Too large resource version")
    return Timeout(
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details=Details(causes=(cause,), retry_after_seconds=1),
    )
