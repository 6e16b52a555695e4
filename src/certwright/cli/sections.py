"""Sections of descriptions: fields, conditions, events, nested values. Pure text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from certwright.cli.format import lines_of, table
from certwright.diagnosis.words import age, at, parse_time, sentence, when

Json = Mapping[str, Any]
_INDENT = "  "
_LONGEST = 60
"""Characters of the value of a label or an annotation."""


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
    pairs = []
    for key, value in (values or {}).items():
        line = " ".join(str(value).split())
        if not key.startswith("kubectl."):
            pairs.append(f"{key}={line if len(line) <= _LONGEST else f'{line[: _LONGEST - 1]}…'}")
    return ", ".join(pairs)


def conditions(obj: Json, now: datetime) -> list[str]:
    """The conditions as a table: type, status, reason, age, message."""
    rows = []
    for item in (obj.get("status") or {}).get("conditions") or []:
        since = parse_time(item.get("lastTransitionTime"))
        words = [str(item.get(key, "")) for key in ("type", "status", "reason")]
        rows.append((*words, age(since, now) if since else "", sentence(str(item.get("message", "")))))
    return _table(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def events(items: Iterable[Json], now: datetime) -> list[str]:
    """Events as a table, in the given order: type, reason, age and count, message."""
    rows = []
    for item in items:
        last = parse_time(item.get("lastTimestamp")) or parse_time(item.get("eventTime"))
        times = int(item.get("count") or 1)
        seen = age(last, now) + (f" (x{times})" if times > 1 else "")
        words = [str(item.get(key, "")) for key in ("type", "reason")]
        rows.append((*words, seen, sentence(str(item.get("message", "")))))
    return _table(("TYPE", "REASON", "AGE", "MESSAGE"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return table(titles, rows, indent=len(_INDENT), colours=False)[0] if rows else []
