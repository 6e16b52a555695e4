"""Manifests: files of YAML or JSON documents, each an object for the API server.

A broken document does not affect the others: it becomes a `DocumentError` with its place, and the reader
continues with the next. Scalars are read as kubectl reads them.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from certwright.kube.api.yaml_codec import (
    MAX_DEPTH,
    MAX_VALUES,
    Loaded,
    Repeat,
    YamlError,
    exceeds_int64,
    load,
    load_all,
    tidy,
    write_yaml,
)

__all__ = ["Document", "DocumentError", "Repeat", "read_documents", "read_first", "read_value", "write_yaml"]

_SEPARATOR: Final = re.compile(rb"^---(?=[ \t\r\n]|$)", re.MULTILINE)
_ONLY_DIRECTIVES: Final = re.compile(rb"\s*(?:(?:%|#)[^\n]*\n\s*)*", re.ASCII)
_NEXT: Final = re.compile(r"\s*(?=\S)")
_PART: Final = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Document(msgspec.Struct, frozen=True):
    """One object as it was written. `index` and `line` count from 1.

    `text` is what it was read from, from `first_line` on: the object is at `place` in that value of it.
    """

    source: str
    index: int
    line: int
    content: dict[str, Any]
    text: str = ""
    first_line: int = 1
    value: int = 0
    place: tuple[str, ...] = ()

    def line_of(self, path: str) -> int:
        """The line of the field at a path such as `spec.dnsNames[0]` or `metadata.labels[a.b/c]`, or of the
        last field of the path that is written."""
        try:
            # Read again, because most documents have no error, and JSON is read without lines.
            loaded = _read_again(self.text)[self.value]
        except (YamlError, IndexError):
            return self.line
        here, line = loaded.content, 0
        parts = (match[1] if match[1] is not None else match[2] for match in _PART.finditer(path))
        for part in (*self.place, *parts):
            if isinstance(here, dict) and part in here:
                line, here = loaded.key_lines.get((id(here), part), line), here[part]
            elif isinstance(here, list) and part.isdecimal() and int(part) < len(here):
                line, here = loaded.key_lines.get((id(here), part), line), here[int(part)]
            else:
                break
        return line + self.first_line - 1 if line else self.line


class DocumentError(msgspec.Struct, frozen=True):
    """One document that cannot be read. `index`, `line` and `column` count from 1, 0: not known."""

    source: str
    index: int
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        place = f"line {self.line}, column {self.column}" if self.column else f"line {self.line}"
        return f"{self.source}: {place}: {self.message}" if self.line else f"{self.source}: {self.message}"


def read_documents(text: str | bytes, *, source: str) -> Iterator[Document | DocumentError]:
    """The objects of a YAML or JSON file, in order; Lists are expanded, empty documents left out.

    `source` is the file's name for messages. Never raises: an unreadable document becomes a `DocumentError`.
    """
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    if raw[:2] in _UTF16_MARKS:
        raw = raw.decode("utf-16", errors="replace").encode()
    index = 0
    for first_line, chunk in _chunks(raw.removeprefix(b"\xef\xbb\xbf")):
        for item in _read_chunk(chunk):
            index += 1
            line = item.line + first_line - 1 if item.line else first_line
            if isinstance(item, YamlError):
                yield DocumentError(source, index, line, item.column, item.message)
            else:
                yield Document(
                    source, index, line, item.content, item.text, first_line, item.value, item.place
                )


def read_value(text: str | bytes) -> Any:
    """The one value (of any kind) in a YAML or JSON text, None if it is empty.

    Raises `ValueError` with a sentence, also when there is more than one document.
    """
    chunk = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    values = list(_values(_decoded(chunk.removeprefix(b"\xef\xbb\xbf"))))
    if len(values) > 1:
        raise YamlError("there is more than one document here", line=values[1].line)
    return values[0].content if values else None


def read_first(text: bytes) -> tuple[Any, list[Repeat]]:
    """The first value of a YAML or JSON text, None if it is empty, and its duplicate keys.

    Kubernetes reads applied configurations in this way: later documents are ignored, the last of equal keys
    wins, integers beyond int64 are floats, numbers beyond float64 text. Raises `ValueError` with a sentence.
    """
    text = text.removeprefix(b"\xef\xbb\xbf")
    decoded, repeats = _decoded(text), list[Repeat]()
    if decoded.lstrip()[:1] == "{":
        try:
            values = list(_json_values(decoded))
            if len(values) == 1 and not exceeds_int64(values[0].content):
                return values[0].content, repeats
        except (ValueError, RecursionError):
            # YAML reads JSON too, and finds the same keys.
            pass
    return load(decoded, repeats, most=MAX_VALUES), repeats


def _chunks(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The text cut before each `---` line, each piece with the number of its first line."""
    start, line = 0, 1
    for match in _SEPARATOR.finditer(raw):
        # %YAML and %TAG lines belong to the document after the separator.
        if b"%" in raw[start : match.start()] and _ONLY_DIRECTIVES.fullmatch(raw, start, match.start()):
            continue
        if match.start() > start:
            yield line, raw[start : match.start()]
            line += raw.count(b"\n", start, match.start())
            start = match.start()
    yield line, raw[start:]


