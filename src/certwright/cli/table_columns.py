"""What `certwright get` adds to the server's tables: dates of Certificates, labels, and the order of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from certwright.cli import lazy

if TYPE_CHECKING:
    from certwright.kube.util.jsonpath import Find

Json = dict[str, Any]
_DATES = (("Not After", "notAfter"), ("Renews At", "renewalTime"))
_SAME = "Expiration"
"""The server's column, of wide tables only, with the content of Not After."""
_TEXT: Json = {"type": "string", "priority": 0}


def with_dates(table: Json) -> Json:
    """A table of whole Certificates with the end of validity and the time of renewal, before the age.

    Times are as in status: RFC 3339 in UTC.
    """
    titles = [{**_TEXT, "name": title} for title, _ in _DATES]
    definitions = [
        {**column, "hidden": column.get("name") == _SAME} for column in table.get("columnDefinitions") or []
    ]
    return {
        **table,
        "columnDefinitions": [*definitions[:-1], *titles, *definitions[-1:]] if definitions else [],
        "rows": [{**row, "cells": _dated(row)} for row in table.get("rows") or []],
    }


def _dated(row: Mapping[str, Any]) -> list[Any]:
    status = (row.get("object") or {}).get("status") or {}
    cells = row.get("cells") or [None]
    return [*cells[:-1], *(status.get(field) for _, field in _DATES), cells[-1]]


def with_labels(table: Json) -> Json:
    """The table with the labels of each object as last column."""
    definitions = table.get("columnDefinitions")
    rows = table.get("rows") or []
    return {
        **table,
        "columnDefinitions": [*definitions, {**_TEXT, "name": "Labels"}] if definitions else [],
        "rows": [{**row, "cells": [*(row.get("cells") or []), _labels(row)]} for row in rows],
    }


def _labels(row: Mapping[str, Any]) -> str:
    labels = ((row.get("object") or {}).get("metadata") or {}).get("labels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "<none>"


def sort_key(find: Find, obj: Any) -> tuple[int, float, str]:
    """The place of an object in the order of one of its values: missing first, then numbers, then texts."""
    value = find(obj)
    if value is lazy.jsonpath.MISSING or value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, value, ""
    return 2, 0.0, str(value)
