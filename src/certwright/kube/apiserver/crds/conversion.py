"""Webhook conversion of custom resources between versions.

Every row contains the version that it was stored in. Verbs work in the version of the request, over a view of
the store (`ConvertedStore`) that converts what they read, and converts what they write to the storage
version. So all verbs, including server-side apply, work in every version, and objects stay readable when the
storage version changes. Conversion strategy `None` needs none of this: there the versions differ in their
schemas only (see `definitions`).

Field management is synchronous and has no side effects on the store. When it needs an object in a version
that only a webhook can make, it stops with `Unconverted`; the verb is run again from its beginning once the
webhook has answered, and finds the object in `OtherVersions`.

Source: Kubernetes documentation, "Versions in CustomResourceDefinitions", webhook conversion; API reference,
ConversionReview v1 apiextensions.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, Unpack

import msgspec

from certwright.kube.api import naming
from certwright.kube.api.errors import InternalError
from certwright.kube.apiserver.base.json_values import Json, decode_as_go
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.crds.definitions import STORED_VERSION
from certwright.kube.apiserver.fieldmanager.managed import NotConvertible
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import WHOLE, Shape
from certwright.kube.apiserver.model.objects import encode_json
from certwright.kube.apiserver.representations import tables
from certwright.kube.apiserver.verbs.watch import failure_line
from certwright.kube.apiserver.webhooks.client import CallFailed, WebhookClient
from certwright.kube.store.contract import Damages, Encode, Key, ListOptions, Page, Row, Store, Watch
from certwright.kube.util.http_messages import Response, close_stream

MAX_REVIEWS = 64
"""How many objects one request may have converted for field management."""

Convert = Callable[[ResourceDefinition, str, list[Json], str], Awaitable[list[Json]]]
"""Converts objects of a definition from one version to another. Raises `InternalError`."""


class Unconverted(Exception):
    """An object is needed in a version that it has not been converted to yet."""

    def __init__(self, definition: ResourceDefinition, obj: Json) -> None:
        super().__init__(definition.api_version)
        self.definition = definition
        self.obj = obj


class OtherVersions:
    """The webhook's answers in the course of one request."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._outcomes: dict[tuple[str, bytes], Json | str] = {}

    def of(self, definition: ResourceDefinition, obj: Json) -> Json:
        """The object in the version of `definition`, without its managed fields.

        Raises `Unconverted` when it is unknown yet, `NotConvertible` when the webhook has refused.
        """
        if obj["apiVersion"] == definition.api_version:
            return obj
        meta = {name: value for name, value in obj["metadata"].items() if name != MANAGED}
        bare = {**obj, "metadata": meta}
        outcome = self._outcomes.get(_key(definition, bare))
        if outcome is None:
            raise Unconverted(definition, bare)
        if isinstance(outcome, str):
            raise NotConvertible(outcome)
        return outcome

    async def run(self, call: Call, verb: Callable[[], Awaitable[Response]]) -> Response:
        """The answer of a verb, which is run again for each missing object. Raises `InternalError`."""
        warnings = list(call.warnings)
        for _ in range(MAX_REVIEWS):
            try:
                return await verb()
            except Unconverted as missing:
                definition, obj = missing.definition, missing.obj
                source = obj["apiVersion"].rpartition("/")[2]
                outcome: Json | str
                try:
                    (outcome,) = await self._convert(definition, source, [obj], definition.version)
                except InternalError as error:
                    outcome = error.message
                self._outcomes[_key(definition, obj)] = outcome
                call.warnings[:] = warnings
        raise InternalError("the object never stayed the same long enough to be converted")


def _key(definition: ResourceDefinition, bare: Json) -> tuple[str, bytes]:
    return (definition.version, encode_json(bare))


_TIMEOUT_S = 30
_CHOSEN_FROM = 500  # rows per page where few may match
_KNOWN_REVIEWS = ("v1", "v1beta1")

Verb = Callable[[Backend, Call], Awaitable[Response]]
_Rows = list[Row]
_Placed = list[tuple[int, Json]]


