"""Draft of a Certificate's status, with the Events to send and the notes to take.

Steps change the draft; the reconciler writes it once, and applies Events and notes only after that write. So
deciding changes nothing but the draft, and deciding twice on one snapshot gives the same draft.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec

from certwright.kube.api import conditions
from certwright.kube.api.meta import Condition
from certwright.resources.certificate import Certificate
from certwright.resources.retry import RetryRecord, read_retry, write_retry

EventType = Literal["Normal", "Warning"]


class NewEvent(NamedTuple):
    """An Event to send once the draft is written."""

    type: EventType
    reason: str
    message: str


class Note(NamedTuple):
    """A change of memory: a call of `apply` with `args`."""

    apply: Callable[..., None]
    args: tuple[object, ...]


class Blocked(Exception):
    """An issuance cannot continue until a user changes something; the text says what, the reason is a word
    for programs."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Rejected(Blocked):
    """The API server, or an admission webhook, has rejected or changed a write: retried at growing intervals,
    because no event reports the end of that."""


@dataclass(slots=True)
class Draft:
    """A copy of a Certificate whose status the steps change; the spec stays as it is. `annotations` is the
    merge patch of its annotations, written before the status."""

    certificate: Certificate
    events: list[NewEvent] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    annotations: dict[str, str | None] = field(default_factory=dict)

    def change(self, **status: Any) -> None:
        """Set fields of the status. Where they have these values, the certificate stays the same object."""
        current = self.certificate.status
        if all(getattr(current, name) == value for name, value in status.items()):
            return
        changed = msgspec.structs.replace(current, **status)
        self.certificate = msgspec.structs.replace(self.certificate, status=changed)

    def set_condition(self, kind: str, status: str, reason: str, message: str, *, now: datetime) -> None:
        """Put a condition in place of the one of its type; `observedGeneration` is the Certificate's."""
        generation = self.certificate.metadata.generation
        current = conditions.find(self.certificate.status.conditions, kind)
        if current is not None and current.last_transition_time is not None:
            said = (current.status, current.reason, current.message, current.observed_generation)
            if said == (status, reason, message, generation):
                return
        new = Condition(
            type=kind, status=status, reason=reason, message=message, observed_generation=generation
        )
        self.change(conditions=conditions.with_condition(self.certificate.status.conditions, new, now))

    def remove_condition(self, kind: str) -> None:
        """Remove the condition of that type."""
        self.change(conditions=conditions.without(self.certificate.status.conditions, kind))

    def set_retry(self, record: RetryRecord | None) -> None:
        """Set the retry record; None removes it."""
        present = read_retry(self.certificate.metadata.annotations)
        self.annotations = write_retry(record) if record != present else {}

    def add_event(self, kind: EventType, reason: str, message: str) -> None:
        """Send an Event once the draft is written."""
        self.events.append(NewEvent(kind, reason, message))

    def note(self, apply: Callable[..., None], *args: object) -> None:
        """Call `apply` with these values once the draft is written."""
        self.notes.append(Note(apply, args))
