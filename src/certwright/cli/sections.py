"""Sections of descriptions: fields, conditions, events, nested values. Pure text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from certwright.cli.format import lines_of, table
from certwright.diagnosis.words import age, at, parse_time, sentence, when

Json = Mapping[str, Any]
_INDENT = "  "


def indented(lines: Iterable[str], *, by: int = 1) -> list[str]:
    """The lines, indented by `by` levels; empty ones stay empty."""
    return [f"{_INDENT * by}{line}" if line else line for line in lines]


def fields(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Aligned `Name:   value` lines; omits pairs without a value."""
    return lines_of((f"{label}:", value) for label, value in pairs if value)


def section(title: str, lines: Sequence[str]) -> list[str]:
    """A titled block after an empty line, or nothing without lines."""
    return ["", title, *indented(lines)] if lines else []


def headline(what: str, cause: str, advice: str) -> list[str]:
    """The first lines about an object: its state, and what to do, if anything."""
    return [f"{what}: {cause}.", *([f"What to do: {advice}."] if advice else [])]


def metadata_fields(obj: Json, now: datetime) -> list[tuple[str, str]]:
    """Name, namespace, labels, annotations, owner, creation."""
    metadata = obj.get("metadata") or {}
    created = parse_time(metadata.get("creationTimestamp"))
    owners = (f"{owner.get('kind')}/{owner.get('name')}" for owner in metadata.get("ownerReferences") or [])
    deleted = parse_time(metadata.get("deletionTimestamp"))
    return [
        ("Name", str(metadata.get("name", ""))),
        ("Namespace", str(metadata.get("namespace", ""))),
        ("Created", when(created, now)),
        ("Being deleted since", at(deleted) if deleted else ""),
        ("Finalizers", ", ".join(metadata.get("finalizers") or [])),
        ("Belongs to", ", ".join(owners)),
        ("Labels", _pairs(metadata.get("labels"))),
        ("Annotations", _pairs(metadata.get("annotations"))),
    ]


def _pairs(values: Mapping[str, str] | None) -> str:
    return ", ".join(f"{k}={_short(v)}" for k, v in (values or {}).items() if not k.startswith("kubectl."))


def _short(text: str, limit: int = 60) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def conditions(obj: Json, now: datetime) -> list[str]:
    """The conditions as a table: type, status, reason, age, message."""
    items = (obj.get("status") or {}).get("conditions") or []
    if not items:
        return []
    titles = ("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE")
    return _table(titles, [_condition(item, now) for item in items])


def _condition(item: Json, now: datetime) -> tuple[str, ...]:
    since = parse_time(item.get("lastTransitionTime"))
    return (
        str(item.get("type", "")),
        str(item.get("status", "")),
        str(item.get("reason", "")),
        age(since, now) if since else "",
        sentence(str(item.get("message", ""))),
    )


def events(items: Iterable[Json], now: datetime) -> list[str]:
    """Events as a table, in the given order: type, reason, age and count, message."""
    rows = [_event(item, now) for item in items]
    return _table(("TYPE", "REASON", "AGE", "MESSAGE"), rows) if rows else []


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return table(titles, rows, indent=len(_INDENT), colours=False)[0]


def _event(item: Json, now: datetime) -> tuple[str, ...]:
    last = parse_time(item.get("lastTimestamp")) or parse_time(item.get("eventTime"))
    times = int(item.get("count") or 1)
    seen = age(last, now) + (f" (x{times})" if times > 1 else "")
    return (
        str(item.get("type", "")),
        str(item.get("reason", "")),
        seen,
        sentence(str(item.get("message", ""))),
    )
