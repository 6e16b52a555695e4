"""Protocol Buffers wire format: varints, tags, unknown fields, and errors of malformed messages.

Source: Protocol Buffers encoding guide; Kubernetes sends proto2 as gogo/protobuf writes it.
"""

from __future__ import annotations

from typing import NamedTuple

VARINT, FIXED64, DELIMITED, GROUP, END_GROUP, FIXED32 = range(6)
PADDING = bytes(16)
"""Zeros after the data, so that no number is read beyond its end."""
MAX_DEPTH = 100
"""Nesting limit of messages. The deepest that a kind of Kubernetes needs are schemas of about 40."""
MAX_MESSAGES = 50_000
"""Messages in one body: one of two bytes becomes an object of hundreds in memory. The largest definitions of
custom resources that are known have about ten thousand."""

_SIZES = tuple(bytes((size,)) for size in range(128))


class Malformed(Exception):
    """A malformed message: where (byte offset in the object's message), why, and in which field."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset
        self.reason = reason
        self._path: list[str] = []

    def within(self, field: str) -> None:
        """Called while the error propagates, with the name of each enclosing field."""
        self._path.insert(0, field)

    def __str__(self) -> str:
        path = ".".join(part for part in self._path if part).replace(".[", "[")
        return f"{path or 'the message'}: {self.reason} (at byte {self.offset})"


class Tag(NamedTuple):
    """A field's number and wire type."""

    number: int
    wire: int


class Reading:
    """One body being decoded. `data` ends with `PADDING`, which is in no message."""

    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data + PADDING
        self.left = MAX_MESSAGES

    def spend(self, pos: int) -> None:
        """Count items that cost more than their bytes: messages, and unknown fields."""
        self.left -= 1
        if self.left < 0:
            raise Malformed(pos, f"there are more than {MAX_MESSAGES} messages in it")

    def varint(self, start: int) -> tuple[int, int]:
        """An unsigned number of up to 64 bits, and where it ends. Raises `Malformed`."""
        data, value, shift, pos = self.data, 0, 0, start
        while True:
            byte = data[pos]
            pos += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, pos
            shift += 7
            if shift > 63:
                raise Malformed(start, "a number has more than ten bytes")

    def tag(self, pos: int) -> tuple[Tag, int]:
        """A tag, and where it ends. Raises `Malformed`."""
        value, after = self.varint(pos)
        tag = Tag(value >> 3, value & 7)
        if tag.number == 0 or tag.number > 0x1FFF_FFFF or tag.wire > FIXED32:
            raise Malformed(pos, f"{value} is no tag of a field")
        return tag, after

    def piece(self, pos: int, end: int) -> tuple[int, int]:
        """Where a length-delimited field begins and ends. Raises `Malformed`."""
        size, begin = self.varint(pos)
        if begin + size > end:
            raise Malformed(begin, f"a value of {size} bytes goes beyond the end of its message")
        return begin, begin + size

    def skip(self, tag: Tag, pos: int, end: int) -> int:
        """Where the value of an unknown field ends. Raises `Malformed`."""
        start, open_groups = pos, 0
        while True:
            if tag.wire == GROUP:
                open_groups += 1
            elif tag.wire == END_GROUP:
                open_groups -= 1
                if open_groups < 0:
                    raise Malformed(start, "a group ends that has not begun")
            else:
                pos = self._skip_value(tag.wire, pos, end)
            if pos > end:
                raise Malformed(start, "a value goes beyond the end of its message")
            if not open_groups:
                return pos
            tag, pos = self.tag(pos)

    def _skip_value(self, wire: int, pos: int, end: int) -> int:
        if wire == VARINT:
            return self.varint(pos)[1]
        if wire == DELIMITED:
            return self.piece(pos, end)[1]
        return pos + (8 if wire == FIXED64 else 4)

    def small(self, pos: int, end: int) -> dict[int, int | tuple[int, int]]:
        """A message of few fields: numbers as they are, length-delimited fields as their bounds."""
        fields: dict[int, int | tuple[int, int]] = {}
        self.spend(pos)
        while pos < end:
            tag, pos = self.tag(pos)
            if tag.wire == VARINT:
                fields[tag.number], pos = self.varint(pos)
            elif tag.wire == DELIMITED:
                begin, pos = self.piece(pos, end)
                fields[tag.number] = (begin, pos)
            else:
                pos = self.skip(tag, pos, end)
            if pos > end:
                raise Malformed(pos, "a value goes beyond the end of its message")
        return fields


def signed(value: int, bits: int) -> int:
    """A number on the wire as the integer of `bits` bits that it stands for."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def put_varint(value: int) -> bytes:
    """A number as it is on the wire; negative ones take ten bytes."""
    if 0 <= value < 128:
        return _SIZES[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def put_piece(tag: bytes, value: bytes) -> bytes:
    """A length-delimited field."""
    return tag + put_varint(len(value)) + value


def put_tag(number: int, wire: int) -> bytes:
    """A tag."""
    return put_varint(number << 3 | wire)
