"""Get and list: responses joined from stored bytes, decoded only where a selector needs it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from certwright.kube.api import errors
from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.model.backend import CHUNK, Backend, Call, not_found
from certwright.kube.apiserver.model.negotiation import Shape
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests.selectors import Matcher
from certwright.kube.apiserver.verbs import paging
from certwright.kube.apiserver.verbs.paging import ListOptions
from certwright.kube.store.contract import Compacted, DamagedRow, FutureRevision, Key, Page, Row
from certwright.kube.store.log import size_of_row
from certwright.kube.util.http_messages import Response

PAGE_BYTES = 256 * 1024
"""Bytes after which a page of large rows ends earlier, because each stream buffers one page, and other
requests wait while it is read."""
_LIMITED_BYTES = 1 << 20
"""Bytes after which a list with `limit` ends and continues in the next request, because it is in memory."""


def check_table(call: Call) -> None:
    """Raise `BadRequest` for a Table with an unknown `includeObject`."""
    include = call.query.get("includeObject", "") if call.form.shape is Shape.TABLE else ""
    if include not in ("", "None", "Metadata", "Object"):
        wrong = errors.invalid("includeObject", include, "must be 'Metadata', 'Object', 'None', or empty")
        raise BadRequest(f"Unable to convert to Table as requested: {wrong}")


async def get(backend: Backend, call: Call) -> Response:
    """GET of one object."""
    if call.query and (revision := paging.revision_of(call.query.get("resourceVersion", ""))):
        await _check_reached(backend, revision)
    row = await backend.store.get(call.key)
    if row is None:
        raise not_found(call.definition, call.route.name)
    return responses.object_response(call, row, backend.clock)


async def _check_reached(backend: Backend, revision: int) -> None:
    if revision > backend.store.revision and revision > (reached := await backend.store.up_to(revision)):
        raise paging.too_large(revision, reached)


def warn_of_damage(backend: Backend, call: Call) -> None:
    """Warn of the rows that a list leaves out because they cannot be read."""
    if len(backend.store.damage):
        for row in backend.store.damage.of(call.definition.bucket, call.route.namespace):
            if (text := f"left out of this list: {row}") not in call.warnings:
                call.warnings.append(text)


@dataclass(slots=True)
class _Listing:
    """The beginning of a list, or all of it."""

    rows: list[Row]
    revision: int
    after: tuple[str, str] | None = None
    remaining: int | None = None

    def metadata(self, call: Call) -> bytes:
        """The list's own metadata, as JSON."""
        if self.after is not None:
            token = paging.encode_token(self.revision, self.after, self.remaining)
            described: dict[str, object] = {"continue": token}
            if self.remaining not in (None, paging.UNCOUNTED):
                described["remainingItemCount"] = self.remaining
        else:
            # Kubernetes keeps custom objects as they are, including members that it would omit elsewhere.
            bare = call.definition.custom and call.form.shape is Shape.WHOLE
            described = {"continue": ""} if bare else {}
        return encode_json({**described, "resourceVersion": str(self.revision)})


async def list_objects(backend: Backend, call: Call) -> Response:
    """GET of a collection."""
    options, matcher = await _read_query(backend, call)
    warn_of_damage(backend, call)
    with _refusals(backend, options):
        if (call.route.namespace or not call.definition.namespaced) and (name := matcher.single_name):
            return _answer(backend, call, await _list_by_name(backend, call, name, options, matcher))
        if options.limit:
            listing = await _collect(backend, call, options, matcher, enough_bytes=_LIMITED_BYTES)
            return _answer(backend, call, listing)
        # All rows: in one body when they fit in a chunk, otherwise as a stream, so that memory stays flat.
        page = await _page(backend, call, matcher, limit=CHUNK, after=options.after, revision=options.exact)
    if page.more:
        return Response(200, responses.headers(call), stream=_stream(backend, call, page, matcher))
    return _answer(backend, call, _Listing(page.rows, page.revision))


async def selected(backend: Backend, call: Call) -> tuple[list[Row], Response]:
    """The rows that a call selects, one page where there is a limit, and the list of them."""
    options, matcher = await _read_query(backend, call)
    with _refusals(backend, options):
        listing = await _collect(backend, call, options, matcher)
    return listing.rows, _answer(backend, call, listing)


async def _read_query(backend: Backend, call: Call) -> tuple[ListOptions, Matcher]:
    definition, route = call.definition, call.route
    options = paging.list_options(call.query, namespaced=definition.namespaced, namespace=route.namespace)
    matcher = Matcher.of(call)
    await _check_reached(backend, options.not_older)
    return options, matcher


@contextmanager
def _refusals(backend: Backend, options: ListOptions) -> Iterator[None]:
    """Raise the 410 or 504 of a revision of which the store has no list."""
    try:
        yield
    except Compacted:
        raise paging.expired(options) from None
    except FutureRevision:
        raise paging.too_large(options.exact, backend.store.revision) from None


async def _page(
    backend: Backend,
    call: Call,
    matcher: Matcher,
    *,
    limit: int,
    after: tuple[str, str] | None,
    revision: int,
    counted: bool = False,
) -> Page:
    """Matching rows; there may be fewer than `limit` even where more remain."""
    page = await backend.store.list(
        call.definition.bucket,
        call.route.namespace or None,
        limit=max(limit, CHUNK) if matcher.of_body else limit,
        after=after,
        revision=revision or None,
        meta_only=call.form.shape is Shape.PARTIAL and not matcher.of_body,
        max_bytes=PAGE_BYTES,
        keep=matcher.of_meta,
        counted=counted,
    )
    if page.damaged:
        warn_of_damage(backend, call)
    if not matcher.of_body:
        return page
    return page.only(list(filter(matcher.matches_body, page.rows)), limit)


