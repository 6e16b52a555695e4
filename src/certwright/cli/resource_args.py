"""Resource arguments of commands: `certificates`, `cert web api`, `cert/web secret/web-tls`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import click
import msgspec

from certwright.cli import lazy
from certwright.cli.access import Session
from certwright.cli.errors import Failed
from certwright.cli.flags import gathered
from certwright.cli.format import TABLE
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.client import discovery
from certwright.kube.client.rest import Client
from certwright.kube.util.http_messages import whole_body

Json = dict[str, Any]
T = TypeVar("T")
_MOST_PLACES = 5


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
    """The kind and the name in `NAME`, `KIND NAME` or `KIND/NAME`, without a request to the server.

    Raises `click.UsageError` for a kind that is not one of `kinds`, and for several objects.
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
        try:
            kinds = await _kinds(session, known, word)
        except discovery.UnknownKind as error:
            if error.is_near or names:
                raise
            raise Failed(
                f"{error}; if that is a name, write its kind first, e.g. certificate/{word}"
            ) from error
        for kind in kinds:
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
        raise Failed(await not_found(session.client, error, target)) from error


async def not_found(client: Client, error: NotFound | str, target: Target) -> str:
    """The error with the searched namespace, and a suggestion: the probable name, its namespace, or the
    command that lists all objects of the kind. `target` has one name."""
    kind, (name,) = target.kind, target.names
    sentence = f"{error} in namespace {target.namespace}" if kind.namespaced else str(error)
    try:
        elsewhere = await names_of(client, kind, "", name) if kind.namespaced else []
        known = [] if elsewhere else [known for _, known in await names_of(client, kind, target.namespace)]
    except ApiError:
        elsewhere, known = [], []  # The user may read no list.
    if elsewhere:
        places = ", ".join(f"`-n {namespace}`" for namespace, _ in elsewhere[:_MOST_PLACES])
        return f"{sentence}; it exists in another one: {places}"
    if near := lazy.difflib.get_close_matches(name, known, n=1):
        return f"{sentence}; did you mean `{near[0]}`?"
    everywhere = " -A" if kind.namespaced else ""
    return f"{sentence}; `certwright get {kind.plural}{everywhere}` lists all there are"


async def names_of(client: Client, kind: AnyKind, namespace: str, name: str = "") -> list[tuple[str, str]]:
    """Namespace and name of the first five hundred objects of the kind (of that name), without their content.
    Raises `ApiError`."""
    query = {"limit": "500", "includeObject": "Metadata"}
    if name:
        query["fieldSelector"] = f"metadata.name={name}"
    path = kind.path(quote(namespace, safe=""), "")
    response = await client.raw("GET", path, query=query, headers={"accept": TABLE})
    content = msgspec.json.decode(await whole_body(response))
    # A server that makes no tables sends the objects.
    objects = [row.get("object") or {} for row in content.get("rows") or ()] or content.get("items") or ()
    found = [obj.get("metadata") or {} for obj in objects]
    return [(meta.get("namespace", ""), meta["name"]) for meta in found if meta.get("name")]


async def _kinds(session: Session, known: Sequence[Kind[Json]], word: str) -> list[Kind[Json]]:
    """The kind of that name, or all kinds of that category (`cert-manager`)."""
    category = [kind for kind in known if word.lower() in kind.categories]
    return category or [await discovery.resolve(session.client, word, known)]
