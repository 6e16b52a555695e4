"""Problem documents, and the reaction to each problem type.

One table holds every type; a test compares it with the list of RFC 8555 §6.7.

Source: RFC 7807 §3.1; RFC 8555 §6.7, §6.7.1; RFC 9773 §7.4; draft-ietf-acme-profiles §4.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

from certwright.kit.outgoing import quote

_PREFIX: Final = "urn:ietf:params:acme:error:"
_MEDIA_TYPE: Final = "application/problem+json"
_MAX_TEXT: Final = 2000


class Reaction(Enum):
    """How a client reacts to an error."""

    AT_ONCE = "send the same again at once, with the fresh nonce that came with the error"
    WAIT = "send the same again later; nothing is lost"
    ORDER_FAILS = "this order can never succeed; another one with the same content would fail as well"
    LOOK_AGAIN = "the order is in another state than we thought: fetch it"
    ACCOUNT = "the account must be mended first: its key, its terms, its binding"
    WITHOUT_REPLACES = "order again without naming the certificate that is replaced"
    DONE = "what was asked for had been done before"
    OUR_MISTAKE = "the request was wrong; sending it again changes nothing"


ERROR_TYPES: Final[dict[str, Reaction]] = {
    # RFC 8555 §6.7
    "accountDoesNotExist": Reaction.ACCOUNT,
    "alreadyRevoked": Reaction.DONE,
    "badCSR": Reaction.ORDER_FAILS,
    "badNonce": Reaction.AT_ONCE,
    "badPublicKey": Reaction.ORDER_FAILS,
    "badRevocationReason": Reaction.OUR_MISTAKE,
    "badSignatureAlgorithm": Reaction.ACCOUNT,
    "caa": Reaction.ORDER_FAILS,
    "compound": Reaction.ORDER_FAILS,
    "connection": Reaction.ORDER_FAILS,
    "dns": Reaction.ORDER_FAILS,
    "externalAccountRequired": Reaction.ACCOUNT,
    "incorrectResponse": Reaction.ORDER_FAILS,
    "invalidContact": Reaction.ACCOUNT,
    "malformed": Reaction.OUR_MISTAKE,
    "orderNotReady": Reaction.LOOK_AGAIN,
    "rateLimited": Reaction.WAIT,
    "rejectedIdentifier": Reaction.ORDER_FAILS,
    "serverInternal": Reaction.WAIT,
    "tls": Reaction.ORDER_FAILS,
    "unauthorized": Reaction.ORDER_FAILS,
    "unsupportedContact": Reaction.ACCOUNT,
    "unsupportedIdentifier": Reaction.ORDER_FAILS,
    "userActionRequired": Reaction.ACCOUNT,
    # RFC 9773 §7.4
    "alreadyReplaced": Reaction.WITHOUT_REPLACES,
    # draft-ietf-acme-profiles
    "invalidProfile": Reaction.ORDER_FAILS,
    # draft-aaron-acme… "conflict" of the drafts before RFC 9773, which servers still send.
    "conflict": Reaction.WITHOUT_REPLACES,
}
"""Every known problem type, without its prefix."""


class Identifier(msgspec.Struct, frozen=True):
    """An identifier to validate: `type` is `dns` or `ip` (RFC 8555 §9.7.7, RFC 8738 §3); others survive."""

    type: str = ""
    value: str = ""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """A problem document. `subproblems` give the problem of each identifier (RFC 8555 §6.7.1)."""

    type: str = "about:blank"
    title: str = ""
    detail: str = ""
    status: int = 0
    instance: str = ""
    identifier: Identifier | None = None
    subproblems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The problem type without the ACME prefix, e.g. `rateLimited`."""
        return self.type.removeprefix(_PREFIX)

    @property
    def reaction(self) -> Reaction:
        """How to react. The HTTP status decides for an unknown type: wait after a server error or 429, any
        other status is a fault of the request (RFC 7807 §3.1 requires tolerance of unknown types)."""
        known = ERROR_TYPES.get(self.name) if self.type.startswith(_PREFIX) else None
        if known is not None:
            return known
        waits = self.status >= 500 or self.status in (408, 425, 429)
        return Reaction.WAIT if waits else Reaction.ORDER_FAILS

    @property
    def sentence(self) -> str:
        """One line: the server's words, then the problem of each identifier, then the type."""
        text = self.detail or self.title or "the server gives no reason"
        parts = [part for sub in self.subproblems if (part := sub._of_name()) and part not in text]
        if parts:
            text = f"{text.rstrip('.')} ({'; '.join(parts)})"
        text = f"{text} [{self.name}]" if self.name != "about:blank" else text
        return quote(text, _MAX_TEXT)

    def _of_name(self) -> str:
        text = self.detail or self.title or self.name
        return f"{self.identifier.value}: {text}" if self.identifier else text


def read_problem(body: bytes, status: int, *, media_type: str) -> Problem | None:
    """Parse the problem document in a body; the HTTP status fills in a missing `status`. Returns None if
    there is none. Drops members of the wrong type and keeps the rest.

    Its words are shown to tenants, who may name any server: so it counts only with the media type of a
    problem document (RFC 7807 §6.1), or with an ACME problem type. Other JSON may have a `detail` as well.
    """
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict) or not ({"type", "detail", "title"} & found.keys()):
        return None
    is_called_so = media_type.partition(";")[0].strip().lower() == _MEDIA_TYPE
    if not is_called_so and not _text(found, "type").startswith(_PREFIX):
        return None
    return _problem(found, status, depth=0)


def _problem(found: dict[str, Any], status: int, *, depth: int) -> Problem:
    raw = found.get("subproblems")
    # A subproblem of a subproblem has no meaning (RFC 8555 §6.7.1): ignored.
    subs = [sub for sub in raw if isinstance(sub, dict)] if isinstance(raw, list) and depth == 0 else []
    own = found.get("status")
    return Problem(
        type=_text(found, "type") or "about:blank",
        title=_text(found, "title"),
        detail=_text(found, "detail"),
        status=own if isinstance(own, int) and not isinstance(own, bool) else status,
        instance=_text(found, "instance"),
        identifier=_identifier(found.get("identifier")),
        subproblems=tuple(_problem(sub, 0, depth=depth + 1) for sub in subs),
    )


def problem_of(value: Any) -> Problem | None:
    """The problem inside another object (`error` of an order or a challenge)."""
    return _problem(value, 0, depth=0) if isinstance(value, dict) else None


def _identifier(value: Any) -> Identifier | None:
    if not isinstance(value, dict):
        return None
    return Identifier(type=_text(value, "type"), value=_text(value, "value"))


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    return value if isinstance(value, str) else ""
