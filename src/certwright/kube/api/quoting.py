"""Values in error messages: quoted as Go quotes them, and without private keys."""

from __future__ import annotations

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
