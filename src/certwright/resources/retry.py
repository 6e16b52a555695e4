"""Retry record of a Certificate: why it is not issued, and when the next attempt follows. Circuit breaker
record of an issuer.

Both are annotations: the status of cert-manager's CustomResourceDefinitions has no fields for them, and every
replica watches issuers anyway. The message of the condition `Issuing` is rendered from the record, and never
parsed. A user may change the record of a Certificate of theirs: that delays this Certificate, by a week at
most, and nothing else; a user with write access to one namespace cannot change the record of a ClusterIssuer.
A working issuer has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from certwright.kube.api.meta import Struct
from certwright.kube.util.decoders import json_decoder
from certwright.resources.names import CIRCUIT_BREAKER, RETRY

T = TypeVar("T")

FAILED = "The certificate request has failed to complete and will be retried"
"""How the message of Issuing=False begins after a failure, as cert-manager writes it."""

# Rounded up: a time that an issuer has named must not be shown as an earlier one.
_ALMOST_A_SECOND = timedelta(microseconds=999_999)
# What other programs write may be beyond this; no wait of ours is.
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


class RetryRecord(Struct, frozen=True):
    """State of a Certificate that waits after a failure, or (`waits_for_issuer`) for its issuer's breaker.

    `failed_at` is the `lastFailureTime` that the record is about (None: no attempt has failed), `message` the
    reason, `advice` the fix, or why it waits. `not_before` is the issuer's own time; `next_attempt` None: it
    depends on the issuer. `by_request`: the reason is a failed request, not e.g. another writer of the
    Secret.
    """

    failed_at: datetime | None = None
    message: str = ""
    advice: str = ""
    next_attempt: datetime | None = None
    not_before: datetime | None = None
    waits_for_issuer: bool = False
    by_request: bool = True

    @property
    def text(self) -> str:
        """The message of the condition `Issuing`."""
        text = self.message
        if self.failed_at is not None and self.by_request:
            text = f"{FAILED}: {text}" if text else FAILED
        text = with_not_before(text, self.not_before)
        if self.next_attempt is not None:
            text = f"{text}. Next attempt at {rfc3339(self.next_attempt)}"
        return f"{text}; {self.advice}" if self.advice else text


def read_retry(annotations: Mapping[str, str]) -> RetryRecord | None:
    """The record; None if it is missing or unreadable."""
    record = _read(annotations, RETRY, RetryRecord)
    if record is None or not all(map(is_usable, (record.failed_at, record.next_attempt, record.not_before))):
        return None
    return record


def _read(annotations: Mapping[str, str], name: str, kind: type[T]) -> T | None:
    text = annotations.get(name)
    try:
        return json_decoder(kind).decode(text) if text else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def write_retry(record: RetryRecord | None) -> dict[str, str | None]:
    """The merge patch of `metadata.annotations`; None removes the annotation."""
    return {RETRY: msgspec.json.encode(record).decode() if record is not None else None}


def with_not_before(text: str, moment: datetime | None) -> str:
    """`text` with the time that an issuer has named, for people."""
    return text if moment is None else f"{text}; not before {rfc3339(moment + _ALMOST_A_SECOND)}"


def parse_moment(text: str) -> datetime | None:
    """The moment that an annotation names (RFC 3339 with a zone); None for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if is_usable(moment) else None


def is_usable(moment: datetime | None) -> bool:
    """Whether a moment of an annotation, if there is one, has a zone, and no arithmetic with it overflows."""
    return moment is None or (moment.tzinfo is not None and _EARLIEST <= moment <= _LATEST)


def rfc3339(moment: datetime) -> str:
    """The moment in seconds, in UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class BreakerRecord(Struct, frozen=True):
    """The state, why and since when it is so, and when the issuer is probed and tried next.

    `state` Closed: attempts have failed, too few of them to stop the others. `attempts` are those of the last
    hour since the last success, oldest first. `not_before` is the issuer's own `Retry-After`.
    """

    state: Literal["Closed", "Open", "HalfOpen"] = "Closed"
    reason: str = ""
    message: str = ""
    since: datetime | None = None
    next_probe: datetime | None = None
    next_attempt: datetime | None = None
    not_before: datetime | None = None
    attempts: tuple[datetime, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether certificates wait for the issuer."""
        return self.state != "Closed"


def read_breaker(annotations: Mapping[str, str]) -> BreakerRecord | None:
    """The record; None if it is missing or unreadable: the issuer works, as far as known."""
    record = _read(annotations, CIRCUIT_BREAKER, BreakerRecord)
    if record is None:
        return None
    moments = (record.since, record.next_probe, record.next_attempt, record.not_before, *record.attempts)
    return record if all(map(is_usable, moments)) else None


def write_breaker(record: BreakerRecord | None) -> dict[str, str | None]:
    """The merge patch of `metadata.annotations`; None removes the annotation."""
    return {CIRCUIT_BREAKER: msgspec.json.encode(record).decode() if record is not None else None}
