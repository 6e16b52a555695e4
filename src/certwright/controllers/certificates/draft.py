"""The Certificate as it shall become, and what shall be told about it.

Steps change the draft; the reconciler writes it once, and sends the events only after that write.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from certwright.resources import conditions
from certwright.resources.certificate import Certificate
from certwright.resources.meta import Condition

EventType = Literal["Normal", "Warning"]


class Told(NamedTuple):
    """An Event to send once the draft is written."""

    type: EventType
    reason: str
    message: str


class Blocked(Exception):
    """An issuance cannot go on until somebody changes something; the text says what, the reason is a word
    for programs."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(slots=True)
class Draft:
    """A copy of a Certificate whose status the steps change; the spec stays as it is."""

    certificate: Certificate
    events: list[Told] = field(default_factory=list)

    def change(self, **status: Any) -> None:
        """Set fields of the status."""
        changed = msgspec.structs.replace(self.certificate.status, **status)
        self.certificate = msgspec.structs.replace(self.certificate, status=changed)

    def set_condition(self, kind: str, status: str, reason: str, message: str, *, now: datetime) -> None:
        """Put a condition in place of the one of its type; `observedGeneration` is the Certificate's."""
        new = Condition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            observed_generation=self.certificate.metadata.generation,
        )
        self.change(conditions=conditions.with_condition(self.certificate.status.conditions, new, now))

    def remove_condition(self, kind: str) -> None:
        """Take the condition of that type away."""
        self.change(conditions=conditions.without(self.certificate.status.conditions, kind))

    def tell(self, kind: EventType, reason: str, message: str) -> None:
        """Send an Event once the draft is written."""
        self.events.append(Told(kind, reason, message))
