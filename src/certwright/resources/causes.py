"""Causes of failed issuances, as far as they determine the next attempt.

The objects carry a cause. The failed CertificateRequest has a condition `FailureCause` beside cert-manager's
`Ready`; the Certificate's condition `Issuing=False` has the cause as its reason, and in its message the
issuer's not-before and the time of the next attempt. So any client can read them, and a restart loses
nothing. A request without `FailureCause` failed for an unknown reason.

An Order that its CA has not accepted yet has the attempts in its reason, so that the number of requests to
the CA survives a restart.

An external issuer may write the condition `FailureCause` too: reason is one of `Cause`, the message is the
fix, and may end in `; not before 2026-11-21T12:00:00Z`. That message is the issuer's own; no other text is
parsed for such a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources import reasons
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateRequest

FAILURE_CAUSE = "FailureCause"
"""Condition type of a CertificateRequest with the cause of its failure."""


class Cause(StrEnum):
    """Failures by the backoff that they need. The values are reasons of conditions."""

    INVALID_REQUEST = "InvalidRequest"
    """The request can never succeed as it is."""
    UNAVAILABLE = "IssuerUnavailable"
    """The issuer is unreachable or overloaded."""
    RATE_LIMITED = "RateLimited"
    """A rate limit of the issuer is exhausted."""
    DENIED = "Denied"
    """The request was denied by an approver."""
    UNKNOWN = "Failed"
    """None of the others, or unknown; cert-manager's reason for all failures."""


class Why(NamedTuple):
    """Why a request has failed. `advice` is the fix (may be empty), `not_before` when the issuer accepts
    the next one, `generation` that of the issuer that judged (0: unknown)."""

    cause: Cause = Cause.UNKNOWN
    advice: str = ""
    not_before: datetime | None = None
    generation: int = 0


_NOT_BEFORE = re.compile(r"; not before (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)$")
_NEXT_ATTEMPT = re.compile(r"\. Next attempt at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)")
_ASKED = re.compile(r"; asked at ((?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ(?:, )?)+)$")
# Older attempts determine nothing, and no text may grow without bound.
# A moment that is obeyed after a restart too must not be recorded as an earlier one.
_ALMOST_A_SECOND = timedelta(microseconds=999_999)
_ASKED_WITHIN = timedelta(hours=1)
_MOST_ASKED = 20
_WAITING = "Waiting for CertificateRequest"
_WORDS = {cause.value: cause for cause in Cause}


def condition_of(why: Why) -> Condition | None:
    """The condition `FailureCause` of a failed request; None if it would say nothing."""
    if why.cause is Cause.UNKNOWN and why.not_before is None:
        return None
    return Condition(
        type=FAILURE_CAUSE,
        status="True",
        reason=why.cause,
        message=with_not_before(why.advice, why.not_before),
        observed_generation=why.generation,
    )


def of_request(request: CertificateRequest) -> Why:
    """Why the request failed; a denial and an invalid request have cert-manager's conditions for that."""
    existing = request.status.conditions
    if conditions.is_true(existing, reasons.DENIED):
        return Why(Cause.DENIED)
    failure = conditions.find(existing, FAILURE_CAUSE)
    if failure is None or failure.status != "True":
        invalid = conditions.is_true(existing, reasons.INVALID_REQUEST)
        return Why(Cause.INVALID_REQUEST) if invalid else Why()
    advice = _NOT_BEFORE.split(failure.message, maxsplit=1)[0]
    cause = _WORDS.get(failure.reason, Cause.UNKNOWN)
    return Why(cause, advice, not_before(failure.message), failure.observed_generation)


def of_certificate(certificate: Certificate) -> Cause:
    """The cause of the last failure, from the Certificate alone; `UNKNOWN` if it has none."""
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or issuing.status == "True":
        return Cause.UNKNOWN
    return _WORDS.get(issuing.reason, Cause.UNKNOWN)


def waiting_for(request: CertificateRequest, text: str) -> str:
    """The message of the Issuing condition while the request waits; `text` is the request's own message."""
    return f'{_WAITING} "{request.metadata.name}": {text}'


def is_marked(certificate: Certificate) -> bool:
    """Whether a user has requested immediate issuance (`renew`), and no reason for a wait is recorded yet."""
    issuing = conditions.find(certificate.status.conditions, reasons.ISSUING)
    if issuing is None or issuing.status != "True" or issuing.reason != reasons.MANUALLY_TRIGGERED:
        return False
    return not issuing.message.startswith(_WAITING)


def with_not_before(text: str, moment: datetime | None) -> str:
    """`text` with the issuer's not-before."""
    return text if moment is None else f"{text}; not before {_written(moment + _ALMOST_A_SECOND)}"


def not_before(text: str) -> datetime | None:
    """The moment that `with_not_before` has added to a text; None if there is none."""
    return _moment(_NOT_BEFORE, text)


def with_attempts(text: str, moments: Iterable[datetime], now: datetime) -> str:
    """`text` with the attempts at the CA of the last hour, in place of those that it had."""
    recent = sorted({_written(one) for one in moments if one > now - _ASKED_WITHIN})[-_MOST_ASKED:]
    return without_attempts(text) + (f"; asked at {', '.join(recent)}" if recent else "")


def without_attempts(text: str) -> str:
    """`text` before `with_attempts`."""
    return _ASKED.sub("", text)


def attempts(text: str) -> tuple[datetime, ...]:
    """The moments that `with_attempts` has added to a text, oldest first."""
    found = _ASKED.search(text)
    moments = (_parsed(one) for one in found[1].split(", ")) if found is not None else ()
    return tuple(moment for moment in moments if moment is not None)


def with_next_attempt(text: str, moment: datetime, advice: str = "") -> str:
    """`text` with the time of the next attempt in place of the one it had, and the fix."""
    tail = f"; {advice}" if advice else ""
    return f"{without_next_attempt(text)}. Next attempt at {_written(moment)}{tail}"


def without_next_attempt(text: str) -> str:
    """`text` before `with_next_attempt`."""
    found = _last(_NEXT_ATTEMPT, text)
    return text if found is None else text[: found.start()]


def next_attempt(text: str) -> datetime | None:
    """The time that `with_next_attempt` has added to a text; None if there is none."""
    return _moment(_NEXT_ATTEMPT, text)


def advice_of(text: str) -> str:
    """The fix that `with_next_attempt` has added to a text; empty if there is none."""
    found = _last(_NEXT_ATTEMPT, text)
    return "" if found is None else text[found.end() :].removeprefix("; ")


def _moment(pattern: re.Pattern[str], text: str) -> datetime | None:
    found = _last(pattern, text)
    return None if found is None else _parsed(found[1])


def parse_moment(text: str) -> datetime | None:
    """The moment that an annotation names (RFC 3339); None for anything else."""
    moment = _parsed(text)
    return moment if moment is not None and moment.tzinfo is not None else None


def _parsed(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written)
    except ValueError:
        # E.g. 31 February.
        return None


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match, because an issuer's text may look like ours; ours is last."""
    return max(pattern.finditer(text), key=lambda match: match.start(), default=None)


def _written(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
