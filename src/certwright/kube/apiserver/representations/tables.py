"""Tables: the rows and columns that `kubectl get` prints.

Source: Kubernetes API reference, Table v1 meta; Kubernetes documentation, "Receiving resources as Tables" and
"Additional printer columns".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec

from certwright.kube.apiserver.model.definitions import Column, ResourceDefinition
from certwright.kube.apiserver.model.objects import go_json
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.jsonpath import MISSING, compile_path

_MINUTE = 60
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 365 * _DAY

# Up to `limit` seconds an age is shown in the first unit, and the rest in the second one, if any.
_STEPS: tuple[tuple[int, int, str, int, str], ...] = (
    (2 * _MINUTE, 1, "s", 0, ""),
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (2 * _DAY, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def human_duration(seconds: float) -> str:
    """`5s`, `3m12s`, `2h`, `4d3h`, `400d`, `9y`.

    Less than two seconds in the future counts as now, since clocks differ; more is `<invalid>`.
    """
    whole_seconds = int(seconds)
    if whole_seconds < -1:
        return "<invalid>"
    whole_seconds = max(0, whole_seconds)
    for limit, unit, name, rest_unit, rest_name in _STEPS:
        if whole_seconds < limit:
            count, rest = divmod(whole_seconds, unit)
            part = rest // rest_unit if rest_unit else 0
            return f"{count}{name}{part}{rest_name}" if part else f"{count}{name}"
    return f"{whole_seconds // _YEAR}y"


def age(timestamp: object, now: float) -> str:
    """The age of an RFC 3339 time at `now` (seconds since 1970); `<unknown>` where there is none."""
    if not timestamp:
        return "<unknown>"
    try:
        moment = datetime.fromisoformat(str(timestamp))
    except ValueError:
        return "<invalid>"
    if moment.tzinfo is None:
        return "<invalid>"
    return human_duration(now - moment.timestamp())


_encode = msgspec.json.encode
_decode = msgspec.json.decode
_MAX_TEXT = 64 * 1024
"""Characters in the cells of one row."""


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


_decode_metadata = json_decoder(_Metadata).decode


def name_cell(obj: dict[str, Any], _now: float) -> Any:
    """The object's name."""
    return obj["metadata"].get("name", "")


def age_cell(obj: dict[str, Any], now: float) -> Any:
    """How long ago the object was created."""
    return age(obj["metadata"].get("creationTimestamp"), now)


NAME = Column(
    "Name", "string", name_cell, format="name", description="The object's name, unique in its namespace."
)
AGE = Column("Age", "string", age_cell, description="How long ago the object was created.")


def printer_columns(given: Iterable[Mapping[str, Any]]) -> tuple[Column, ...]:
    """The columns of a custom resource: its name, then its `additionalPrinterColumns`, or its age.

    As in Kubernetes, a column with an invalid path is left out, with all later columns.
    """
    columns = [NAME]
    try:
        columns += map(_printer_column, list(given) or [DEFAULT_AGE])
    except ValueError:
        pass
    return tuple(columns)


DEFAULT_AGE = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
    "description": "How long ago the object was created.",
}


def _printer_column(given: Mapping[str, Any]) -> Column:
    path = given["jsonPath"]
    find = compile_path(path)

    def cell(obj: dict[str, Any], now: float) -> Any:
        value = find(obj)
        return None if value is MISSING else _show(value, given["type"], now)

    return Column(
        given["name"],
        given["type"],
        cell,
        format=given.get("format", ""),
        description=given.get("description")
        or f"Custom resource definition column (in JSONPath format): {path}",
        priority=given.get("priority", 0),
    )


def _show(value: Any, kind: str, now: float) -> Any:
    if kind == "string":
        # A value as Go prints it.
        if isinstance(value, str):
            return value
        if value is None:
            return "<no value>"
        return _go_float(value) if isinstance(value, float) else go_json(value)
    if value is None or (kind == "boolean") != isinstance(value, bool):
        return None
    if kind == "date":
        return age(value, now) if isinstance(value, str) else None
    if kind == "boolean":
        return value
    if isinstance(value, float) and kind == "integer":
        # What Go makes of a larger number depends on the processor; this is amd64.
        return int(value) if abs(value) < 2**63 else -(2**63)
    return value if isinstance(value, (int, float)) else None


def _go_float(value: float) -> str:
    """`%v` of Go: the shortest digits, with an exponent below 1e-4 and from 1e6 on."""
    digits = len(Decimal(repr(value)).normalize().as_tuple().digits)
    scientific = f"{value:.{digits - 1}e}"
    is_plain = -4 <= int(scientific.partition("e")[2]) < 6
    return repr(value).removesuffix(".0") if is_plain else scientific


def render(
    definition: ResourceDefinition,
    objects: Iterable[bytes],
    *,
    now: datetime,
    include: str = "Metadata",
    metadata: bytes = b"{}",
    with_columns: bool = True,
    version: str = "v1",
) -> bytes:
    """A Table with one row per object: `opening`, `rows` and the end."""
    begin = opening(definition, metadata=metadata, with_columns=with_columns, version=version)
    return begin + rows(definition, objects, now=now, include=include, version=version) + b"]}"


def opening(
    definition: ResourceDefinition,
    *,
    metadata: bytes = b"{}",
    with_columns: bool = True,
    version: str = "v1",
) -> bytes:
    """A Table up to its first row.

    `metadata` is the JSON of the list's own metadata. Of a watch only the first event carries the columns.
    `version` is the requested one of the meta.k8s.io group.
    """
    shown = ("name", "type", "format", "description", "priority")
    described = [{name: getattr(column, name) for name in shown} for column in definition.columns]
    head = f'{{"kind":"Table","apiVersion":"meta.k8s.io/{version}","metadata":'.encode()
    return b"".join(
        (head, metadata, b',"columnDefinitions":', _encode(described if with_columns else None), b',"rows":[')
    )


def rows(
    definition: ResourceDefinition,
    objects: Iterable[bytes],
    *,
    now: datetime,
    include: str = "Metadata",
    version: str = "v1",
) -> bytes:
    """The rows of a Table, one per object (each given as its whole JSON).

    `include` is the request's `includeObject`: `None`, `Metadata` or `Object`.
    """
    columns, moment = definition.columns, now.timestamp()
    return b",".join([_row(columns, raw, moment, include, version) for raw in objects])


def _row(columns: tuple[Column, ...], raw: bytes, now: float, include: str, version: str) -> bytes:
    obj = _decode(raw)
    if len(raw) * len(columns) > _MAX_TEXT:
        cells = _encode(_bounded_cells(columns, obj, now))
    else:
        cells = _encode([column.cell(obj, now) for column in columns])
    if include == "Object":
        included = raw
    elif include == "None":
        included = b"null"
    else:
        head = f'{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/{version}","metadata":'
        included = head.encode() + bytes(_decode_metadata(raw).metadata) + b"}"
    return b'{"cells":' + cells + b',"object":' + included + b"}"


def _bounded_cells(columns: tuple[Column, ...], obj: dict[str, Any], now: float) -> list[Any]:
    """The cells, their texts `_MAX_TEXT` characters together: a hundred columns may show one large field."""
    cells, left = list[Any](), _MAX_TEXT
    for column in columns:
        cell = column.cell(obj, now) if left > 0 else None
        if isinstance(cell, str):
            cell, left = cell[:left], left - len(cell)
        cells.append(cell)
    return cells