class Conversions:
    """The client of the conversion webhooks."""

    def __init__(self, client: WebhookClient) -> None:
        self._client = client

    def around(self, verb: Verb) -> Verb:
        """Wrap a verb for resources whose versions a webhook converts."""

        async def run(backend: Backend, call: Call) -> Response:
            if call.verb != "watch":
                view = copy.copy(backend)
                view.store = ConvertedStore(backend.store, self, call.definition)
                others = OtherVersions(self.convert)
                view.in_version = others.of
                return await others.run(call, lambda: verb(view, call))
            form = call.form if call.form.shape is Shape.PARTIAL else WHOLE
            answer = await verb(backend, replace(call, form=form))
            if answer.stream is None or form.shape is Shape.PARTIAL:
                return answer
            return msgspec.structs.replace(answer, stream=self._events(backend, call, answer.stream))

        return run

    async def shown(self, definition: ResourceDefinition, obj: Json) -> Json:
        """An object in the version of `definition`. Raises `InternalError`."""
        version = obj["apiVersion"].rpartition("/")[2]
        (converted,) = await self.convert(definition, version, [obj], definition.version)
        return converted

    async def _events(
        self, backend: Backend, call: Call, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        first = True
        lines: list[bytes] = []
        try:
            async for chunk in stream:
                lines = []
                for line in chunk.splitlines():
                    event = objects.decode_json(line)
                    if event["type"] != "ERROR":
                        obj = event["object"]
                        source = _taken_out(call.definition, obj)
                        if event["type"] != "BOOKMARK":
                            version = call.definition.version
                            (obj,) = await self.convert(call.definition, source, [obj], version)
                            event["object"] = obj
                        if call.form.shape is Shape.TABLE:
                            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
                            table = tables.render(
                                call.definition,
                                [encode_json(obj)],
                                now=backend.clock.now(),
                                include=call.query.get("includeObject") or "Metadata",
                                metadata=encode_json(meta),
                                with_columns=first,
                                version=call.form.version,
                            )
                            event["object"], first = msgspec.Raw(table), False
                    lines.append(objects.encode_json(event) + b"\n")
                yield b"".join(lines)
        except Exception as error:
            yield b"".join([*lines, failure_line(error)])
        finally:
            await close_stream(stream)

    async def convert(
        self, definition: ResourceDefinition, source: str, given: list[Json], version: str
    ) -> list[Json]:
        """The objects, which are in version `source`, in another version. Raises `InternalError`."""
        conversion = definition.conversion
        assert conversion is not None, "asked of the definition"
        if not given or source == version:
            return given
        api_version = f"{definition.group}/{version}"
        known = [version for version in conversion.review_versions if version in _KNOWN_REVIEWS]
        review, uid = known[0] if known else _KNOWN_REVIEWS[0], naming.new_uid()
        sent = [{**obj, "apiVersion": f"{definition.group}/{source}"} for obj in given]
        body = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{review}",
            "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": sent},
        }
        who = f"conversion webhook for {definition.group}/{source}, Kind={definition.kind}"
        try:
            raw = await self._client.post(conversion.target, objects.encode_json(body), timeout_s=_TIMEOUT_S)
            converted = _converted(decode_as_go(raw), uid, f"apiextensions.k8s.io/{review}")
        except (CallFailed, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise InternalError(f"{who} failed: {error}") from None
        if len(converted) != len(given):
            raise InternalError(f"{who} returned {len(converted)} objects, expected {len(given)}")
        try:
            return [
                _checked(before, after, api_version) for before, after in zip(sent, converted, strict=True)
            ]
        except ValueError as error:
            raise InternalError(f"{who} returned invalid object: {error}") from None


# --- the store --------------------------------------------------------------------------------------------


class ConvertedStore:
    """A view of a store (`Store`) for one request: the rows of one resource, converted to one version."""

    def __init__(self, store: Store, conversions: Conversions, definition: ResourceDefinition) -> None:
        self._store = store
        self._conversions = conversions
        self._definition = definition
        # A verb that starts again reads the same row again.
        self._seen: dict[Key, Row] = {}

    @property
    def revision(self) -> int:
        return self._store.revision

    @property
    def trouble(self) -> str:
        return self._store.trouble

    async def up_to(self, revision: int) -> int:
        return await self._store.up_to(revision)

    async def check(self) -> None:
        await self._store.check()

    async def get(self, key: Key) -> Row | None:
        return await self._shown_row(await self._store.get(key))

    async def latest(self, key: Key) -> Row | None:
        return await self._shown_row(await self._store.latest(key))

    def cached(self, key: Key) -> Row | None:  # noqa: ARG002 - it may be of another version
        """None, because conversion takes a webhook."""
        return None

    def recent(self, key: Key) -> Row | None:
        """None, because conversion takes a webhook."""

    async def settled(self, key: Key) -> None:
        await self._store.settled(key)

    async def list(self, bucket: str, namespace: str | None = None, **options: Unpack[ListOptions]) -> Page:
        """As in `Store`; a page is converted in one review for each version that rows are stored in."""
        # A webhook may change labels, so label selectors apply to the requested version.
        keep, limit = options.pop("keep", None), options.get("limit")
        if keep is not None and limit is not None:
            options["limit"] = max(limit, _CHOSEN_FROM)
        page = await self._store.list(bucket, namespace, **options)
        rows = page.rows if options.get("meta_only") else await self._shown(page.rows)
        return replace(page, rows=rows) if keep is None else page.only(list(filter(keep, rows)), limit)

    async def count(self, bucket: str, namespace: str | None = None) -> int:
        return await self._store.count(bucket, namespace)

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        definition = self._definition
        conversion = definition.conversion
        assert conversion is not None, "asked of the definition"
        meta, body = encode(expect or 0)
        obj = objects.to_object(definition, Row(key, expect or 0, meta, body))
        (stored,) = await self._conversions.convert(definition, definition.version, [obj], conversion.stored)
        marked = objects.body_of({STORED_VERSION: conversion.stored, **stored})

        def encode_stored(revision: int) -> tuple[bytes, bytes]:
            return _with_labels(encode(revision)[0], obj["metadata"], stored["metadata"]), marked

        (row,) = await self._shown([await self._store.put(key, encode_stored, expect=expect)])
        return row

    async def delete(self, key: Key, encode: Encode | None = None, *, expect: int | None = None) -> Row:
        """As in `Store`; a deleted object is shown as it was stored, at its last revision."""
        raw, last = await self._store.latest(key), encode
        if raw is None or last is None:
            gone = await self._store.delete(key, None, expect=expect)
        else:
            body, words = raw.body, last
            gone = await self._store.delete(key, lambda revision: (words(revision)[0], body), expect=expect)
        (row,) = await self._shown([gone])
        return row

    async def discard(self, key: Key, encode: Encode) -> Row:
        return await self._store.discard(key, encode)

    @property
    def damage(self) -> Damages:
        return self._store.damage

    def watch(self, bucket: str, *, after: int, namespace: str | None = None) -> Watch:
        """As in `Store`; events are not converted here."""
        return self._store.watch(bucket, after=after, namespace=namespace)

    async def close(self) -> None:
        await self._store.close()

    async def _shown_row(self, row: Row | None) -> Row | None:
        if row is None:
            return None
        converted = self._seen.get(row.key)
        if converted is None or converted.revision != row.revision:
            (converted,) = await self._shown([row])
            self._seen[row.key] = converted
        return converted

    async def _shown(self, rows: _Rows) -> _Rows:
        by_version: dict[str, _Placed] = {}
        for index, row in enumerate(rows):
            obj = objects.to_object(self._definition, row)
            by_version.setdefault(_taken_out(self._definition, obj), []).append((index, obj))
        converted_rows = [*rows]
        for version, some in by_version.items():
            given = [obj for _, obj in some]
            converted = await self._conversions.convert(
                self._definition, version, given, self._definition.version
            )
            for (index, _), obj in zip(some, converted, strict=True):
                if version != self._definition.version:
                    self._definition.schema.prune(obj)
                row = rows[index]
                meta = (
                    objects.columns(obj)(row.revision)[0] if version != self._definition.version else row.meta
                )
                converted_rows[index] = Row(row.key, row.revision, meta, objects.body_of(obj))
        return converted_rows


def _taken_out(definition: ResourceDefinition, obj: Json) -> str:
    """Remove and return the version that an object is stored in."""
    conversion = definition.conversion
    assert conversion is not None, "asked of the definition"
    version: str = obj.pop(STORED_VERSION, conversion.first)
    return version


def _with_labels(meta: bytes, before: Json, after: Json) -> bytes:
    """Metadata with the labels and annotations that a webhook has changed."""
    names = ("labels", "annotations")
    if all(before.get(name) == after.get(name) for name in names):
        return meta
    fields = {name: value for name, value in objects.decode_json(meta).items() if name not in names}
    managed = fields.pop(MANAGED, None)
    fields.update({name: after[name] for name in names if after.get(name)})
    if managed is not None:
        fields[MANAGED] = managed
    return objects.encode_json(fields)


# --- the webhook's answers --------------------------------------------------------------------------------


def _converted(review: Any, uid: str, version: str) -> list[Any]:
    if type(review) is not dict or type(review.get("response")) is not dict:
        raise ValueError("no response provided")
    if (review.get("apiVersion"), review.get("kind")) != (version, "ConversionReview"):
        actual = f"{review.get('apiVersion')}, Kind={review.get('kind')}"
        raise ValueError(f"expected webhook response of {version}, Kind=ConversionReview, got {actual}")
    response = review["response"]
    if response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        status = f"response.result.status was '{result.get('status', '')}', not 'Success'"
        raise ValueError(result.get("message") or status)
    return list(response.get("convertedObjects") or ())


def _checked(given: Json, converted: Any, api_version: str) -> Json:
    """`converted` with the metadata of its source; only labels and annotations may differ."""
    if type(converted) is not dict or type(converted.get("metadata")) is not dict:
        raise ValueError("missing metadata in converted object")
    if converted.get("apiVersion") != api_version:
        actual = converted.get("apiVersion")
        raise ValueError(f"invalid groupVersion (expected {api_version}, received {actual})")
    if converted.get("kind") != given["kind"]:
        raise ValueError(f"must have the same kind: {given['kind']} != {converted.get('kind')}")
    before, after = given["metadata"], converted["metadata"]
    for field, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if before.get(field, "") != after.get(field, ""):
            raise ValueError(f"must have the same {word}: {before.get(field, '')} != {after.get(field, '')}")
    kept = {field: value for field, value in before.items() if field not in ("labels", "annotations")}
    changed = {field: after[field] for field in ("labels", "annotations") if after.get(field)}
    return {**converted, "metadata": kept | changed}
