"""The stream page: Events of the namespaces that the user may read, and lines of the process's log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Final

import msgspec

from certwright.dashboard.index import Scope, may
from certwright.dashboard.log_lines import LogLine
from certwright.dashboard.visit import View, Visit
from certwright.diagnosis import related
from certwright.diagnosis.words import parse_time, sentence, shortened
from certwright.kube.api import errors
from certwright.kube.api.naming import check_name

Json = Mapping[str, Any]
_SHOWN: Final = 200
_READ: Final = 10_000
"""Events that are read; a server keeps them for an hour. They are listed by name, not by time."""
_LONGEST_MESSAGE: Final = 1_024
"""Characters: the limit of `note` in Kubernetes' Event API; that of the core group has none."""
_LOGGED: Final = {"Certificate": "certificates", "Delivery": "deliveries", "Issuer": "issuers"}
"""The kinds that lines of the log are about, with their resources."""
_MOST_NAMESPACES: Final = 50


class StreamEntry(msgspec.Struct, frozen=True):
    """An Event for the page."""

    at: datetime | None
    kind: str
    namespace: str
    name: str
    level: str
    reason: str
    message: str
    count: int

    @property
    def certificate(self) -> str:
        """The name of the object's Certificate, as controllers name the objects that they create for it;
        empty if unknown."""
        return certificate_name(self.kind, self.name)


_NUMBERS: Final = {"CertificateRequest": 1, "Order": 2, "Challenge": 3}
"""By kind, how many numbers follow the name of the Certificate: the revision, and hashes of the specs."""
_PART_OF_UID: Final = re.compile(r"-[0-9a-f]{8}(-\d+)?$")
"""What follows where a name without it was taken."""


def certificate_name(kind: str, name: str) -> str:
    """The name of the Certificate of an object with that name; empty if unknown."""
    if kind not in _NUMBERS:
        return name if kind == "Certificate" else ""
    pattern = re.compile(rf"(.+){_NUMBERS[kind] * r'-[0-9]+'}")
    for text in (name, _PART_OF_UID.sub("", name)):
        if (match := pattern.fullmatch(text)) is not None:
            return match[1]
    return ""


def stream_entry(event: Json) -> StreamEntry:
    """An Event as the page shows it."""
    about = event.get("involvedObject") or event.get("regarding") or {}
    meta = event["metadata"]
    # Events of objects without a namespace are in `default`.
    is_of_cluster = str(about.get("kind", "")).startswith("Cluster")
    return StreamEntry(
        parse_time(event.get("lastTimestamp") or event.get("eventTime") or meta.get("creationTimestamp")),
        str(about.get("kind", "")),
        str(about.get("namespace") or ("" if is_of_cluster else meta.get("namespace", ""))),
        str(about.get("name", "")),
        "warn" if event.get("type") == "Warning" else "ok",
        str(event.get("reason", "")),
        sentence(shortened(str(event.get("message") or event.get("note") or ""), _LONGEST_MESSAGE)),
        int(event.get("count") or 1),
    )


async def _page_of_events(visit: Visit, namespace: str, most: int) -> tuple[list[dict[str, Any]], bool]:
    """Events of a namespace, or of all, and whether there are more than are read. Raises `ApiError`."""
    found: list[dict[str, Any]] = []
    token = ""
    async with aclosing(visit.client.list_pages(related.EVENTS, namespace, most=most)) as pages:
        async for page in pages:
            found += [msgspec.json.decode(item) for item in page.items]
            token = page.continue_token
    return found, bool(token)


async def _events(
    visit: Visit, namespace: str, most: int = _READ
) -> tuple[list[dict[str, Any]], list[str], bool]:
    """The Events that the user may read, the namespaces whose Events they may not read, and whether there are
    more."""
    try:
        found, has_more = await _page_of_events(visit, namespace, most)
    except errors.Forbidden:
        if namespace:
            return [], [namespace], False
    else:
        return found, [], has_more
    scope = await visit.scope("certificates")
    allowed = {key.namespace for key in scope.names} | scope.namespaces
    if scope.everywhere:
        allowed = set(visit.index.namespaces)
    places = sorted(allowed)
    refused: list[str] = []
    found, has_more = [], len(places) > _MOST_NAMESPACES
    for place in places[:_MOST_NAMESPACES]:
        if len(found) >= _READ:
            return found, refused, True
        events, missing, more = await _events(visit, place, _READ - len(found))
        found += events
        refused += missing
        has_more = has_more or more
    return found, refused, has_more


async def lines_of(visit: Visit, subject: str = "") -> list[LogLine]:
    """Lines of the log that the user may see, newest first; with `subject` those about that object. Raises
    `ApiError`."""
    log = visit.tools.log
    if subject:
        # The caller has read the object as the user.
        return [line for line in reversed(tuple(log.lines)) if line.subject == subject][:_SHOWN]
    scopes = {kind: await visit.scope(plural) for kind, plural in _LOGGED.items()}
    if await may(visit.client, "list", "*", "*"):
        scopes[""] = Scope(everywhere=True)
    return log.of(scopes)


async def page(visit: Visit) -> View:
    """Events and log lines, newest first. Raises `ApiError`."""
    fields = visit.query
    namespace, name, only = fields.get("namespace", ""), fields.get("name", ""), fields.get("type", "")
    listed: list[dict[str, Any]] = []
    refused, has_more = [namespace], False
    if not namespace or check_name(namespace, rule="label") is None:
        listed, refused, has_more = await _events(visit, namespace)
    chosen = [
        event
        for event in listed
        if (not only or event.get("type") == only)
        and name in str((event.get("involvedObject") or {}).get("name", ""))
    ]
    chosen.sort(key=related.last_seen, reverse=True)
    lines = [
        line
        for line in await lines_of(visit)
        if (not namespace or line.namespace == namespace)
        and name in (line.name if line.subject else line.text)
    ]
    context = {
        "events": [stream_entry(event) for event in chosen[:_SHOWN]],
        "more": max(len(chosen) - _SHOWN, 0),
        "not_read": has_more,
        "read": _READ,
        "lines": lines[:_SHOWN],
        "refused": refused,
    }
    return View("stream.html", context, live=("events", "lines"), details=namespace or "*")
