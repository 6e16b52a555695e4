"""Distinguished names in their string representation.

Source: RFC 4514, "Lightweight Directory Access Protocol: String Representation of Distinguished Names".
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Attribute(NamedTuple):
    """One `type=value`. `value` is unescaped text; `hex_value` replaces it for `#0C02…`."""

    type: str
    value: str
    hex_value: bytes | None = None


Rdn = tuple[Attribute, ...]
"""One relative distinguished name: usually one attribute, several if they were joined with `+`."""

_BLANK: Final = " \t\r\n"
_TYPE: Final = re.compile(
    r"[ \t\r\n]*([A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+)[ \t\r\n]*=[ \t\r\n]*", re.ASCII
)
_HEX: Final = re.compile(r"#((?:[0-9A-Fa-f]{2})+)[ \t\r\n]*(?=[,;+]|$)")
# RFC 4514 §3: "special = escaped / SPACE / SHARP / EQUALS" and
# "escaped = DQUOTE / PLUS / COMMA / SEMI / LANGLE / RANGLE".
_ESCAPED: Final = re.compile(r"\\(?:([\\\"+,;<> #=])|((?:[0-9A-Fa-f]{2})(?:\\[0-9A-Fa-f]{2})*))")
_PLAIN: Final = re.compile(r"[^\\,;+\"<>\0]+")
_MAX_LENGTH: Final = 16_384


def parse(text: str) -> tuple[Rdn, ...]:
    """The relative distinguished names in the order they are written, which is the reverse of their order
    in X.509 (§2.1). Empty text is the empty name.

    Types are returned as written. `;` is accepted as `,` as in RFC 2253, and blanks around separators are
    ignored (see RFC 4514 Appendix A). Raises `ValueError` with a sentence that names the position.
    """
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"a distinguished name of {len(text)} characters is too long (limit {_MAX_LENGTH})")
    names: list[Rdn] = []
    attributes: list[Attribute] = []
    at, more = 0, bool(text.strip(_BLANK))
    while more:
        attribute, at = _attribute(text, at)
        attributes.append(attribute)
        separator = text[at : at + 1]
        at, more = at + 1, bool(separator)
        if separator != "+":
            names.append(tuple(attributes))
            attributes = []
    return tuple(names)


def _attribute(text: str, at: int) -> tuple[Attribute, int]:
    start = _TYPE.match(text, at)
    if start is None:
        raise ValueError(f"expected an attribute such as CN=name at character {at + 1} of {text!r}")
    if encoded := _HEX.match(text, start.end()):
        return Attribute(start[1], "", bytes.fromhex(encoded[1])), encoded.end()
    value, end = _value(text, start.end())
    return Attribute(start[1], value), end


def _value(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    # Trailing blanks belong to the value only if they are escaped.
    kept = 0
    while at < len(text) and text[at] not in ",;+":
        if plain := _PLAIN.match(text, at):
            parts.append(plain[0])
            at = plain.end()
            continue
        escaped = _ESCAPED.match(text, at)
        if escaped is None:
            raise ValueError(
                f"character {at + 1} of {text!r} must be escaped with a backslash, or is a wrong escape"
            )
        parts.append(escaped[1] or _octets(escaped[2], text))
        kept = sum(map(len, parts))
        at = escaped.end()
    value = "".join(parts)
    return value[:kept] + value[kept:].rstrip(_BLANK), at


def _octets(pairs: str, text: str) -> str:
    try:
        return bytes.fromhex(pairs.replace("\\", "")).decode()
    except UnicodeDecodeError:
        raise ValueError(f"the escaped octets \\{pairs} in {text!r} are not UTF-8") from None


def escape(value: str) -> str:
    """`value` escaped for a distinguished name (§2.4)."""
    text = re.sub(r'([\\"+,;<>])', r"\\\1", value)
    text = re.sub(r"[\x00-\x1f]", lambda control: f"\\{ord(control[0]):02x}", text)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") and len(value) > 1 else text
