"""Backend of the verbs: store, registry, observers, namespaces, the parsed request, and common errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Protocol, TypeVar

import msgspec

from certwright.kube.api.errors import (
    AlreadyExists,
    Cause,
    Conflict,
    Details,
    Forbidden,
    NotFound,
    Unavailable,
)
from certwright.kube.apiserver.base.features import FeatureGates
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import Form
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.model.routes import Authorizer, Route
from certwright.kube.store.contract import DamagedRow, Encode, Event, Key, Row, Shared, Store
from certwright.kube.util.clock import Clock
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.fair_queue import FairSemaphore
from certwright.kube.util.http_messages import Identity, Request
from certwright.kube.util.tasks import TaskSet

_log = logging.getLogger(__name__)

CHUNK = 500
"""Rows that are read, joined and sent together."""


_TOGETHER = 64
T = TypeVar("T")
R = TypeVar("R")


async def in_batches(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results of `work` for each item, some at a time: concurrent writes share commits."""
    results: list[R] = []
    for start in range(0, len(items), _TOGETHER):
        results += await asyncio.gather(*map(work, items[start : start + _TOGETHER]))
    return results


class Observer(Protocol):
    """Observer of committed writes: called on the loop, before the writer gets its answer."""

    @property
    def observed_buckets(self) -> Collection[str] | None:
        """The observed buckets; None: all. Constant."""

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """`row` was created, or replaced `previous`."""

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """`row` was deleted."""


class Admission(Protocol):
    """Admission: every write passes it between shaping and the store. `operation`: CREATE, UPDATE or
    DELETE."""

    async def mutate(self, call: Call, new: Json, old: Json | None, *, operation: str) -> bool:
        """Change `new` in place. True: a webhook did; then it must be shaped again. Raises `ApiError`."""

    async def validate(self, call: Call, new: Json, old: Json | None, *, operation: str) -> None:
        """Raise the error that refuses the object or its writer."""

    async def requesting(self, call: Call, new: Json) -> None:
        """Raise the error that refuses an object that is not stored, such as a TokenRequest."""

    async def deleting(self, call: Call, row: Row) -> None:
        """Raise the error that refuses the deletion of `row`."""


InVersion = Callable[[ResourceDefinition, Json], Json]
"""An object in the version of a definition, for field management: itself, unless a webhook converts
(`crds.conversion`)."""


