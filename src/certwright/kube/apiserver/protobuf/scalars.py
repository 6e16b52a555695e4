"""Scalars with a special JSON form: times, quantities, numbers or strings.

Source: apimachinery `pkg/apis/meta/v1` (Time, MicroTime), `pkg/api/resource` (Quantity),
`pkg/util/intstr`; API reference.
"""

from __future__ import annotations

import base64
import re
from binascii import b2a_base64
from datetime import UTC, datetime, timedelta
from typing import Any

from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.protobuf.wire import Malformed, Reading, put_varint, signed

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZERO_TIME = -62_135_596_800  # the first second of year 1, which Go takes for no time at all
_LAST_TIME = 253_402_300_799  # the last one of year 9999
_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,9})?")


# The last parameter of all decoders is the depth, which only messages use.


def read_text(reading: Reading, pos: int, end: int, _: int = 0) -> str:
    """A string."""
    try:
        return reading.data[pos:end].decode()
    except UnicodeDecodeError:
        raise Malformed(pos, "the text is not UTF-8") from None


def read_bytes(reading: Reading, pos: int, end: int, _: int = 0) -> str:
    """Bytes, which are base64 in JSON."""
    return b2a_base64(reading.data[pos:end], newline=False).decode()


def _seconds(reading: Reading, pos: int, end: int) -> tuple[int, int]:
    fields = reading.small(pos, end)
    seconds, nanos = fields.get(1, 0), fields.get(2, 0)
    if not isinstance(seconds, int) or not isinstance(nanos, int):
        raise Malformed(pos, "a time must have numbers in it")
    return signed(seconds, 64), signed(nanos, 32)


def read_time(reading: Reading, pos: int, end: int, _: int = 0) -> str | None:
    """A time in whole seconds, which are all that Kubernetes keeps; None: the zero time."""
    if pos == end:
        return None
    seconds, _ = _seconds(reading, pos, end)
    return _timestamp(pos, seconds)


def _timestamp(pos: int, seconds: int) -> str | None:
    if seconds == _ZERO_TIME:
        return None
    if not _ZERO_TIME < seconds <= _LAST_TIME:
        raise Malformed(pos, "the time is not within the years 1 to 9999")
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19] + "Z"


def read_micro_time(reading: Reading, pos: int, end: int, _: int = 0) -> str | None:
    """A time in microseconds; None: the zero time."""
    if pos == end:
        return None
    seconds, nanos = _seconds(reading, pos, end)
    carried, nanos = divmod(nanos, 10**9)
    text = _timestamp(pos, seconds + carried)
    return text and f"{text[:-1]}.{nanos // 1000:06d}Z"


def read_quantity(reading: Reading, pos: int, end: int, _: int = 0) -> str:
    """A quantity such as `100Mi`. An empty one is zero."""
    piece = reading.small(pos, end).get(1, (pos, pos))
    if not isinstance(piece, tuple):
        raise Malformed(pos, "a quantity must be a text")
    text = read_text(reading, *piece)
    if text and not _QUANTITY.fullmatch(text):
        raise Malformed(pos, "the text is no quantity")
    return text or "0"


def read_int_or_string(reading: Reading, pos: int, end: int, _: int = 0) -> int | str:
    """A number or a string, depending on its first field."""
    fields = reading.small(pos, end)
    kind, number, piece = fields.get(1, 0), fields.get(2, 0), fields.get(3, (pos, pos))
    if kind == 0 and isinstance(number, int):
        return signed(number, 32)
    if kind == 1 and isinstance(piece, tuple):
        return read_text(reading, *piece)
    raise Malformed(pos, "the value is neither number nor string")


def read_raw(reading: Reading, pos: int, end: int, _: int = 0) -> Any:
    """Any JSON, as bytes."""
    piece = reading.small(pos, end).get(1, (pos, pos))
    if not isinstance(piece, tuple):
        raise Malformed(pos, "the value must be bytes with JSON in them")
    begin, stop = piece
    if begin == stop:
        return None
    try:
        return decode_json(reading.data[begin:stop])
    except (ValueError, RecursionError):
        raise Malformed(begin, "the bytes are not JSON") from None


def put_text(value: str) -> bytes:
    """A string."""
    return value.encode()


def put_bytes(value: str) -> bytes:
    """Bytes, which are base64 in JSON."""
    return base64.b64decode(value, validate=True)


def put_time(value: str | None) -> bytes:
    """A time in whole seconds; fractions are not sent."""
    if value is None:
        return b""
    seconds = (datetime.fromisoformat(value) - _EPOCH) // timedelta(seconds=1)
    return b"\x08" + put_varint(seconds) + b"\x10\x00"


def put_micro_time(value: str | None) -> bytes:
    """A time with its microseconds."""
    if value is None:
        return b""
    moment = datetime.fromisoformat(value)
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return b"\x08" + put_varint(seconds) + b"\x10" + put_varint(moment.microsecond * 1000)


def put_quantity(value: str | int | float) -> bytes:
    """A quantity; in JSON it may be a number."""
    text = str(value).encode()
    return b"\x0a" + put_varint(len(text)) + text


def put_int_or_string(value: int | str) -> bytes:
    """A number or a string, with the unused field empty, as client-go writes it."""
    if isinstance(value, str):
        text = value.encode()
        return b"\x08\x01\x10\x00\x1a" + put_varint(len(text)) + text
    return b"\x08\x00\x10" + put_varint(value) + b"\x1a\x00"


def put_raw(value: Any) -> bytes:
    """Any JSON, as bytes."""
    if value is None:
        return b""
    text = encode_json(value)
    return b"\x0a" + put_varint(len(text)) + text
