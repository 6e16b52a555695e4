"""Responses: rows in the form that the client requested."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from certwright.kube.api.errors import ApiError
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import JSON, Form, Shape
from certwright.kube.apiserver.model.objects import encode_json, object_json, splice
from certwright.kube.apiserver.representations import tables
from certwright.kube.store.contract import Row
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.http_messages import Response


def partial_prefix(form: Form, kind: str = "PartialObjectMetadata") -> bytes:
    """The beginning of a metadata-only object."""
    return f'{{"kind":"{kind}","apiVersion":"meta.k8s.io/{form.version}","metadata":'.encode()


def headers(call: Call) -> dict[str, str]:
    """The headers of a JSON response."""
    header_fields = {"content-type": JSON, "cache-control": "no-cache, private"}
    if call.warnings:
        header_fields["warning"] = _warning(call.warnings)
    return header_fields


_ALL_WARNINGS, _ONE_WARNING = 4 * 1024, 256
"""Characters of all warnings, and of each where all are too long (apiserver `filters/warning.go`)."""


def _warning(texts: Iterable[str]) -> str:
    """The value of the header field: a list with commas, which means the same as one field for each (RFC 9110
    §5.3)."""
    warnings = list(dict.fromkeys(texts))
    if sum(map(len, warnings)) > _ALL_WARNINGS:
        # The beginnings of the first warnings, up to the total limit.
        all_warnings, warnings, written = warnings, [], 0
        for text in all_warnings:
            if written < _ALL_WARNINGS:
                warnings.append(text[:_ONE_WARNING])
                written += len(warnings[-1])
    return ", ".join(f'299 - "{_quoted(text)}"' for text in warnings)


def _quoted(text: str) -> str:
    cleaned = "".join(mark if mark.isprintable() else " " for mark in text)
    escaped = cleaned.replace("\\", "\\\\").replace('"', '\\"')
    # UTF-8, as from Kubernetes' API server. Header fields are written as ISO 8859-1: byte for byte.
    return escaped.encode("utf-8", "replace").decode("latin-1")


def item(definition: ResourceDefinition, form: Form, row: Row) -> bytes:
    """One object of a list, complete or its metadata."""
    if form.shape is Shape.PARTIAL:
        return splice(partial_prefix(form), row.meta, b"")
    return object_json(definition, row)


def items(call: Call, rows: Iterable[Row], now: datetime) -> bytes:
    """The items of a list, or the rows of a Table; the query's `includeObject` selects how much of each
    object a Table includes."""
    definition, form = call.definition, call.form
    if form.shape is Shape.TABLE:
        bodies = (object_json(definition, row) for row in rows)
        include = call.query.get("includeObject") or "Metadata"
        return tables.rows(definition, bodies, now=now, include=include, version=form.version)
    return b",".join([item(definition, form, row) for row in rows])


def list_opening(call: Call, metadata: bytes, *, with_columns: bool = True) -> bytes:
    """A list, in the negotiated form, up to its first item; it ends with `]}`."""
    definition, form = call.definition, call.form
    if form.shape is Shape.TABLE:
        return tables.opening(definition, metadata=metadata, with_columns=with_columns, version=form.version)
    if form.shape is Shape.PARTIAL:
        return partial_prefix(form, "PartialObjectMetadataList") + metadata + b',"items":['
    return definition.list_prefix + metadata + b',"items":['


def one_object(call: Call, row: Row, clock: Clock, *, with_columns: bool = True) -> bytes:
    """One object in the negotiated form."""
    if call.form.shape is not Shape.TABLE:
        return item(call.definition, call.form, row)
    # The result of a dry run has no revision.
    metadata = encode_json({"resourceVersion": str(row.revision)} if row.revision else {})
    return list_opening(call, metadata, with_columns=with_columns) + items(call, (row,), clock.now()) + b"]}"


def object_response(call: Call, row: Row, clock: Clock, *, code: int = 200) -> Response:
    """The response for one object."""
    return Response(code, headers(call), one_object(call, row, clock))


def success(call: Call, *, name: str, uid: str) -> Response:
    """The `Status` of a successful deletion."""
    definition = call.definition
    about = {"name": name, "kind": definition.plural, "uid": uid}
    if definition.group:
        about["group"] = definition.group
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}
    return Response(200, headers(call), encode_json(status))


def failure(error: ApiError, warnings: Iterable[str] = ()) -> Response:
    """The `Status` of a failed request."""
    header_fields = {"content-type": JSON, "cache-control": "no-cache, private"}
    if error.retry_after_s:
        header_fields["retry-after"] = str(error.retry_after_s)
    if error.http_status == 401:
        header_fields["www-authenticate"] = 'Bearer realm="certwright"'
    if texts := list(warnings):
        header_fields["warning"] = _warning(texts)
    return Response(error.http_status, header_fields, encode_json(error.status()))


def text(status: int, content: str) -> Response:
    """A response of plain text."""
    fields = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}
    return Response(status, fields, content.encode())


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Shown(msgspec.Struct):
    metadata: _Metadata = _Metadata()


class _ShownRow(msgspec.Struct):
    object: _Shown


class _Answer(_Shown):
    rows: tuple[_ShownRow, ...] = ()


_decode_answer = json_decoder(_Answer).decode


def name_in(response: Response) -> str:
    """The name of the one object in a response, in whatever form."""
    shown = _decode_answer(response.body)
    return (shown.rows[0].object if shown.rows else shown).metadata.name