@dataclass(slots=True)
class Backend:
    """The components that verbs work with.

    Observers (`observe`) are notified of writes: by `put` and `delete` of those through this server, and
    where other servers write to the store as well (`fed`), by the store of all of them, in the order of their
    commits. `turns`: for the pages of long lists and of initial states, one per turn of the event loop.
    """

    store: Store
    registry: Registry
    clock: Clock
    namespaces: Namespaces
    name_suffix: Callable[[], str]
    tasks: TaskSet
    admission: Admission = field(init=False)
    gates: FeatureGates = field(default_factory=FeatureGates)
    turns: FairSemaphore = field(default_factory=lambda: FairSemaphore(1))
    authorizer: Authorizer = field(init=False)
    in_version: InVersion = lambda _, obj: obj
    fed: bool = False
    early: list[Event] | None = None
    _observers: list[Observer] = field(init=False, default_factory=list)
    _concerned: dict[str, list[Observer]] = field(init=False, default_factory=dict)

    def observe(self, *observers: Observer) -> None:
        """Add observers, after the existing ones."""
        self._observers += observers
        self._concerned.clear()

    def follow_store(self) -> None:
        """Subscribe to all writes of the store, if other servers write to it."""
        if isinstance(self.store, Shared):
            self.fed = True
            self.early = []
            self.store.follow(self.notify)

    def loaded(self) -> None:
        """Replay the writes made while the observers read the store, because they may have read an older
        state after the notification."""
        events, self.early = self.early, None
        self.notify(events or ())

    def notify(self, events: Sequence[Event]) -> None:
        """Notify the observers of committed writes, by any server."""
        if self.early is not None:
            self.early += events
        for event in events:
            definition = self.registry.by_bucket(event.row.key.bucket)
            if definition is None:
                continue
            try:
                if event.deleted:
                    self._removed(definition, event.row)
                else:
                    self._wrote(definition, event.row, event.previous)
            except Exception:
                # The row stays as written; the other observers must still be notified of the next one.
                _log.exception("hearing of %s at revision %d", event.row.key, event.revision)

    async def pages(
        self, bucket: str, namespace: str = "", *, meta_only: bool = False
    ) -> AsyncIterator[list[Row]]:
        """All rows of a bucket, some at a time; empty `namespace` means all of them."""
        after: tuple[str, str] | None = None
        while True:
            page = await self.store.list(
                bucket, namespace or None, limit=CHUNK, after=after, meta_only=meta_only
            )
            yield page.rows
            if not page.more:
                return
            after = page.last

    async def rows(self, bucket: str, namespace: str = "") -> list[Row]:
        """All rows of a bucket; empty `namespace` means all of them."""
        return [row async for page in self.pages(bucket, namespace) for row in page]

    async def replay(self, observer: Observer, buckets: Collection[str] | None = None) -> None:
        """Report the stored rows of these buckets, by default of the observed ones, to an observer, as if
        they were written now."""
        for bucket in buckets or observer.observed_buckets or ():
            definition = self.registry.by_bucket(bucket)
            if definition is not None:
                for row in await self.rows(bucket):
                    observer.wrote(definition, row, None)

    def timestamp(self) -> str:
        """The current time as Kubernetes writes it: UTC, whole seconds."""
        return _timestamp(int(self.clock.now().timestamp()))

    async def put(
        self, definition: ResourceDefinition, key: Key, encode: Encode, *, previous: Row | None
    ) -> Row:
        """Write over `previous` (None: create), and notify the observers.

        Raises what the store raises, `Exists` and `Changed` above all.
        """
        expect = previous.revision if previous is not None else 0
        if definition.body_in is not None:
            encode = _in_stored_form(encode, definition.body_in)
        try:
            row = await self.store.put(key, encode, expect=expect)
        except asyncio.CancelledError:
            self._resolve_cancelled(definition, key, previous)
            raise
        if not self.fed:
            self._wrote(definition, row, previous)
        return row

    async def is_current(self, row: Row) -> bool:
        """Whether the next write will find this row."""
        current = await self.store.latest(row.key)
        return current is not None and current.revision == row.revision

    async def readable(self, key: Key) -> Row | None:
        """The row as the next write finds it; None without a readable row (the store has reported a damaged
        one). For background work, which skips such rows."""
        try:
            return await self.store.latest(key)
        except DamagedRow:
            return None

    async def discard(self, definition: ResourceDefinition, key: Key) -> None:
        """Remove a row that cannot be read, past admission and finalizers, and notify the observers. Raises
        `Missing`, `Changed` where it can be read."""
        gone = await self.store.discard(key, partial(_remains, key))
        _log.warning("the damaged row %s was deleted", key)
        if not self.fed:
            self._removed(definition, gone)

    async def delete(self, definition: ResourceDefinition, row: Row, encode: Encode) -> Row:
        """Remove `row`, and notify the observers. Raises what the store raises: `Changed`, `Missing`."""
        if definition.body_in is not None:
            encode = _in_stored_form(encode, definition.body_in)
        try:
            gone = await self.store.delete(row.key, encode, expect=row.revision)
        except asyncio.CancelledError:
            self._resolve_cancelled(definition, row.key, row)
            raise
        if not self.fed:
            self._removed(definition, gone)
        return gone

    def _wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        for observer in self._concerned_by(definition.bucket):
            observer.wrote(definition, row, previous)

    def _removed(self, definition: ResourceDefinition, row: Row) -> None:
        for observer in self._concerned_by(definition.bucket):
            observer.removed(definition, row)

    def _concerned_by(self, bucket: str) -> list[Observer]:
        observers = self._concerned.get(bucket)
        if observers is None:
            observers = self._concerned[bucket] = [
                observer
                for observer in self._observers
                if observer.observed_buckets is None or bucket in observer.observed_buckets
            ]
        return observers

    def _resolve_cancelled(self, definition: ResourceDefinition, key: Key, previous: Row | None) -> None:
        """Find out whether a cancelled write was committed, so that no observer misses it."""
        if self.fed:
            return

        async def compare() -> None:
            row = await self.store.latest(key)
            if row is None and previous is not None:
                self._removed(definition, previous)
            elif row is not None and (previous is None or row.revision != previous.revision):
                self._wrote(definition, row, previous)

        self.tasks.start(compare(), name=f"look after {key.bucket} {key.name}")


