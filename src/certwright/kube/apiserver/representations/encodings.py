"""Response encodings: JSON responses as protobuf or YAML for clients that prefer it.

Verbs produce JSON, which is the stored form; only requests for another form pay for the conversion.

Source: Kubernetes documentation, "Kubernetes API Concepts", protobuf encoding; apiserver
`pkg/endpoints/handlers` (watch: frames with four bytes of length before them).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import lru_cache
from typing import Any

import msgspec

from certwright.kube.api.errors import InternalError
from certwright.kube.api.yaml_codec import write_yaml
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.negotiation import JSON, YAML, negotiate, plain_wire
from certwright.kube.apiserver.model.objects import decode_json
from certwright.kube.apiserver.protobuf import codec
from certwright.kube.apiserver.protobuf import fields as protobuf_fields
from certwright.kube.apiserver.protobuf.wire import put_piece
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.http_messages import PushStream, Request, Response, Write, close_stream, whole_body

_log = logging.getLogger(__name__)
_KEPT_BYTES = 32 * 1024  # Upper bound of a chunk whose frames are cached for the next watcher.
_TOGETHER = 200  # items encoded before other tasks get their turn


class _Head(msgspec.Struct, rename="camel"):
    """The kind of a response, and its items if it is a list, unchanged."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = {}
    items: list[msgspec.Raw] | None = None


_head = json_decoder(_Head).decode


async def convert(call: Call, response: Response) -> Response:
    """The response in the form that the client accepts. Raises `NotAcceptable`: no such form exists."""
    if response.headers.get("content-type") != JSON:
        return response
    if response.stream is not None and call.verb == "watch":
        response.headers["content-type"] = call.form.wire + ";stream=watch"
        response.stream = Frames(response.stream)
        return response
    return await _convert_response(call.request, response, call.form.wire)


async def convert_failure(request: Request, response: Response) -> Response:
    """The `Status` of a failed request, in the form that the client accepts."""
    if not _may_want_other(request):
        return response
    wire = plain_wire(request.headers.get("accept", ""), default=JSON)
    return response if wire == JSON else await _convert_response(request, response, wire)


async def convert_plain(request: Request, response: Response) -> Response:
    """A document without another shape, in the form that the client accepts."""
    if not _may_want_other(request):
        return response
    wire = plain_wire(request.headers.get("accept", ""))
    if response.headers.get("content-type") != JSON or wire == JSON:
        return response
    return await _convert_response(request, response, wire)


def _may_want_other(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return "protobuf" in accept or "yaml" in accept


async def _convert_response(request: Request, response: Response, wire: str) -> Response:
    body = await whole_body(response)
    try:
        encoded = await (asyncio.to_thread(_yaml, body) if wire == YAML else _encode(body))
    except codec.NoSuchForm:
        # Then the client's next choice is used.
        negotiate(request.headers.get("accept", ""))
        return Response(response.status, response.headers, body)
    response.headers["content-type"] = wire
    return Response(response.status, response.headers, encoded)


def _yaml(body: bytes) -> bytes:
    """Encode a list item by item: encoding many in one step would block all other tasks."""
    head = _head(body)
    if not head.items:
        return write_yaml(decode_json(body)).encode()
    items = [write_yaml([decode_json(raw)]).encode() for raw in head.items]
    start, end = {"apiVersion": head.api_version}, {"kind": head.kind, "metadata": head.metadata}
    return b"".join([write_yaml(start).encode(), b"items:\n", *items, write_yaml(end).encode()])


async def _encode(body: bytes) -> bytes:
    """A response as protobuf. Raises `NoSuchForm`."""
    head = _head(body)
    if head.items is None:
        return codec.encode(decode_json(body))
    # The message of a list's items.
    name = protobuf_fields.message_of(head.api_version, head.kind)
    fields = protobuf_fields.fields_of(name) if name else ()
    if [field.name for field in fields] != ["metadata", "items"]:
        raise codec.NoSuchForm("the kind is no list with a protobuf form")
    item = fields[1].type
    parts = [put_piece(b"\x0a", codec.encoder_of("meta.v1.ListMeta")(head.metadata))]
    for start in range(0, len(head.items), _TOGETHER):
        if start:
            await asyncio.sleep(0)
        some = head.items[start : start + _TOGETHER]
        parts += [put_piece(b"\x12", codec.encode_as(item, decode_json(raw))) for raw in some]
    return codec.envelope(head.api_version, head.kind, b"".join(parts))


class Frames:
    """The lines of a watch as frames: four bytes of length, then an event with an enveloped object in it."""

    def __init__(self, lines: AsyncIterator[bytes]) -> None:
        self._lines = lines

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return _frames(await anext(self._lines))

    def push_into(self, write: Write) -> None:
        """Write frames immediately where the stream of lines can write (`kit.exchange.PushStream`)."""
        if isinstance(self._lines, PushStream):
            self._lines.push_into(lambda lines: write(_frames(lines)))

    async def aclose(self) -> None:
        """Stop; harmless when repeated."""
        await close_stream(self._lines)


def _frames(chunk: bytes) -> bytes:
    """The frames of a chunk of lines."""
    return _kept_frames(chunk) if len(chunk) < _KEPT_BYTES else _make_frames(chunk)


def _make_frames(chunk: bytes) -> bytes:
    return b"".join([_frame(line) for line in chunk.splitlines()])


_kept_frames = lru_cache(maxsize=128)(_make_frames)
"""Cache of frames: many watchers receive the same chunk, one after the other."""


def _frame(line: bytes) -> bytes:
    """The frame of one event."""
    event = decode_json(line)
    kind, obj = event["type"], event["object"]
    try:
        encoded = codec.encode(obj)
    except codec.NoSuchForm as error:
        _log.error("an event of %s has no protobuf form: %s", obj.get("kind"), error)
        kind = "ERROR"
        encoded = codec.encode(InternalError("Internal error occurred: no protobuf form").status())
    message = put_piece(b"\x0a", kind.encode()) + put_piece(b"\x12", put_piece(b"\x0a", encoded))
    return len(message).to_bytes(4, "big") + message
