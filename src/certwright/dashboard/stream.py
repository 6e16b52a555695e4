"""The page of what happens: Events of the namespaces that the user may read, and lines of the process's
log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import related
from certwright.diagnosis.words import parse_time, sentence
from certwright.kube.api import errors

Json = Mapping[str, Any]
_SHOWN: Final = 200
_READ: Final = 2_000
"""Events that are read of each namespace, or of all; a server keeps them for an hour."""
_MOST_NAMESPACES: Final = 50


class Happening(msgspec.Struct, frozen=True):
    """An Event for the page."""

    at: datetime | None
    kind: str
    namespace: str
    name: str
    level: str
    reason: str
    message: str
    count: int


def happening_of(event: Json) -> Happening:
    """An Event as the page shows it."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    meta = event["metadata"]
    return Happening(
        parse_time(event.get("lastTimestamp") or event.get("eventTime") or meta.get("creationTimestamp")),
        str(about.get("kind", "")),
        str(about.get("namespace") or meta.get("namespace", "")),
        str(about.get("name", "")),
        "warn" if event.get("type") == "Warning" else "ok",
        str(event.get("reason", "")),
        sentence(str(event.get("message") or event.get("note") or "")),
        int(event.get("count") or 1),
    )


async def _events(visit: Visit, namespace: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Events that the user may read, and the namespaces that they may not read them of."""
    try:
        listed = await visit.client.list_page(related.EVENTS, namespace, limit=_READ)
        return [msgspec.json.decode(item) for item in listed.items], []
    except errors.Forbidden:
        if namespace:
            return [], [namespace]
    scope = await visit.scope("certificates")
    found: list[dict[str, Any]] = []
    refused: list[str] = []
    for name in sorted(scope.namespaces)[:_MOST_NAMESPACES]:
        events, missing = await _events(visit, name)
        found += events
        refused += missing
    return found, refused


async def page(visit: Visit) -> View:
    """Events and log lines, newest first. Raises `ApiError`."""
    fields = visit.query
    namespace, name, only = fields.get("namespace", ""), fields.get("name", ""), fields.get("type", "")
    listed, refused = await _events(visit, namespace)
    shown = [
        happening_of(event)
        for event in sorted(listed, key=related.last_seen, reverse=True)
        if not only or event.get("type") == only
    ]
    shown = [event for event in shown if name in event.name]
    lines = [
        line
        for line in visit.tools.log.of(await visit.scope("certificates"))
        if (not namespace or line.subject.startswith(f"{namespace}/")) and name in line.text
    ]
    context = {
        "events": shown[:_SHOWN],
        "more": max(len(shown) - _SHOWN, 0),
        "lines": lines[:_SHOWN],
        "refused": refused,
    }
    return View("stream.html", context, live=("events", "lines"), details=namespace or "*")
