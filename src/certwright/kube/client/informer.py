"""Informer: keeps a cache of one kind up to date with the server, and notifies event handlers.

The state machine in `kube/client/reflector.py` yields the steps; this module performs them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Generic, TypedDict, TypeVar, Unpack

import msgspec

from certwright.kube.api import codec
from certwright.kube.api.errors import ApiError, Forbidden, NotFound, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.cache import Cache, Indexer, key_of, parse_revision, revision_of
from certwright.kube.client.compressed import Packing
from certwright.kube.client.listing import FIRST_PAGE, PAGE, RawPage, decode_item
from certwright.kube.client.reflector import (
    Answer,
    Apply,
    Compared,
    ComparePage,
    ListPage,
    Load,
    OpenWatch,
    Pause,
    Prune,
    ReadWatch,
    Step,
    follow,
)
from certwright.kube.client.rest import Client
from certwright.kube.client.watch import DELETED, Identified, RawEvent, identify
from certwright.kube.util.clock import Clock

T = TypeVar("T")
Handler = Callable[[T | None, T | None], None]
"""Event handler, called with the old and the new object: None and new for an added one, old and None for a
deleted one. Called synchronously, after the cache has changed; must not block. Its exceptions are logged."""

_log = logging.getLogger(__name__)

# The server is requested to end each watch after this time, so that one behind a proxy that died quietly is
# not trusted for ever; client-go requests 5 to 10 minutes.
_WATCH_S = 480
# A kind that is not served is looked for this many times less often than a server that fails: every two
# minutes.
_ABSENT = 4

_SYSTEM_RANDOM = random.SystemRandom()


class _Where(TypedDict):
    namespace: str
    labels: str
    fields: str


class InformerOptions(TypedDict, Generic[T], total=False):
    """The options of an informer.

    `namespace` and the selectors `labels` and `fields` choose the objects; `metadata_only` leaves the rest of
    each to the server; `page` is the number of objects in a page of the list; `jitter` makes numbers from 0
    to 1, which spread its pauses. The others: see `Informer`.
    """

    namespace: str
    labels: str
    fields: str
    indexers: Mapping[str, Indexer[T]] | None
    packing: Packing[T] | None
    metadata_only: bool
    page: int
    jitter: Callable[[], float]
    is_optional: bool


class Informer(Generic[T]):
    """Follows one kind, all namespaces or one, all objects or those that the selectors choose.

    `synced` is set after the first complete list. `skipped` counts objects that were left out because they do
    not match their kind's schema; `problem` is why the informer cannot follow the server, None while it does.
    With a `packing` idle objects take little memory (see `compressed.py`). All changes up to `revision` are
    applied. `pages` counts the received list pages. A kind that `is_optional` may be missing: while the
    server answers that it does not exist or may not be listed, there are no objects, and `synced` is set.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        clock: Clock,
        **options: Unpack[InformerOptions[T]],
    ) -> None:
        self.kind = kind
        self.cache: Cache[T] = Cache(options.get("indexers"), packing=options.get("packing"))
        self.synced = asyncio.Event()
        self.skipped = 0
        self.problem: str | None = None
        self.revision = 0
        self.pages = 0
        self._client = client
        self._clock = clock
        self._where = _Where(
            namespace=options.get("namespace", ""),
            labels=options.get("labels", ""),
            fields=options.get("fields", ""),
        )
        self._metadata_only = options.get("metadata_only", False)
        self._page = options.get("page", PAGE)
        self._jitter = options.get("jitter", _SYSTEM_RANDOM.random)
        self._is_optional = options.get("is_optional", False)
        self._handlers: list[Handler[T]] = []
        self._unreadable: dict[ObjectKey, str] = {}
        self._listed: set[ObjectKey] = set()
        self._watch: AsyncGenerator[list[RawEvent], None] | None = None
        self._read_until = 0
        self._cached_in_list = 0

    def add_handler(self, handler: Handler[T]) -> None:
        """Notify `handler` of every change, and immediately of every object in the cache."""
        self._handlers.append(handler)
        for obj in self.cache.values():
            self._notify(None, obj, (handler,))

    def put(self, obj: T) -> None:
        """Store the response to an own write; its watch event is then ignored."""
        key = key_of(obj)
        if self.cache.accepts(obj, key):
            self._notify(self.cache.overwrite(obj, key), obj)

    def forget(self, obj: T) -> None:
        """Apply an own deletion of `obj`, in this state, that is complete (no finalizers)."""
        old = self.cache.remove(key_of(obj), revision_of(obj))
        if old is not None:
            self._notify(old, None)

    async def run(self) -> None:
        """Follow the server until cancelled."""
        machine = follow(
            now=self._clock.monotonic,
            jitter=self._jitter,
            page=self._page,
            first=self._page if self._metadata_only else FIRST_PAGE,
            compares=not self._metadata_only,
        )
        step = next(machine)
        try:
            while True:
                step = machine.send(await self._perform(step))
        finally:
            await self._close_watch()

    async def _perform(self, step: Step) -> Answer:
        match step:
            case ReadWatch():
                return await self._read_watch()
            case Apply(events):
                self._apply(events)
            case ListPage(token, limit):
                return await self._list_page(token, limit)
            case Load(items, rewound):
                self._load(items, rewound=rewound)
            case Prune(revision):
                self._prune(revision)
            case ComparePage():
                return await self._compare_page(step)
            case OpenWatch(resource_version):
                await self._open_watch(resource_version)
            case Pause(delay, because):
                delay_s = delay.total_seconds() * (_ABSENT if self._is_absent(because) else 1)
                self._report(because, delay_s)
                await self._clock.sleep(delay_s)
        return None

    async def _list_page(self, token: str, limit: int) -> Answer:
        if not token:
            self._begin_list()
        return await self._fetch_page(token, limit, metadata_only=self._metadata_only)

    async def _fetch_page(
        self, token: str, limit: int, *, metadata_only: bool, resource_version: str = ""
    ) -> RawPage | ApiError | Unreachable:
        try:
            page = await self._client.list_page(
                self.kind,
                **self._where,
                limit=limit,
                continue_token=token,
                resource_version=resource_version,
                metadata_only=metadata_only,
            )
        except (NotFound, Forbidden) as error:
            if self._is_optional:
                self.synced.set()
            return error
        except (ApiError, Unreachable) as error:
            return error
        self.pages += 1
        return page

    async def _compare_page(self, step: ComparePage) -> Answer:
        if not step.continue_token:
            self._cached_in_list = 0
        page = await self._fetch_page(step.continue_token, step.limit, metadata_only=True)
        if not isinstance(page, RawPage):
            return page
        # Newer objects were written after the list.
        until = parse_revision(page.resource_version)
        missed = sum(self._is_missed(raw, step.revision, until) for raw in page.items)
        if not page.continue_token and self._cached_in_list != len(self.cache):
            there = sum((self.cache.revision(key) or 0) <= until for key in iter(self.cache.keys()))
            missed += max(there - self._cached_in_list, 0)
        if missed:
            _log.warning("%s: %d changes had not been delivered", self.kind.resource, missed)
        return Compared(missed, page.continue_token, page.resource_version)

    def _is_missed(self, raw: msgspec.Raw, delivered: int, until: int) -> bool:
        """Whether the change to this object, up to the revision `delivered`, is missing from the cache.
        Counts the cached objects of the list, which is of the revision `until`."""
        who = identify(raw)
        key, revision = who.key, parse_revision(who.resource_version)
        cached = self.cache.revision(key)
        self._cached_in_list += cached is not None and cached <= until
        return revision <= delivered and (cached is None or cached < revision) and key not in self._unreadable

    def _begin_list(self) -> None:
        self._listed = set()

    def _load(self, items: list[msgspec.Raw], *, rewound: bool) -> None:
        for raw in items:
            obj = self._decode(raw)
            if obj is None:
                self._listed.add(identity(raw))
                continue
            self._add_listed(obj, rewound=rewound)

    def _add_listed(self, obj: T, *, rewound: bool) -> None:
        key = key_of(obj)
        self._listed.add(key)
        if rewound or self.cache.accepts(obj, key):
            self._notify(self.cache.overwrite(obj, key), obj)

    def _prune(self, revision: int) -> None:
        self.revision = self._read_until = revision
        for gone in self.cache.retain(self._listed, revision):
            self._went(key_of(gone), gone, revision)
        self._listed = set()
        self._recovered()
        self.synced.set()

    async def _open_watch(self, resource_version: str) -> None:
        await self._close_watch()
        self._watch = self._client.watch_raw(
            self.kind,
            **self._where,
            resource_version=resource_version,
            timeout_s=_WATCH_S,
            metadata_only=self._metadata_only,
        )

    async def _close_watch(self) -> None:
        if self._watch is not None:
            await self._watch.aclose()
            self._watch = None

    async def _read_watch(self) -> Answer:
        assert self._watch is not None
        # Everything that was read before has been applied by now.
        self.revision = max(self.revision, self._read_until)
        try:
            events = await anext(self._watch)
        except StopAsyncIteration:
            return None
        except (ApiError, Unreachable) as error:
            return error
        self._recovered()
        self._read_until = parse_revision(events[-1].who.resource_version)
        return events

    def _apply(self, events: list[RawEvent]) -> None:
        for event in events:
            if event.type == DELETED:
                self._deleted(event)
            elif not self._has(event.who):
                self._apply_state(event.object)

    def _apply_state(self, raw: msgspec.Raw) -> None:
        if (obj := self._decode(raw)) is not None:
            self.put(obj)

    def _has(self, who: Identified) -> bool:
        """Whether this state is in the cache already, as after every own write, so that it need not be
        decoded."""
        cached = self.cache.revision(who.key)
        return cached is not None and cached == parse_revision(who.resource_version) != 0

    def _deleted(self, event: RawEvent) -> None:
        who = event.who
        key, revision = who.key, parse_revision(who.resource_version)
        self._unreadable.pop(key, None)
        old = self.cache.remove(key, revision)
        if old is not None or key not in self.cache:
            self._went(key, old, revision)

    def _went(self, _key: ObjectKey, old: T | None, _revision: int) -> None:
        """Notify handlers of a deletion: `old` is the cached object."""
        if old is not None:
            self._notify(old, None)

    def _decode(self, raw: msgspec.Raw) -> T | None:
        try:
            obj = decode_item(self.kind, raw)
        except codec.DecodeError as error:
            self._skip(identity(raw), str(error))
            return None
        if self._unreadable:
            self._unreadable.pop(key_of(obj), None)
        return obj

    def _skip(self, key: ObjectKey, reason: str) -> None:
        self.skipped += 1
        if self._unreadable.get(key) != reason:
            self._unreadable[key] = reason
            _log.warning("%s %s is left out: %s", self.kind.kind, key, reason)

    def _notify(self, old: T | None, new: T | None, handlers: Iterable[Handler[T]] | None = None) -> None:
        for handler in self._handlers if handlers is None else handlers:
            try:
                handler(old, new)
            except Exception:
                obj = new if new is not None else old
                _log.exception("a handler of %s failed for %s", self.kind.resource, key_of(obj))

    def _is_absent(self, because: Exception | None) -> bool:
        return self._is_optional and isinstance(because, NotFound | Forbidden)

    def _report(self, because: Exception | None, delay_s: float) -> None:
        if because is None:
            _log.debug("the watch of %s ended without an event", self.kind.resource)
            return
        if self._is_absent(because):
            # Normal for a kind that need not be served.
            _log.debug("%s is not served; trying again in %.1f s", self.kind.resource, delay_s)
            return
        if self.problem is None:
            _log.warning("%s cannot be followed: %s; trying again", self.kind.resource, because)
        else:
            _log.debug("%s: %s; trying again in %.1f s", self.kind.resource, because, delay_s)
        self.problem = str(because)

    def _recovered(self) -> None:
        if self.problem is not None:
            self.problem = None
            _log.warning("%s can be followed again", self.kind.resource)


def identity(raw: msgspec.Raw) -> ObjectKey:
    """The key of an object."""
    return identify(raw).key
