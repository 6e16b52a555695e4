"""Manifest sources: files, folders, standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from certwright.kube.api import manifests
from certwright.kube.api.manifests import Document, DocumentError

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
        yield from manifests.read_documents(sys.stdin.buffer.read(), source=_STDIN)
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
    yield from manifests.read_documents(content, source=str(path))


def _unreadable(path: Path | str, why: str) -> DocumentError:
    return DocumentError(source=str(path), index=0, line=0, column=0, message=why)
