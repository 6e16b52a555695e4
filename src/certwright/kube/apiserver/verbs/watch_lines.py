"""Lines of a watch: events, bookmarks and errors, each encoded once per form for all watchers.

Source: Kubernetes documentation, "Kubernetes API Concepts", efficient detection of changes, watch bookmarks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from certwright.kube.api.errors import ApiError, InternalError
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import Form, Shape
from certwright.kube.apiserver.model.objects import at_revision, encode_json
from certwright.kube.apiserver.representations import tables
from certwright.kube.apiserver.requests import forms
from certwright.kube.apiserver.verbs.matching import Matcher
from certwright.kube.store.contract import Event, Row

_log = logging.getLogger(__name__)

_INITIAL_END = "k8s.io/initial-events-end"

_FormKey = tuple[ResourceDefinition, Form, str]
"""What a line depends on beside the event: the resource, the form, and the object part of a Table's rows."""


class EventCache:
    """The lines of the last events, so that many watchers of one form cost one encoding.

    `batch` is the last batch that a watcher without selectors received, with the form and the lines: the next
    watcher most likely receives the same one.
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
        self._now = backend.clock.now
        self._cache = cache
        self._form: Form = call.form
        self._include = call.query.get("includeObject", "") if call.form.shape is Shape.TABLE else ""
        self._fresh_table = call.form.shape is Shape.TABLE
        self._key: _FormKey = (call.definition, call.form, self._include)

    def lines(self, batch: list[Event]) -> bytes:
        """The lines of a whole batch, for a watcher without selectors."""
        if (last := self._cache.batch) is not None and last[0] is batch and last[1] == self._key:
            return last[2]
        kept = not self._fresh_table
        lines = b"".join([self.line(*change_of(event)) for event in batch])
        if kept:
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
        return b"".join(
            (f'{{"type":"{kind}","object":'.encode(), self._object(row, with_columns=with_columns), b"}\n")
        )

    def _object(self, row: Row, *, with_columns: bool) -> bytes:
        if self._form.shape is Shape.TABLE:
            metadata = encode_json({"resourceVersion": str(row.revision)})
            return forms.table(
                self._call, (row,), now=self._now(), metadata=metadata, with_columns=with_columns
            )
        return forms.item(self._call.definition, self._form, row)

    def bookmark(self, revision: int, *, end_of_initial: bool = False) -> bytes:
        """The BOOKMARK line for a revision."""
        metadata: dict[str, object] = {"resourceVersion": str(revision)}
        if end_of_initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        encoded = encode_json(metadata)
        if self._form.shape is Shape.TABLE:
            body = self._bookmark_table(encoded, revision, end_of_initial=end_of_initial)
        elif self._form.shape is Shape.PARTIAL:
            body = forms.partial_prefix(self._form) + encoded + b"}"
        else:
            body = self._call.definition.prefix + encoded + b"}"
        return b'{"type":"BOOKMARK","object":' + body + b"}\n"

    def _bookmark_table(self, metadata: bytes, revision: int, *, end_of_initial: bool) -> bytes:
        """A Table of one row: readers look for the annotation in the row's object, whatever it includes."""
        first, self._fresh_table = self._fresh_table, False
        include = self._include or "Metadata"
        return tables.render(
            self._call.definition,
            (self._call.definition.prefix + metadata + b"}",),
            now=self._now(),
            include="Metadata" if end_of_initial and include == "None" else include,
            metadata=encode_json({"resourceVersion": str(revision)}),
            with_columns=first,
            version=self._form.version,
        )


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
    """An event as a watcher with selectors sees it: an object that no longer matches is DELETED, in its
    previous state, at the new revision."""
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