@functools.lru_cache(maxsize=1)
def _read_again(text: str) -> list[Loaded]:
    if text.lstrip()[:1] != "{":
        return list(load_all(text))
    values: list[Loaded] = []
    at = 0
    while match := _NEXT.match(text, at):
        _, end = _json.raw_decode(text, match.end())
        # Line breaks before it keep the lines right.
        values += load_all("\n" * text.count("\n", 0, match.end()) + text[match.end() : end])
        at = end
    return values


class _Object(msgspec.Struct, frozen=True):
    """See `Document`."""

    content: dict[str, Any]
    line: int
    place: tuple[str, ...] = ()
    text: str = ""
    value: int = 0


def _read_chunk(chunk: bytes) -> Iterator[_Object | YamlError]:
    try:
        text = _decoded(chunk)
        for n, value in enumerate(_values(text)):
            for item in _objects(value.content, value.line, value.lines):
                yield item if isinstance(item, YamlError) else replace(item, text=text, value=n)
    except YamlError as error:
        yield error


def _decoded(chunk: bytes) -> str:
    try:
        return chunk.decode()
    except UnicodeDecodeError as error:
        before = chunk[: error.start]
        column = error.start - before.rfind(b"\n")
        raise YamlError(
            "this is not UTF-8 text; save the file as UTF-8", line=before.count(b"\n") + 1, column=column
        ) from None


def _values(text: str) -> Iterator[Loaded]:
    looks_like_json: json.JSONDecodeError | None = None
    if text.lstrip()[:1] == "{":
        try:
            yield from list(_json_values(text))
            return
        except json.JSONDecodeError as error:
            looks_like_json = error
        except (ValueError, RecursionError):
            # A duplicate key, or nested too deep: the YAML reader reads JSON too, and knows the place.
            pass
    try:
        yield from load_all(text)
    except YamlError:
        if looks_like_json is None:
            raise
        message = f"this is neither JSON ({looks_like_json.msg}) nor YAML"
        raise YamlError(message, line=looks_like_json.lineno, column=looks_like_json.colno) from None


def _json_values(text: str) -> Iterator[Loaded]:
    """One or more JSON values after each other, with or without space between them."""
    at, line = 0, 1
    while match := _NEXT.match(text, at):
        line += text.count("\n", at, match.end())
        value, at = _json.raw_decode(text, match.end())
        _check_depth(value)
        yield Loaded(value, line)
        line += text.count("\n", match.end(), at)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key is duplicated")
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_json: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=lambda text: tidy(float(text), text), parse_constant=_no_constant
)


def _check_depth(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _objects(
    content: Any, line: int, lines: dict[int, int], place: tuple[str, ...] = ()
) -> Iterator[_Object | YamlError]:
    """The object, or the objects of a List."""
    if content is None:
        return
    if problem := _problem(content):
        yield YamlError(problem, line=line)
        return
    items = content.get("items")
    if not (content["kind"].endswith("List") and isinstance(items, list)):
        yield _Object(content, line, place)
        return
    for n, item in enumerate(items):
        yield from _objects(item, lines.get(id(item), line), lines, (*place, "items", str(n)))


def _problem(content: Any) -> str | None:
    """Why `content` is no object that could be sent to an API server."""
    if not isinstance(content, dict):
        # The value is not shown: the user may have passed a key file by mistake.
        shown = "a list" if isinstance(content, list) else "a single value"
        return f"this is {shown}, but a manifest is a mapping with apiVersion, kind and metadata"
    for name in ("apiVersion", "kind"):
        value = content.get(name)
        if value is None or value == "":
            return f"{name} is missing; every manifest begins with apiVersion and kind"
        if not isinstance(value, str):
            return f"{name} is {json.dumps(value)}, but must be text; put it in quotes"
    return None


_STDIN = "standard input"
_SUFFIXES = (".yaml", ".yml", ".json")


class Manifests(msgspec.Struct, frozen=True):
    """The documents of all sources in order; an unreadable one is a `DocumentError` in its place."""

    names: tuple[str, ...]
    documents: tuple[Document | DocumentError, ...]

    @property
    def readable(self) -> bool:
        """Whether there is any readable document."""
        return any(isinstance(document, Document) for document in self.documents)


def read(names: Iterable[str]) -> Manifests:
    """Read files, folders, and standard input for `-`. Blocks until the end of standard input."""
    names = tuple(names)
    documents = tuple(document for name in names for document in _read_source(name))
    return Manifests(tuple(_STDIN if name == "-" else name for name in names), documents)


def _read_source(source: str) -> Iterator[Document | DocumentError]:
    if source == "-":
        yield from read_documents(sys.stdin.buffer.read(), source=_STDIN)
        return
    path = Path(source)
    if source.startswith(("http://", "https://")):
        yield _unreadable(source, f"URLs are not read; use `curl -L {source} | certwright apply -f -`")
        return
    if not path.is_dir():
        yield from _read_file(path)
        return
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    if not files:
        yield _unreadable(path, f"the folder holds no file that ends in {', '.join(_SUFFIXES)}")
    for file in files:
        yield from _read_file(file)


def _read_file(path: Path) -> Iterator[Document | DocumentError]:
    try:
        content = path.read_bytes()
    except OSError as error:
        yield _unreadable(path, f"cannot be read: {error.strerror or error}")
        return
    yield from read_documents(content, source=str(path))


def _unreadable(path: Path | str, why: str) -> DocumentError:
    return DocumentError(source=str(path), index=0, line=0, column=0, message=why)
