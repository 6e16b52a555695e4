"""REST client for an API server: typed objects in, typed objects out.

Every method raises the `resources.errors.ApiError` of the response, `Unreachable` when there was no response,
and `codec.DecodeError` for an object that does not match its kind's schema.
Source: Kubernetes API concepts; Kubernetes API conventions, "Verbs on Resources".
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from certwright.kube.api import codec, errors
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.client.listing import (
    FIRST_PAGE,
    PAGE,
    Listing,
    RawPage,
    decode_item,
    next_limit,
    read_page,
)
from certwright.kube.client.transport import Transport, retry_after_s
from certwright.kube.client.watch import (
    BOOKMARK,
    Batch,
    LineReader,
    RawBatch,
    WatchEvent,
    before_error,
)
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.decoders import decoded_or_none, json_decoder
from certwright.kube.util.http_messages import Response, close_stream, whole_body

T = TypeVar("T")

JSON = "application/json"
# As in client-go's metadata client: a server without this format returns whole objects, which are accepted,
# too.
# Source: Kubernetes API concepts, "Metadata-only fetches".
_PARTIAL = "application/json;as={};g=meta.k8s.io;v=v1,application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_ATTEMPTS = 5
_PATIENCE_S = 60.0
_USUAL_BYTES = 5_000
"""Size of an object that a limit of `list_pages` assumes."""

# RFC 9110 §5.6.4: a quoted string, in which a backslash stands before any character.
_WARNING, _ESCAPED = re.compile(r'299 - "((?:[^"\\]|\\.)*)"'), re.compile(r"\\(.)")


class Client:
    """The API with the permissions of one user. Safe to use concurrently.

    A request that the server rejects with 429, and an idempotent request that fails (500 and above), are
    retried after the server's `Retry-After`, if that is within a minute. `on_warning` gets the text of every
    `Warning` header.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        user_agent: str,
        clock: Clock | None = None,
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock or SystemClock()
        self._on_warning = on_warning
        self._headers = {"accept": JSON, "user-agent": user_agent}
        self._partial_list = {**self._headers, "accept": _PARTIAL.format("PartialObjectMetadataList")}
        self._partial_watch = {**self._headers, "accept": _PARTIAL.format("PartialObjectMetadata")}
        self._body_headers = {
            kind: {**self._headers, "content-type": kind}
            for kind in (JSON, MERGE_PATCH, JSON_PATCH, APPLY_PATCH)
        }

    async def get(self, kind: Kind[T], name: str, namespace: str = "") -> T:
        """One object."""
        response = await self._send("GET", object_path(kind, namespace, name), self._headers)
        return await _object(kind, response)

    async def list(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        resource_version: str = "",
    ) -> Listing[T]:
        """All objects that the selectors choose; in all namespaces unless one is given.

        Pages have `limit` objects (0: one page). Raises `Expired` if the server has dropped the revision of
        the first page, which happens to lists that take minutes.
        """
        items: list[T] = []
        token = ""
        while True:
            page = await self.list_page(
                kind,
                namespace,
                labels=labels,
                fields=fields,
                limit=limit,
                continue_token=token,
                resource_version=resource_version,
            )
            items.extend(decode_item(kind, raw) for raw in page.items)
            token = page.continue_token
            if not token:
                return Listing(items, page.resource_version)

    async def list_page(
        self,
        kind: AnyKind,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        continue_token: str = "",
        resource_version: str = "",
        metadata_only: bool = False,
    ) -> RawPage:
        """The first page of a list, or the one of `continue_token` from the previous page. With
        `metadata_only` the server leaves out all but `metadata` of each object."""
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": str(limit) if limit else ""}
        if continue_token:
            query["continue"] = continue_token
        else:
            query["resourceVersion"] = resource_version
        target = with_query(collection_path(kind, namespace), query)
        headers = self._partial_list if metadata_only else self._headers
        body = await whole_body(await self._send("GET", target, headers))
        return read_page(kind, body)

    async def list_pages(
        self, kind: AnyKind, namespace: str = "", *, labels: str = "", fields: str = "", most: int = 0
    ) -> AsyncGenerator[RawPage, None]:
        """Pages of a list that are small however large its objects are, up to the page with the `most`th
        object, or with `most` times 5 kB (0: all). Raises `Expired` as `list` does."""
        token, limit, read, size = "", FIRST_PAGE, 0, 0
        while True:
            page = await self.list_page(
                kind, namespace, labels=labels, fields=fields, limit=limit, continue_token=token
            )
            yield page
            token, limit = page.continue_token, next_limit(limit, page.size)
            read, size = read + len(page.items), size + page.size
            if not token or (most and (read >= most or size >= most * _USUAL_BYTES)):
                return
            # Within the process of the server the pages need no wait: others have their turn here.
            await asyncio.sleep(0)

    async def create(self, kind: Kind[T], obj: T, *, dry_run: bool = False, strict: bool = False) -> T:
        """Create the object and return it as stored. With `strict` the server refuses unknown fields."""
        target = for_write(collection_path(kind, _namespace(obj)), dry_run=dry_run, strict=strict)
        response = await self._send("POST", target, self._body_headers[JSON], codec.encode(kind, obj))
        return await _object(kind, response)

    async def update(self, kind: Kind[T], obj: T) -> T:
        """Replace the object. Raises `Conflict` if the stored object has another resourceVersion than
        `obj`."""
        target = object_path(kind, _namespace(obj), _name(obj))
        response = await self._send("PUT", target, self._body_headers[JSON], codec.encode(kind, obj))
        return await _object(kind, response)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        namespace: str,
        patch: Any,
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        dry_run: bool = False,
        strict: bool = False,
    ) -> T:
        """Patch the object. `patch` is anything that msgspec can write as JSON."""
        path = object_path(kind, namespace, name, subresource)
        target = for_write(path, dry_run=dry_run, strict=strict)
        headers = self._body_headers.get(content_type) or {**self._headers, "content-type": content_type}
        response = await self._send("PATCH", target, headers, msgspec.json.encode(patch))
        return await _object(kind, response)

    async def apply(self, kind: Kind[T], obj: dict[str, Any], *, field_manager: str, force: bool) -> T:
        """Server-side apply: set the fields in `obj`, and remove those that `field_manager` applied before
        and `obj` lacks; creates a missing object. `obj` is a dict of JSON values and bytes, `apiVersion` and
        `kind` are added. `force` takes over fields with conflicting values from other managers (else
        `Conflict`).

        Source: Kubernetes documentation, "Server-Side Apply".
        """
        query = {"fieldManager": field_manager, "force": "true" if force else ""}
        target = with_query(object_path(kind, _namespace(obj), _name(obj)), query)
        body = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind} | obj)
        response = await self._send("PATCH", target, self._body_headers[APPLY_PATCH], body)
        return await _object(kind, response)

    async def delete(
        self, kind: AnyKind, name: str, namespace: str = "", *, uid: str = "", propagation: str = ""
    ) -> bool:
        """Delete the object, and return whether it is gone (it may have finalizers).

        `uid` is a precondition (`Conflict` when it does not match). `propagation` is `Foreground`,
        `Background` or `Orphan`; empty: the kind's default.
        """
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if propagation:
            options["propagationPolicy"] = propagation
        headers, body = self._headers, b""
        if options:
            options |= {"kind": "DeleteOptions", "apiVersion": "v1"}
            headers, body = self._body_headers[JSON], msgspec.json.encode(options)
        target = object_path(kind, namespace, name)
        # The server returns a Status once the object is gone, and the object while it is being deleted.
        answer = await whole_body(await self._send("DELETE", target, headers, body))
        decoded = decoded_or_none(json_decoder(_Kind), answer)
        return decoded is not None and decoded.kind == "Status"

    async def watch(
        self,
        kind: Kind[T],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
        timeout_s: int | None = None,
    ) -> AsyncGenerator[Batch[T], None]:
        """Changes after `resource_version`, in batches as received; ends when the server ends the watch.
        Bookmarks are requested (they keep the connection alive) but not returned.

        Raises the server's error, above all `Expired`: list again. A caller that stops before the end must
        close the iterator (`contextlib.aclosing`).
        """
        raw_events = self.watch_raw(
            kind,
            namespace,
            resource_version=resource_version,
            labels=labels,
            fields=fields,
            bookmarks=bookmarks,
            timeout_s=timeout_s,
        )
        async with aclosing(raw_events):
            async for batch in raw_events:
                events = [
                    WatchEvent(event.type, codec.decode(kind, event.object), event.who.resource_version)
                    for event in batch
                    if event.type != BOOKMARK
                ]
                if events:
                    yield events

    async def watch_raw(
        self,
        kind: AnyKind,
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
        timeout_s: int | None = None,
        metadata_only: bool = False,
    ) -> AsyncGenerator[RawBatch, None]:
        """As `watch`, with objects not decoded, and with bookmarks; for `metadata_only` see `list_page`."""
        query = {
            "watch": "true",
            "resourceVersion": resource_version,
            "labelSelector": labels,
            "fieldSelector": fields,
            "allowWatchBookmarks": "true" if bookmarks else "",
            "timeoutSeconds": "" if timeout_s is None else str(timeout_s),
        }
        target = with_query(collection_path(kind, namespace), query)
        headers = self._partial_watch if metadata_only else self._headers
        response = await self._send("GET", target, headers)
        reader = LineReader()
        async with aclosing(_chunks(response)) as chunks:
            async for chunk in chunks:
                events, error = before_error(reader.feed(chunk))
                if events:
                    yield events
                if error is not None:
                    raise error

    async def raw(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Any request; its response is not decoded. Empty values of `query` are left out; `headers`
        (lower-case) are added to the client's. Raises for responses of 400 and above, as everything here."""
        target = with_query(path, query or {})
        return await self._send(method, target, {**self._headers, **(headers or {})}, body)

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()

    async def _send(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Response:
        """The response; after a response of 429, or of 500 and above, the request is sent again after its
        `Retry-After` (RFC 9110 §10.2.3), in seconds. Raises for a response of 400 and above."""
        response = await self._transport.request(method, target, headers=headers, body=body)
        attempt, deadline = 1, math.inf
        while response.status == 429 or response.status >= 500:
            now, wait_s = self._clock.monotonic(), retry_after_s(response)
            deadline = min(deadline, now + _PATIENCE_S)
            idempotent = (
                method in ("GET", "HEAD", "PUT", "DELETE") or headers.get("content-type") == MERGE_PATCH
            )
            if wait_s is None or not (response.status == 429 or idempotent):
                break
            if attempt == _ATTEMPTS or now + wait_s > deadline:
                break
            await whole_body(response)
            await self._clock.sleep(wait_s)
            response = await self._transport.request(method, target, headers=headers, body=body)
            attempt += 1
        if self._on_warning is not None and "warning" in response.headers:
            # `299 - "text"` in UTF-8, several of them joined by commas (RFC 7234 §5.5).
            header = response.headers["warning"].encode("latin-1", "replace").decode("utf-8", "replace")
            for text in _WARNING.findall(header):
                self._on_warning(_ESCAPED.sub(r"\1", text))
        if response.status >= 400:
            wait_s = retry_after_s(response)
            raise errors.from_response(response.status, await whole_body(response), retry_after_s=wait_s)
        return response


async def _object(kind: Kind[T], response: Response) -> T:
    """The object in a response. Raises `NoApi`."""
    try:
        obj = codec.decode(kind, await whole_body(response))
    except codec.DecodeError as error:
        raise errors.NoApi(f"{kind.resource}: the answer is not understood ({error})") from None
    if isinstance(obj, dict) and not isinstance(obj.get("metadata"), dict):
        raise errors.NoApi(f"{kind.resource}: the answer is not an object (it has no metadata)")
    return obj


async def _chunks(response: Response) -> AsyncGenerator[bytes, None]:
    if response.stream is None:
        yield response.body
        return
    try:
        async for chunk in response.stream:
            yield chunk
    finally:
        await close_stream(response.stream)


class _Kind(msgspec.Struct):
    kind: str = ""


def _namespace(obj: Any) -> str:
    meta = obj["metadata"].get("namespace", "") if isinstance(obj, dict) else obj.metadata.namespace
    return str(meta)


def _name(obj: Any) -> str:
    return str(obj["metadata"]["name"] if isinstance(obj, dict) else obj.metadata.name)


_DOT_SEGMENTS: Final = frozenset({".", ".."})
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9._~-]*")  # RFC 3986 §2.3: never quoted


def object_path(kind: AnyKind, namespace: str, name: str, subresource: str = "") -> str:
    """The path of one object. Raises `NotFound` for a name that no object can have."""
    # The name may come from an annotation or a field. Without a name the request would be for all objects; a
    # proxy that removes dot segments (RFC 3986 §5.2.4) would pass it on for another, or for the namespace.
    if not name or {namespace, name} & _DOT_SEGMENTS:
        raise errors.NotFound(f'{kind.plural} "{name}" not found')
    return _join(kind, namespace, name, subresource)


def collection_path(kind: AnyKind, namespace: str) -> str:
    """The path of the objects of a kind; `namespace` "": in all."""
    return _join(kind, namespace)


def _join(kind: AnyKind, namespace: str, name: str = "", subresource: str = "") -> str:
    # Nearly every name consists of these, and the check is five times as fast as quoting.
    if _UNRESERVED.fullmatch(namespace + name):
        return kind.path(namespace, name, subresource)
    return kind.path(quote(namespace, safe=""), quote(name, safe=""), subresource)


def with_query(path: str, query: Mapping[str, str]) -> str:
    """The path with the parameters that are not empty."""
    given = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def for_write(path: str, *, dry_run: bool, strict: bool) -> str:
    """The path of a write, with its options."""
    return with_query(
        path, {"dryRun": "All" if dry_run else "", "fieldValidation": "Strict" if strict else ""}
    )
