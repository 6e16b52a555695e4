"""Circuit breaker record of an issuer: an annotation of the Issuer or ClusterIssuer.

An annotation and not a ConfigMap, because every replica watches issuers anyway, and because a user with write
access to one namespace cannot change the record of a ClusterIssuer. A working issuer has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

import msgspec

from certwright.kube.api.meta import Struct
from certwright.kube.util.decoders import json_decoder
from certwright.resources.names import CIRCUIT_BREAKER
from certwright.resources.retry import is_usable


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
    text = annotations.get(CIRCUIT_BREAKER)
    if not text:
        return None
    try:
        record = json_decoder(BreakerRecord).decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    moments = (record.since, record.next_probe, record.next_attempt, record.not_before, *record.attempts)
    return record if all(map(is_usable, moments)) else None


def write_breaker(record: BreakerRecord | None) -> dict[str, str | None]:
    """The merge patch of `metadata.annotations`; None removes the annotation."""
    return {CIRCUIT_BREAKER: msgspec.json.encode(record).decode() if record is not None else None}
