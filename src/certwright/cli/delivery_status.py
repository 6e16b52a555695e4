"""The status of Deliveries, for `certwright status`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from certwright.cli import sections
from certwright.cli.access import Session
from certwright.cli.format import StatusView
from certwright.diagnosis import related
from certwright.diagnosis.certificates import name_of
from certwright.diagnosis.deliveries import as_json, source_of, story
from certwright.diagnosis.words import parse_time, when

Json = dict[str, Any]


_MOST_EVENTS = 10


async def view(here: Session, delivery: Json, now: datetime) -> StatusView:
    """The status of the Delivery. Raises the client's errors."""
    events = (await related.events_of(here.client, delivery))[-_MOST_EVENTS:]
    metadata, (cause, advice) = delivery["metadata"], story(delivery, now)
    lines = [
        *sections.headline(f"Delivery {metadata.get('namespace', '')}/{metadata['name']}", cause, advice),
        *sections.section("Delivery", _fields(delivery, now)),
        *sections.section("Conditions", sections.conditions(delivery, now)),
        *sections.section("Events", sections.events(events, now)),
    ]
    return StatusView(lines, as_json(delivery, now))


def line(delivery: Json, now: datetime) -> str:
    """The Delivery in one line."""
    return f"{name_of(delivery)}: {story(delivery, now)[0]}"


def _fields(delivery: Json, now: datetime) -> list[str]:
    spec, current = delivery.get("spec") or {}, (delivery.get("status") or {}).get("current") or {}
    addresses = (served.get("address", "") for served in spec.get("servedAt") or [])
    return sections.fields(
        [
            ("Of", source_of(delivery)),
            ("Place", f"{spec.get('root', '')}:{spec.get('path', '')}"),
            ("Hook", str(spec.get("hook", ""))),
            ("Served at", ", ".join(map(str, addresses))),
            ("Delivered", when(parse_time(current.get("time")), now)),
            ("Expires", when(parse_time(current.get("notAfter")), now)),
        ]
    )
