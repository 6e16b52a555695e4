"""What commands work on: manifests in files and folders, arguments as `cert web api` or `secret/web-tls`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from certwright.cli.access import Session
from certwright.cli.errors import Failed
from certwright.cli.options import gathered
from certwright.kube.api import manifests
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.manifests import Document, DocumentError
from certwright.kube.client import discovery

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


Json = dict[str, Any]
T = TypeVar("T")


class Target(msgspec.Struct, frozen=True):
    """A kind, its namespace, and the requested names (empty: all of them)."""

    kind: AnyKind
    namespace: str
    names: tuple[str, ...]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that the arguments and options of a command select."""

    words: tuple[str, ...]
    selector: str
    everything: bool
    all_namespaces: bool

    async def targets(self, session: Session) -> list[Target]:
        """See `resolve`."""
        return await resolve(session, self.words, all_namespaces=self.all_namespaces)

    async def keys(self, session: Session, target: Target) -> list[tuple[str, str]]:
        """Namespace and name of each selected object of the target. Raises `click.UsageError` when neither
        names nor the options select any."""
        if target.names:
            return [(target.namespace, name) for name in target.names]
        if not self.selector and not self.everything:
            raise click.UsageError(f"which {target.kind.plural}? Give names, -l SELECTOR, or --all")
        listing = await session.client.list(target.kind, target.namespace, labels=self.selector)
        return [(m.get("namespace", ""), m["name"]) for m in (item["metadata"] for item in listing.items)]


selection_arguments = gathered("selection", Selection)
"""Passes the arguments and options of that name as `selection: Selection`."""


def split(words: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Kinds with their requested names. Raises `click.UsageError`."""
    if any("/" in word for word in words):
        pairs = [word.split("/") for word in words]
        if any(len(pair) != 2 or not all(pair) for pair in pairs):
            raise click.UsageError(
                "write either `KIND NAME NAME …` or `KIND/NAME KIND/NAME …`, not a mixture"
            )
        return [(kind, (name,)) for kind, name in pairs]
    kinds = [kind for kind in words[0].split(",") if kind]
    if len(kinds) > 1 and len(words) > 1:
        raise click.UsageError("names need one kind; with several kinds write `KIND/NAME`")
    return [(kind, tuple(words[1:])) for kind in kinds]


def one_object(
    words: Sequence[str], kinds: Sequence[Kind[Json]], *, default: Kind[Json]
) -> tuple[Kind[Json], str]:
    """The kind and the name that `NAME`, `KIND NAME` or `KIND/NAME` mean, without a request to the server.

    Raises `click.UsageError` for a kind that is not one of `kinds`, and for more than one object.
    """
    match [part for word in words for part in word.split("/")]:
        case [name] if (kind := _named(name, kinds)) is None:
            return default, name
        case [_]:
            raise click.UsageError(f"which {words[0]}? Give its name, e.g. `{words[0]}/web`")
        case [word, name] if word and name:
            kind = _named(word, kinds)
            if kind is not None:
                return kind, name
            known = ", ".join(allowed.singular for allowed in kinds)
            raise click.UsageError(f"`{word}` is not one of the kinds {known}")
    raise click.UsageError("name one object: NAME, KIND NAME or KIND/NAME")


def _named(word: str, kinds: Sequence[Kind[Json]]) -> Kind[Json] | None:
    """The kind of that plural, singular or short name, in upper or lower case, with or without its group."""
    bare, _, group = word.lower().partition(".")
    return next(
        (
            kind
            for kind in kinds
            if bare in (kind.plural, kind.singular, *kind.short_names) and group in ("", kind.group)
        ),
        None,
    )


async def resolve(session: Session, words: Sequence[str], *, all_namespaces: bool = False) -> list[Target]:
    """The targets of `words` on this server. Raises `click.UsageError` and the errors of discovery."""
    targets = []
    pairs = split(words)
    if all_namespaces and any(names for _, names in pairs):
        raise click.UsageError("a name is only unique within its namespace: use -n NS instead of -A")
    known = await discovery.all_resources(session.client)
    for word, names in pairs:
        for kind in await _kinds(session, known, word):
            namespace = session.namespace if kind.namespaced and not all_namespaces else ""
            targets.append(Target(kind, namespace, names))
    return targets


async def fetch(session: Session, kind: Kind[T], name: str) -> T:
    """The object of that name in the selected namespace.

    Raises `Failed`, which names the namespace, because a wrong namespace is the usual reason.
    """
    try:
        return await session.client.get(kind, name, session.namespace)
    except NotFound as error:
        target = Target(kind, session.namespace if kind.namespaced else "", (name,))
        raise Failed(not_found(error, target)) from error


def not_found(error: NotFound, target: Target) -> str:
    """The error with the namespace that was searched, and the command that lists all objects of the kind."""
    if not target.kind.namespaced:
        return f"{error}; `certwright get {target.kind.plural}` lists all there are"
    everywhere = f"`certwright get {target.kind.plural} -A` lists all there are"
    return f"{error} in namespace {target.namespace}; {everywhere}"


async def _kinds(session: Session, known: Sequence[Kind[Json]], word: str) -> list[Kind[Json]]:
    """The kind of that name, or all kinds of that category (`cert-manager`)."""
    category = [kind for kind in known if word.lower() in kind.categories]
    return category or [await discovery.resolve(session.client, word, known)]
