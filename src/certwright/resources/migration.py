"""Reader of state that older versions kept in messages. The only module that parses them.

Used when an object without the annotation of its state is first met, and for the `; not before …` that an
issuer of another group may still write into a `FailureCause`. A text that a CA has forged can delay its own
object only, and the callers bound each moment. Formats: commit e712f13.
"""

from __future__ import annotations

import re
from datetime import datetime

from certwright.resources.acme import Order
from certwright.resources.names import ACME_ATTEMPTS, NOT_BEFORE
from certwright.resources.retry import FAILED, RetryRecord, parse_moment

_MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_NEXT_ATTEMPT = re.compile(rf"\. Next attempt at ({_MOMENT})", re.ASCII)
_NOT_BEFORE = re.compile(rf"; not before ({_MOMENT})$", re.ASCII)
_ASKED = re.compile(rf"; asked at ({_MOMENT}(?:, {_MOMENT})*)$", re.ASCII)
_WAITS_FOR_ISSUER = (
    "fails for several certificates; one at a time tries it, those that end first go first",
    "is failing; one certificate at a time tries it, those that expire first go first",
)
_REQUEST_WAITS = "Waiting for CertificateRequest"


def retry_record(message: str, failed_at: datetime | None) -> RetryRecord:
    """The state in the message of a condition `Issuing=False`."""
    # The last match, because an issuer's text may look like ours; ours is last.
    last_match = max(_NEXT_ATTEMPT.finditer(message), key=lambda match: match.start(), default=None)
    text, tail = (
        (message[: last_match.start()], message[last_match.end() :])
        if last_match is not None
        else (message, "")
    )
    why, not_before = split_not_before(text)
    return RetryRecord(
        message=why.removeprefix(FAILED).removeprefix(": "),
        failed_at=failed_at,
        advice=tail.removeprefix("; "),
        next_attempt=parse_moment(last_match[1]) if last_match is not None else None,
        # cert-manager writes no such message, so that its text is a CA's.
        not_before=not_before if last_match is not None else None,
        by_request=failed_at is None or why.startswith(FAILED),
        waits_for_issuer=any(words in message for words in _WAITS_FOR_ISSUER),
    )


def split_not_before(text: str) -> tuple[str, datetime | None]:
    """The text without `; not before …` at its end, and that moment."""
    match = _NOT_BEFORE.search(text)
    moment = parse_moment(match[1]) if match is not None else None
    return (text, None) if match is None or moment is None else (text[: match.start()], moment)


def is_used_mark(message: str) -> bool:
    """Whether the request of a Certificate that `renew` has marked waits already."""
    return message.startswith(_REQUEST_WAITS)


def order_annotations(order: Order) -> dict[str, str]:
    """The annotations of an Order that has none of its attempts; empty where it needs none."""
    if ACME_ATTEMPTS in order.metadata.annotations or not order.status.reason or order.status.is_final:
        return {}
    match = _ASKED.search(order.status.reason)
    if match is None:
        return {ACME_ATTEMPTS: ""}
    _, moment = split_not_before(order.status.reason[: match.start()])
    named = {NOT_BEFORE: moment.isoformat()} if moment is not None else {}
    return {ACME_ATTEMPTS: match[1].replace(", ", ","), **named}
