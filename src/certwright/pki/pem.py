"""PEM to DER and back, byte for byte.

Source: RFC 7468 §3 (the strict form, with lines of 64 characters that end in a line feed).
"""

from __future__ import annotations

import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Iterable, Iterator

Block = tuple[bytes, bytes]
"""Label and content."""

_BEGIN, _END, _DASHES, _LINE_END = b"-----BEGIN ", b"-----END ", b"-----\n", b"-----"
_LINE = re.compile(rb".{1,64}")
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----\s[^-]*-----END CERTIFICATE-----")


def blocks(text: bytes) -> list[Block]:
    """The blocks of a text, if `join` reproduces exactly that text; else none."""
    if not text.startswith(_BEGIN):
        return []
    try:
        parsed = [_block(part) for part in text.split(_BEGIN)[1:]]
    except ValueError:
        return []
    return parsed if join(parsed) == text else []


def sections(text: bytes) -> Iterator[Block]:
    """Label and undecoded body of each block of a text, in linear time. What is between blocks is skipped
    (RFC 7468 §2: "Data before the encapsulation boundaries are permitted"), and so is a block without its
    end."""
    at = 0
    while (at := text.find(_BEGIN, at)) >= 0:
        body = text.find(_LINE_END, at + len(_BEGIN))
        label = text[at + len(_BEGIN) : body]
        at = text.find(_LINE_END, body + len(_LINE_END)) if body >= 0 else -1
        if at < 0:
            return
        if text.startswith(_END + label + _LINE_END, at):
            yield label, text[body + len(_LINE_END) : at]


def certificates_in(text: bytes) -> Iterator[bytes]:
    """The certificates of a file as PEM, one by one and unparsed. Keys, parameters and text between them are
    skipped."""
    for match in _CERTIFICATE.finditer(text):
        yield match[0].replace(b"\r", b"") + b"\n"


def join(items: Iterable[Block]) -> bytes:
    """The text of these blocks in sequence."""
    return b"".join([_text(label, content) for label, content in items])


def _block(part: bytes) -> Block:
    label, _, rest = part.partition(_DASHES)
    return label, a2b_base64(rest.partition(_END)[0])


def _text(label: bytes, content: bytes) -> bytes:
    lines = b"\n".join(_LINE.findall(b2a_base64(content, newline=False)))
    return b"%b%b%b%b\n%b%b%b" % (_BEGIN, label, _DASHES, lines, _END, label, _DASHES)