def _remains(key: Key, revision: int) -> tuple[bytes, bytes]:
    """The watch event of a deleted damaged row: only its name."""
    metadata = {"name": key.name, **({"namespace": key.namespace} if key.namespace else {})}
    return encode_json({**metadata, "resourceVersion": str(revision)}), b""


@lru_cache(maxsize=8)
def _timestamp(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()[:19] + "Z"


def _in_stored_form(encode: Encode, body_in: Callable[[bytes], bytes]) -> Encode:
    """`encode` for the stored form, from that of another view of the resource."""

    def stored(revision: int) -> tuple[bytes, bytes]:
        meta, body = encode(revision)
        return meta, body_in(body)

    return stored


@dataclass(slots=True)
class Call:
    """One parsed request for a resource, authenticated and authorized.

    `warnings` go into the answer; `retries` counts the generated names that were already taken; `stored` is
    the row that an update changes.
    """

    request: Request
    user: Identity
    verb: str
    definition: ResourceDefinition
    route: Route
    query: Mapping[str, str]
    form: Form
    warnings: list[str] = field(default_factory=list)
    retries: int = 0
    stored: Row | None = None

    @property
    def key(self) -> Key:
        """The key of the named object."""
        return Key(self.definition.bucket, self.route.namespace, self.route.name)

    def require_client(self) -> None:
        """Raise `Unavailable` if the client has closed the connection; called before a write.

        Without this check a process that stood still would carry out requests that their clients have given
        up, over newer writes at other servers."""
        if self.request.caller is not None and self.request.caller.is_closed():
            raise Unavailable("the client has closed the connection")

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored, once the parameters have been checked."""
        return "dryRun" in self.query


def details(definition: ResourceDefinition, name: str = "", *, uid: str = "") -> Details:
    """The details of an error; Kubernetes puts the plural into `kind`."""
    return Details(name=name, group=definition.group, kind=definition.plural, uid=uid)


def not_found(definition: ResourceDefinition, name: str) -> NotFound:
    """The 404 of a missing object."""
    return NotFound(f'{definition.resource} "{name}" not found', details=details(definition, name))


def already_exists(definition: ResourceDefinition, name: str) -> AlreadyExists:
    """The 409 of a name that is taken."""
    return AlreadyExists(f'{definition.resource} "{name}" already exists', details=details(definition, name))


def conflict(definition: ResourceDefinition, name: str, detail: str = "") -> Conflict:
    """The 409 of a concurrent write, or of a failed precondition."""
    detail = detail or (
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    return Conflict(
        f'Operation cannot be fulfilled on {definition.resource} "{name}": {detail}',
        details=details(definition, name),
    )


NAMESPACES = "namespaces"
BOOTSTRAP = ("default", "kube-system", "kube-public", "kube-node-lease")
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that can never be deleted (admission plug-in NamespaceLifecycle)."""


class _Deletion(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


def is_terminating(row: Row) -> bool:
    """Whether the object is being deleted."""
    return b'"deletionTimestamp"' in row.meta and bool(
        json_decoder(_Deletion).decode(row.meta).deletion_timestamp
    )


class Namespaces:
    """A cache of the active namespaces, so that a create need not read its namespace every time."""

    observed_buckets = (NAMESPACES,)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._active: set[str] = set()

    async def check_create(self, definition: ResourceDefinition, namespace: str, name: str) -> None:
        """Raise `NotFound` for a missing namespace, `Forbidden` for a terminating one."""
        if namespace in self._active:
            return
        row = await self._store.latest(Key(NAMESPACES, "", namespace))
        if row is None:
            raise NotFound(
                f'namespaces "{namespace}" not found', details=Details(name=namespace, kind="namespaces")
            )
        if is_terminating(row):
            cause = Cause(
                reason="NamespaceTerminating",
                message=f"namespace {namespace} is being terminated",
                field="metadata.namespace",
            )
            raise Forbidden(
                f'{definition.resource} "{name}" is forbidden: unable to create new content in '
                f"namespace {namespace} because it is being terminated",
                details=Details(name=name, group=definition.group, kind=definition.plural, causes=(cause,)),
            )
        self._active.add(namespace)

    def wrote(self, _definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Forget a terminating namespace."""
        if is_terminating(row):
            self._active.discard(row.key.name)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Forget a deleted namespace."""
        self._active.discard(row.key.name)
