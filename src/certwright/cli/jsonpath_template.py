"""`-o jsonpath=…` and `-o custom-columns=…`: objects as text.

Source: Kubernetes documentation, "JSONPath Support" and "Custom columns". Supported: text, `{.path}`,
`{"text"}`, `{range .path}…{end}`; without braces the whole template is one path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from certwright.kube.util.jsonpath import FindAll, compile_all

Token = tuple[bool, str]
"""Whether it is in braces, and the text, of a part of a template."""
Render = Callable[[Any], str]
"""From an object to its text."""

_TOKEN = re.compile(r"""\{((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^{}"'])*)\}|([^{}]+)""")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_NONE = "<none>"


class Column(msgspec.Struct, frozen=True):
    """A column of `-o custom-columns=…`."""

    title: str
    find: FindAll

    def cell(self, obj: Any) -> str:
        """The values in one cell, with commas between them; `<none>` if there are none."""
        return ",".join(value_text(value) for value in self.find(obj)) or _NONE


def columns(text: str) -> tuple[Column, ...]:
    """The columns of `NAME:.metadata.name,READY:.status.…`. Raises `ValueError`."""
    parsed = []
    for part in re.split(r",(?=[^,:\[\]]+:)", text):
        title, colon, path = part.partition(":")
        if not (title and colon and path):
            raise ValueError(f"{part!r} is not HEADER:PATH, e.g. NAME:.metadata.name")
        parsed.append(Column(title, compile_all(bare_path(path))))
    return tuple(parsed)


def template(text: str) -> Render:
    """Compile a JSONPath template. Raises `ValueError` with the part that is wrong."""
    if "{" not in text:
        return _values(bare_path(text))
    render, rest = _sequence(_tokens(text))
    if rest:
        raise ValueError("{end} without a {range …} before it")
    return render


def bare_path(path: str) -> str:
    """The path within `{.a.b}`, `.a.b` or `a.b`."""
    bare = path.strip()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1].strip()
    if bare.startswith("{") or bare.endswith("}"):
        raise ValueError(f"a brace without its partner in {path!r}")
    bare = bare.removeprefix("$")
    return bare if bare.startswith((".", "[")) else f".{bare}"


def value_text(value: Any) -> str:
    """A value as kubectl prints it: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _tokens(text: str) -> list[Token]:
    """The parts of a template."""
    tokens, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"a brace without its partner at {text[at:]!r}")
        tokens.append((match[1] is not None, (match[2] if match[1] is None else match[1].strip())))
        at = match.end()
    return tokens


def _sequence(tokens: Sequence[Token], *, inner: bool = False) -> tuple[Render, list[Token]]:
    """The renderer of the tokens up to {end} or the end of the template, and the tokens after it."""
    renders: list[Render] = []
    rest = list(tokens)
    while rest:
        is_path, text = rest.pop(0)
        if is_path and text == "end":
            if not inner:
                raise ValueError("{end} without a {range …} before it")
            return _joined(renders), rest
        if is_path and text.startswith("range "):
            body, rest = _sequence(rest, inner=True)
            renders.append(_range(compile_all(bare_path(text.removeprefix("range "))), body))
        elif is_path and text[:1] not in ('"', "'"):
            renders.append(_values(bare_path(text)))
        else:
            renders.append(_literal(_unescaped(text[1:-1]) if is_path else text))
    if inner:
        raise ValueError("{range …} without an {end}")
    return _joined(renders), []


def _joined(renders: Sequence[Render]) -> Render:
    return lambda value: "".join(render(value) for render in renders)


def _literal(text: str) -> Render:
    return lambda _: text


def _range(find: FindAll, body: Render) -> Render:
    return lambda value: "".join(body(item) for item in find(value))


def _values(path: str) -> Render:
    find = compile_all(path)
    return lambda value: " ".join(value_text(item) for item in find(value))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text)
