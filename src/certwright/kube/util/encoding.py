"""Text: base64url, addresses, quoting as Go quotes, and untrusted text made safe to show."""

from __future__ import annotations

import base64
import ipaddress
import os
import re

# C0 (but tab and line feed), DEL, C1, separators of lines, and marks that change the direction of text.
_CONTROLS = (*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0))
_MARKS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_ESCAPES = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_MARKS)}
_CONNECTING = re.compile(r"Connect call failed \('([^']+)', ([0-9]+)")


def base64url(data: bytes) -> str:
    """base64url without padding (RFC 4648 §5, RFC 7515 §2)."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def one_line(text: str) -> str:
    """The text in one line without control characters, because the terminal that shows a condition, an Event
    or a log would obey them."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def visible(text: str) -> str:
    """The text with control characters as `\\u001b`, because a terminal that shows it would obey them. Tabs
    and line feeds stay; JSON stays the same JSON."""
    return text.translate(_ESCAPES)


def in_brackets(host: str) -> str:
    """A host as written before a port: an IPv6 address in brackets (RFC 3986 §3.2.2)."""
    return f"[{host}]" if ":" in host else host


def in_words(error: OSError) -> str:
    """The system's message for an error: `Connection refused at 127.0.0.1:80`.

    asyncio puts a tuple with the address in the place of the system's message.
    """
    message = error.strerror or str(error)
    if error.errno is None or error.errno <= 0:
        return message
    where = _CONNECTING.search(message)
    return os.strerror(error.errno) + (f" at {in_brackets(where[1])}:{where[2]}" if where else "")


def is_ip_address(text: str) -> bool:
    """Whether the text is an IPv4 or IPv6 address, maybe with a zone."""
    # Every IPv6 address has a colon, and every IPv4 address ends with a digit. For any other text the two
    # exceptions inside `ip_address` would take longer than all other checks of a name.
    if ":" not in text and not text[-1:].isdigit():
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_GO_ESCAPES = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r"}
_GO_ESCAPES |= {"\t": "\\t", "\v": "\\v"}


def quoted(text: str) -> str:
    """`text` in quotes, as Go's `%q` writes it (Go `strconv.Quote`)."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(mark: str) -> str:
    if mark in _GO_ESCAPES:
        return _GO_ESCAPES[mark]
    if mark.isprintable():
        return mark
    code = ord(mark)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_KEY_MARKS = (
    "PRIVATE KEY-----",
    # The beginnings of the same in base64: PKCS#8, PKCS#1, SEC 1, encrypted PKCS#8.
    "LS0tLS1CRUdJTiBQUklWQVRF",
    "LS0tLS1CRUdJTiBSU0EgUFJJVkFUR",
    "LS0tLS1CRUdJTiBFQyBQUklWQVRF",
    "LS0tLS1CRUdJTiBFTkNSWVBURUQgUFJJVkFUR",
)


def holds_private_key(text: str) -> bool:
    """Whether there is a private key in PEM, or the base64 of one, in `text`."""
    return any(mark in text for mark in _KEY_MARKS)
