"""Watch: the store's events of one resource, as lines of JSON, until the client disconnects.

Each event is encoded once per form for all watchers; all events of one commit are sent as one chunk.

Source: Kubernetes documentation, "Kubernetes API Concepts", efficient detection of changes, watch bookmarks
and streaming lists.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

import msgspec

from certwright.kube.api.errors import ApiError, Expired, InternalError
from certwright.kube.apiserver.model.backend import CHUNK, Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import Form, Shape
from certwright.kube.apiserver.model.objects import at_revision, encode_json
from certwright.kube.apiserver.model.routes import is_true
from certwright.kube.apiserver.representations import responses, tables
from certwright.kube.apiserver.requests.selectors import Matcher
from certwright.kube.apiserver.verbs import paging
from certwright.kube.apiserver.verbs.reads import PAGE_BYTES, check_table
from certwright.kube.store.contract import Compacted, Event, Page, Row, SlowWatcher, Watch
from certwright.kube.util.http_messages import Response, Write

_log = logging.getLogger(__name__)

_INITIAL_END = "k8s.io/initial-events-end"

_FormKey = tuple[ResourceDefinition, Form, str]
"""What a line depends on beside the event: the resource, the form, and the object part of a Table's rows."""


class EventCache:
    """The lines of the last events, so that many watchers of one form cost one encoding.

    `batch`: the last batch of a watcher without selectors, with its form and lines; the next watcher most
    likely receives the same batch.
    """

    _MAX_BYTES = 4 * 1024 * 1024

    def __init__(self) -> None:
        self._lines: dict[tuple[object, ...], bytes] = {}
        self._bytes = 0
        self.batch: tuple[list[Event], _FormKey, bytes] | None = None

    def line(self, key: tuple[object, ...], make: Callable[[], bytes]) -> bytes:
        """The line under `key`, made now if it is missing."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = make()
            self._bytes += len(line)
            if self._bytes > self._MAX_BYTES:
                self._lines.clear()
                self._bytes = 0
        return line


class Encoder:
    """Encodes events as lines for one form of one resource."""

    def __init__(self, call: Call, backend: Backend, cache: EventCache) -> None:
        self._call = call
        self._clock = backend.clock
        self._cache = cache
        self._form: Form = call.form
        self._include = call.query.get("includeObject", "") if call.form.shape is Shape.TABLE else ""
        self._fresh_table = call.form.shape is Shape.TABLE
        self._key: _FormKey = (call.definition, call.form, self._include)

    def lines(self, batch: list[Event]) -> bytes:
        """The lines of a whole batch, for a watcher without selectors."""
        if (last := self._cache.batch) is not None and last[0] is batch and last[1] == self._key:
            return last[2]
        has_columns = self._fresh_table
        lines = b"".join([self.line(*change_of(event)) for event in batch])
        if not has_columns:
            self._cache.batch = (batch, self._key, lines)
        return lines

    def first_line(self, row: Row) -> bytes:
        """The line of an initial event: not cached, because few watchers need it again."""
        first, self._fresh_table = self._fresh_table, False
        return self._make("ADDED", row, with_columns=first)

    def line(self, kind: str, row: Row) -> bytes:
        """The line of an event. Only the first line describes the columns of a Table."""
        first, self._fresh_table = self._fresh_table, False
        key = (self._key, kind, row.revision, row.key, first)
        return self._cache.line(key, lambda: self._make(kind, row, with_columns=first))

    def _make(self, kind: str, row: Row, *, with_columns: bool) -> bytes:
        obj = responses.one_object(self._call, row, self._clock, with_columns=with_columns)
        return b"".join((f'{{"type":"{kind}","object":'.encode(), obj, b"}\n"))

    def bookmark(self, revision: int, *, end_of_initial: bool = False) -> bytes:
        """The BOOKMARK line for a revision."""
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if end_of_initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        encoded = encode_json(metadata)
        if self._form.shape is Shape.TABLE:
            # A Table of one row: readers look for the annotation in the row's object, whatever it includes.
            first, self._fresh_table = self._fresh_table, False
            include = self._include or "Metadata"
            body = tables.render(
                self._call.definition,
                (self._call.definition.prefix + encoded + b"}",),
                now=self._clock.now(),
                include="Metadata" if end_of_initial and include == "None" else include,
                metadata=encode_json({"resourceVersion": str(revision)}),
                with_columns=first,
                version=self._form.version,
            )
        elif self._form.shape is Shape.PARTIAL:
            body = responses.partial_prefix(self._form) + encoded + b"}"
        else:
            body = self._call.definition.prefix + encoded + b"}"
        return b'{"type":"BOOKMARK","object":' + body + b"}\n"


def error_line(error: ApiError) -> bytes:
    """The ERROR line that ends a stream."""
    return encode_json({"type": "ERROR", "object": error.status()}) + b"\n"


def failure_line(error: Exception) -> bytes:
    """The ERROR line that ends a stream whose next event cannot be produced, e.g. because its conversion
    fails: after the head of a response no other status can be sent."""
    if not isinstance(error, ApiError):
        _log.error("a watch ends with an error", exc_info=error)
        error = InternalError("Internal error occurred: the next event cannot be encoded")
    return error_line(error)


def change_of(event: Event) -> tuple[str, Row]:
    """An event as a watcher without selectors sees it."""
    return ("DELETED" if event.deleted else "MODIFIED" if event.previous is not None else "ADDED"), event.row


def selected_change_of(event: Event, matcher: Matcher) -> tuple[str, Row] | None:
    """The event for a watcher with selectors: an object that no longer matches is DELETED, in its previous
    state, at the new revision."""
    row, previous = event.row, event.previous
    before = previous is not None and matcher.matches(previous)
    if event.deleted:
        return ("DELETED", row) if before else None
    if matcher.matches(row):
        return ("MODIFIED" if before else "ADDED"), row
    if previous is None or not before:
        return None
    return "DELETED", Row(
        previous.key, event.revision, at_revision(previous.meta, event.revision), previous.body
    )


_MIN_TIMEOUT_S = 1800.0
"""A watch without `timeoutSeconds` ends after one to two of these, so that clients reconnect at different
times."""
_FINISH_DELAY_S = 0.1


class WatchOptions(msgspec.Struct, frozen=True):
    """The parameters of a watch. `initial`: the existing objects come first, as ADDED events. `after` is the
    revision that the client has seen, or that the objects must at least have; 0: any."""

    initial: bool
    after: int
    bookmarks: bool
    timeout_s: float


def watch_options(query: Mapping[str, str]) -> WatchOptions:
    """Read the parameters of a watch. Raises `Invalid`, `BadRequest`, and `ApiError` for no revision."""
    paging.check_query(query, watch=True)
    timeout = paging.number(query, "timeoutSeconds")
    revision = paging.revision_of(query.get("resourceVersion", ""))
    # By default, the existing objects come first unless a revision names a start.
    initial = is_true(query, "sendInitialEvents") if "sendInitialEvents" in query else revision == 0
    return WatchOptions(
        initial=initial,
        after=revision,
        bookmarks=is_true(query, "allowWatchBookmarks"),
        timeout_s=float(timeout) or _MIN_TIMEOUT_S * (1 + random.random()),  # noqa: S311 - spreads load
    )


class WatchStream:
    """The chunks of one watch: initial events, then a chunk per batch of events, bookmarks in between.

    An ERROR event ends a watch that must end early. Closing the stream, also before its first chunk, closes
    the store's watch. `lines` encodes a batch; the result is empty where no event of the batch matches.
    """

    def __init__(
        self,
        call: Call,
        backend: Backend,
        watch: Watch,
        page: Page | None,
        options: WatchOptions,
        matcher: Matcher,
        watches: Watches,
    ) -> None:
        self._call = call
        self._backend = backend
        self._watch = watch
        self._options = options
        self._matcher = matcher
        self._watches = watches
        self._encoder = Encoder(call, backend, watches.cache)
        self._marked = 0  # the revision of the last bookmark
        self._is_reading = False
        is_unfiltered = matcher.trivial and watch.position >= options.after
        self._lines = self._encoder.lines if is_unfiltered else self._selected_lines
        self._chunks = self._make_chunks(page)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        self._is_reading = True
        try:
            return await anext(self._chunks)
        except Exception as error:
            self.end()
            if isinstance(error, StopAsyncIteration):
                raise
            # The generator has ended with its error.
            return failure_line(error)
        except BaseException:
            # The consumer is cancelled.
            self.end()
            raise
        finally:
            self._is_reading = False

    def push_into(self, write: Write) -> None:
        """Write events immediately while the consumer waits for the next chunk and none is queued."""

        def deliver(batch: list[Event]) -> bool:
            try:
                lines = self._lines(batch)
            except Exception:  # the consumer meets it again, and reports it
                return False
            return not lines or write(lines)

        self._watch.deliver_to(deliver)

    def end(self) -> None:
        """End the stream, also for a waiting consumer; queued chunks are dropped."""
        self._watch.close()
        self._watches.forget(self)

    def finish(self) -> None:
        """End the stream after the queued chunks."""
        self._watch.end()

    async def aclose(self) -> None:
        """Stop; idempotent."""
        self.end()
        if not self._is_reading:
            await self._chunks.aclose()

    async def _make_chunks(self, page: Page | None) -> AsyncGenerator[bytes, None]:
        try:
            if page is not None:
                initial, page = self._initial(page), None
                async for chunk in initial:
                    yield chunk
            async for chunk in self._events():
                yield chunk
        except (SlowWatcher, Compacted):
            yield error_line(too_old(self._watch.position, self._backend.store.revision))

    async def _initial(self, page: Page | None) -> AsyncIterator[bytes]:
        """ADDED events of one revision; each page is read once the client has received the previous one."""
        assert page is not None
        revision = page.revision
        while page is not None:
            chunk = b"".join(
                [self._encoder.first_line(row) for row in page.rows if self._matcher.matches_body(row)]
            )
            after = page.last if page.more else None
            page = None  # the rows are not kept while the client reads
            if chunk:
                yield chunk
            if after is not None:
                await self._backend.turns.loop_turn()
                page = await self._backend.store.list(
                    self._call.definition.bucket,
                    self._call.route.namespace or None,
                    limit=CHUNK,
                    after=after,
                    revision=revision,
                    max_bytes=PAGE_BYTES,
                    keep=self._matcher.of_meta,
                )
        if self._options.bookmarks:
            self._marked = revision
            yield self._encoder.bookmark(revision, end_of_initial=True)

    async def _events(self) -> AsyncIterator[bytes]:
        time = asyncio.get_running_loop().time
        deadline = time() + self._options.timeout_s
        every = self._watches.bookmark_every_s if self._options.bookmarks else None
        bookmark_at = time() + every if every is not None else deadline
        while (now := time()) < deadline:
            batch = await self._watch.next(max(0.0, min(deadline, bookmark_at) - now))
            if batch is None:
                return
            if batch and (lines := self._lines(batch)):
                yield lines
            if every is not None and time() >= bookmark_at:
                bookmark_at = time() + every
                # Also without events: it shows proxies on the path that the stream is alive.
                if line := self._bookmark():
                    yield line
        if self._options.bookmarks and self._watch.position > self._marked and (line := self._bookmark()):
            yield line

    def _bookmark(self) -> bytes:
        """The current revision; nothing while the watch waits for a revision that lies ahead."""
        if self._watch.position < self._options.after:
            return b""
        self._marked = self._watch.position
        return self._encoder.bookmark(self._marked)

    def _selected_lines(self, batch: list[Event]) -> bytes:
        after, matcher = self._options.after, self._matcher
        lines = [
            self._encoder.line(*change)
            for event in batch
            if event.revision > after
            and (change := change_of(event) if matcher.trivial else selected_change_of(event, matcher))
        ]
        return lines[0] if len(lines) == 1 else b"".join(lines)


class Watches:
    """All open watches of a server."""

    def __init__(self, backend: Backend, *, bookmark_every_s: float | None) -> None:
        self._backend = backend
        self.bookmark_every_s = bookmark_every_s
        self.cache = EventCache()
        self._open: dict[WatchStream, str] = {}

    def __len__(self) -> int:
        return len(self._open)

    def buckets(self) -> list[str]:
        """The bucket of each open watch."""
        return list(self._open.values())

    async def open(self, call: Call) -> Response:
        """GET with `watch`: the stream of events.

        As in Kubernetes, an ERROR event reports a revision that is compacted or still ahead, not the answer's
        status. Raises `Invalid` and `BadRequest`.
        """
        backend, bucket, namespace = self._backend, call.definition.bucket, call.route.namespace or None
        options, matcher = watch_options(call.query), Matcher.of(call)
        check_table(call)
        current = await backend.store.up_to(options.after)
        if options.initial and options.after > current:
            return _failed(call, paging.too_large(options.after, current))
        page = None
        if options.initial:
            await backend.turns.loop_turn()
            page = await backend.store.list(
                bucket, namespace, limit=CHUNK, max_bytes=PAGE_BYTES, keep=matcher.of_meta
            )
        after = page.revision if page is not None else min(options.after or current, current)
        try:
            watch = backend.store.watch(bucket, after=after, namespace=namespace)
        except Compacted as error:
            return _failed(call, too_old(after, error.oldest))
        stream = WatchStream(call, backend, watch, page, options, matcher, self)
        self._open[stream] = bucket
        return Response(200, responses.headers(call), stream=stream)

    def forget(self, stream: WatchStream) -> None:
        """Remove a stream that has ended."""
        self._open.pop(stream, None)

    def close_soon(self, bucket: str) -> None:
        """End the watches of a resource that is no longer served, once they have sent its last events."""
        asyncio.get_running_loop().call_later(_FINISH_DELAY_S, self._finish, bucket)

    def _finish(self, bucket: str) -> None:
        for stream in [stream for stream, of in self._open.items() if of == bucket]:
            stream.finish()

    def close(self) -> None:
        """End all watches."""
        for stream in list(self._open):
            stream.end()


def _failed(call: Call, error: ApiError) -> Response:
    """A stream that only reports the error."""

    async def line() -> AsyncGenerator[bytes, None]:
        yield error_line(error)

    return Response(200, responses.headers(call), stream=line())


def too_old(revision: int, oldest: int) -> Expired:
    """The 410 of a revision from which no watch can begin."""
    return Expired(f"too old resource version: {revision} ({oldest})")
