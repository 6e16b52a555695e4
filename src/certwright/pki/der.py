"""A minimal DER codec: write and read type, length and value (X.690 §8, §10)."""

from __future__ import annotations

from typing import NamedTuple

INTEGER, BIT_STRING, OCTET_STRING, NULL, OBJECT_IDENTIFIER, SEQUENCE = 0x02, 0x03, 0x04, 0x05, 0x06, 0x30
UTF8_STRING, PRINTABLE_STRING, SET = 0x0C, 0x13, 0x31
CONTEXT_0 = 0xA0
CONTEXT_0_PRIMITIVE = 0x80


class Element(NamedTuple):
    """One element: its tag, its content, and its complete encoding."""

    tag: int
    content: bytes
    encoded: bytes


def element(tag: int, *content: bytes) -> bytes:
    """Type, length and value; several contents are concatenated."""
    value = b"".join(content)
    size = len(value)
    if size < 0x80:
        return bytes((tag, size)) + value
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + value


def sequence(*content: bytes) -> bytes:
    """A SEQUENCE of elements."""
    return element(SEQUENCE, *content)


def integer(value: int) -> bytes:
    """A non-negative INTEGER."""
    return element(INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def octets(value: bytes) -> bytes:
    """An OCTET STRING."""
    return element(OCTET_STRING, value)


def null() -> bytes:
    """NULL."""
    return element(NULL)


def oid(dotted: str) -> bytes:
    """An OBJECT IDENTIFIER (X.690 §8.19)."""
    first, second, *rest = (int(arc) for arc in dotted.split("."))
    return element(OBJECT_IDENTIFIER, *(_base128(arc) for arc in (40 * first + second, *rest)))


def _base128(arc: int) -> bytes:
    digits = [arc & 0x7F]
    while arc := arc >> 7:
        digits.append(0x80 | (arc & 0x7F))
    return bytes(reversed(digits))


def read(data: bytes) -> list[Element]:
    """The elements of `data`, one level deep. Raises `ValueError` for invalid DER."""
    elements, at = [], 0
    while at < len(data):
        end = behind(data, at)
        elements.append(Element(data[at], data[inside(data, at) : end], data[at:end]))
        at = end
    return elements


def inside(data: bytes, at: int) -> int:
    """The offset of the content of the element at `at`. Raises `ValueError`."""
    return _length(data, at + 1)[1]


def behind(data: bytes, at: int) -> int:
    """The offset after the element at `at`. Raises `ValueError`, also if it is longer than the data."""
    length, at = _length(data, at + 1)
    if at + length > len(data):
        raise ValueError("an element is longer than what holds it")
    return at + length


def _length(data: bytes, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise ValueError("an element has no length")
    first = data[at]
    if first < 0x80:
        return first, at + 1
    size = first & 0x7F
    if not 1 <= size <= 4 or at + 1 + size > len(data):
        raise ValueError("the length of an element cannot be read")
    return int.from_bytes(data[at + 1 : at + 1 + size], "big"), at + 1 + size