async def _list_by_name(
    backend: Backend, call: Call, name: str, options: ListOptions, matcher: Matcher
) -> _Listing:
    """Read a list; a field selector on the name is a point read, not a scan of the bucket."""
    if options.exact and call.query.get("resourceVersionMatch") == "Exact":
        # A complete list: where it has at most one object, there is no next page.
        return await _collect(backend, call, replace(options, limit=0, after=None), matcher)
    # In other lists Kubernetes treats a limit with a revision as exact, but not here.
    await _check_reached(backend, options.exact)
    revision = backend.store.revision
    try:
        row = await backend.store.get(Key(call.definition.bucket, call.route.namespace, name))
    except DamagedRow:
        row = None
        warn_of_damage(backend, call)
    rows = [row] if row is not None and matcher.matches(row) else []
    # The row may have been written after `revision` was read: a list must not be older than its objects.
    return _Listing(rows, max([revision, *(row.revision for row in rows)]))


async def _collect(
    backend: Backend, call: Call, options: ListOptions, matcher: Matcher, *, enough_bytes: float = math.inf
) -> _Listing:
    """Up to `limit` matching rows (0: all), page after page of one revision; fewer than `limit` once they
    exceed `enough_bytes`, as the API allows."""
    listing, size = _Listing([], options.exact, options.after), 0
    # The remaining rows are counted once; the token passes the count to the following pages.
    counted = bool(options.limit) and options.left is None and matcher.trivial
    while True:
        page = await _page(
            backend,
            call,
            matcher,
            limit=options.limit - len(listing.rows) if options.limit else CHUNK,
            after=listing.after,
            revision=listing.revision,
            counted=counted,
        )
        # A token without revision continues at the newest: each page of it then has one revision again.
        listing.revision = page.revision
        listing.rows += page.rows
        size += sum(map(size_of_row, page.rows))
        listing.after = page.last if page.more else None
        if listing.after is None:
            return listing
        if options.limit and (len(listing.rows) >= options.limit or size >= enough_bytes):
            listing.remaining = _left(page, options, len(listing.rows)) if matcher.trivial else None
            return listing
        await asyncio.sleep(0)  # few match: let other requests run


def _left(page: Page, options: ListOptions, returned: int) -> int:
    if page.remaining is not None:
        return page.remaining
    if options.left is None or options.left == paging.UNCOUNTED:
        return paging.UNCOUNTED
    return max(options.left - returned, 0)


def _answer(backend: Backend, call: Call, listing: _Listing) -> Response:
    """The list of rows in memory: as one body, or in batches where it is long."""
    metadata, now = listing.metadata(call), backend.clock.now()
    if len(listing.rows) > CHUNK or sum(map(size_of_row, listing.rows)) > PAGE_BYTES:
        parts = _Parts(call, metadata, now)
        return Response(200, responses.headers(call), stream=_in_batches(parts, listing.rows))
    body = responses.list_opening(call, metadata) + responses.items(call, listing.rows, now) + b"]}"
    shape = call.form.shape
    if not listing.rows and (shape is Shape.PARTIAL or (shape is Shape.TABLE and call.definition.is_crd)):
        # The nil slice in Go, which Kubernetes encodes as null; other kinds have the rows of Tables prepared.
        body = body.removesuffix(b"[]}") + b"null}"
    return Response(200, responses.headers(call), body)


class _Parts:
    """A list that is sent in parts, in the negotiated form."""

    def __init__(self, call: Call, metadata: bytes, now: datetime) -> None:
        self._call = call
        self._now = now
        self._before = responses.list_opening(call, metadata)

    def of(self, rows: Iterable[Row]) -> Iterator[bytes]:
        """The bytes for the next rows, in batches of `CHUNK` rows or `PAGE_BYTES`."""
        batch, size = list[Row](), 0
        for row in rows:
            batch.append(row)
            size += size_of_row(row)
            if size > PAGE_BYTES or len(batch) == CHUNK:
                yield self._joined(batch)
                batch, size = [], 0
        if batch:
            yield self._joined(batch)

    def _joined(self, batch: list[Row]) -> bytes:
        joined, self._before = self._before + responses.items(self._call, batch, self._now), b","
        return joined

    @property
    def rest(self) -> bytes:
        """The bytes after the last row."""
        return self._before.removeprefix(b",") + b"]}"


async def _in_batches(parts: _Parts, rows: Iterable[Row]) -> AsyncIterator[bytes]:
    for chunk in parts.of(rows):
        yield chunk
        await asyncio.sleep(0)
    yield parts.rest


async def _stream(backend: Backend, call: Call, page: Page | None, matcher: Matcher) -> AsyncIterator[bytes]:
    """The chunks of a list, all of the first page's revision; each page is read once the client has received
    the previous one."""
    assert page is not None
    listing = _Listing([], page.revision)
    parts = _Parts(call, listing.metadata(call), backend.clock.now())
    while page is not None:
        chunk, after = b"".join(parts.of(page.rows)), page.last if page.more else None
        page = None  # the rows are not kept while the client reads
        yield chunk
        if after is not None:
            await backend.turns.loop_turn()
            try:
                page = await _page(
                    backend, call, matcher, limit=CHUNK, after=after, revision=listing.revision
                )
            except Compacted:
                raise paging.expired(ListOptions()) from None
    yield parts.rest
