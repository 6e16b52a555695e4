"""How many messages this process has sent to each destination, for its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from certwright.kit.exposition import head, labels


@dataclass(slots=True)
class Tally:
    """The messages to one destination since the start, and those that could not be sent."""

    destination: str
    kind: str
    sent: int = 0
    failed: int = 0


def exposition(tallies: Sequence[Tally]) -> Iterator[str]:
    """The lines of the metrics."""
    sent = [(tally, tally.sent) for tally in tallies]
    failed = [(tally, tally.failed) for tally in tallies]
    yield from _counter("sent", "Notifications that the destination has accepted.", sent)
    yield from _counter("failed", "Attempts to send a notification that failed.", failed)


def _counter(name: str, meaning: str, counts: Sequence[tuple[Tally, int]]) -> Iterator[str]:
    metric = f"certwright_notifications_{name}_total"
    yield head(metric, "counter", meaning)
    for tally, count in counts:
        pairs = labels((("destination", tally.destination), ("kind", tally.kind)))
        yield f"{metric}{{{pairs}}} {count}\n"
