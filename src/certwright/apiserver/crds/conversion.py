"""Versions of a custom resource that a webhook converts.

Objects are kept in one version. A request for another is answered by one for the kept version: what the
client sent is converted on the way in, what the store holds on the way out. With conversion strategy `None`
nothing of this is needed: there the versions differ in their name only.

Limits: the kept version is the first of `status.storedVersions` for as long as the resource lives; a
server-side apply in another version is refused; field selectors are those of the kept version.

Source: Kubernetes documentation, "Versions in CustomResourceDefinitions", webhook conversion; API reference,
ConversionReview v1 apiextensions.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from certwright.apiserver import objects
from certwright.apiserver.admission.webhook_client import CallFailed, WebhookClient
from certwright.apiserver.admission.webhook_config import Target
from certwright.apiserver.backend import Backend, Call, not_found
from certwright.apiserver.definitions import Json, ResourceDefinition
from certwright.apiserver.representations import tables
from certwright.apiserver.representations.negotiation import JSON, WHOLE, Shape, content_type, unsupported
from certwright.apiserver.verbs import bodies, forms
from certwright.apiserver.verbs.patch import (
    JSON_PATCH,
    MERGE,
    PatchFailed,
    PatchMalformed,
    json_patch,
    merge_patch,
)
from certwright.apiserver.verbs.shaping import check_type
from certwright.kit import ids
from certwright.kit.exchange import Request, Response
from certwright.resources.errors import BadRequest, InternalError, invalid_object

_TIMEOUT_S = 30
_ATTEMPTS = 5
_KNOWN_REVIEWS = ("v1", "v1beta1")

Verb = Callable[[Backend, Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Conversion:
    """How a version is made of the one that is kept. `kept` is that one's definition."""

    target: Target
    review_versions: tuple[str, ...]
    kept: ResourceDefinition


class Conversions:
    """Asks the webhooks."""

    def __init__(self, client: WebhookClient) -> None:
        self._client = client

    def around(self, verbs: dict[str, Verb]) -> Verb:
        """The verb of a call for a version that is not kept; `verbs` are those of the kept one."""

        async def run(backend: Backend, call: Call) -> Response:
            conversion = call.definition.conversion
            assert conversion is not None, "asked of the definition"
            if call.verb in ("create", "update"):
                sent = await self._to_kept(call, conversion, _read(call))
                answer = await verbs[call.verb](backend, _inner(call, conversion, sent))
            elif call.verb == "patch":
                answer = await self._patch(backend, call, conversion, verbs["update"])
            else:
                answer = await verbs[call.verb](backend, _inner(call, conversion))
            return await self._answer(backend, call, conversion, answer)

        return run

    async def shown(self, wanted: ResourceDefinition, obj: Json) -> Json:
        """A kept object in another version, that of `wanted`. Raises `InternalError`."""
        conversion = wanted.conversion
        assert conversion is not None, "asked of the definition"
        (found,) = await self._convert(conversion, conversion.kept, [obj], wanted.version)
        return found

    async def kept(self, source: ResourceDefinition, obj: Json) -> Json:
        """An object in the version of `source` as it is kept. Raises `InternalError`."""
        conversion = source.conversion
        assert conversion is not None, "asked of the definition"
        (found,) = await self._convert(conversion, source, [obj], conversion.kept.version)
        return found

    # --- in -----------------------------------------------------------------------------------------------

    async def _to_kept(self, call: Call, conversion: Conversion, obj: Json) -> Json:
        definition = call.definition
        unknown = definition.schema.process(obj)
        if text := bodies.strict_errors(call, unknown, []):
            raise bodies.unreadable(call, definition.kind, definition.version, text)
        if errors := definition.schema.validate(obj):
            name = obj.get("metadata", {}).get("name", "")
            raise invalid_object(definition.group, definition.kind, name, errors)
        (converted,) = await self._convert(conversion, definition, [obj], conversion.kept.version)
        return converted

    async def _patch(self, backend: Backend, call: Call, conversion: Conversion, update: Verb) -> Response:
        media = content_type(call.request.headers)
        change = {JSON_PATCH: json_patch, MERGE: merge_patch}.get(media)
        if change is None:
            raise unsupported((JSON_PATCH, MERGE))
        for attempt in range(_ATTEMPTS):
            row = await backend.store.latest(call.key)
            if row is None:
                raise not_found(call.definition, call.route.name)
            stored = objects.decode_json(objects.whole(conversion.kept, row))
            (shown,) = await self._convert(conversion, conversion.kept, [stored], call.definition.version)
            wanted = bodies.read_json(call.request.body)
            patched = _patched(call, change, shown, wanted)
            sent = await self._to_kept(call, conversion, patched)
            answer = await update(backend, _inner(call, conversion, sent))
            if answer.status != 409 or attempt == _ATTEMPTS - 1 or b'"resourceVersion"' in call.request.body:
                break
        return answer

    # --- out ----------------------------------------------------------------------------------------------

    async def _answer(
        self, backend: Backend, call: Call, conversion: Conversion, answer: Response
    ) -> Response:
        if answer.status >= 400 or call.form.shape is Shape.PARTIAL:
            return answer
        if call.verb == "watch" and answer.stream is not None:
            return replace(answer, stream=self._events(backend, call, conversion, answer.stream))
        body = answer.body
        if answer.stream is not None:
            body = b"".join([chunk async for chunk in answer.stream])
        found: Json = objects.decode_json(body)
        if found.get("kind") == "Status":
            return replace(answer, body=body, stream=None)
        items = found.get("items", [found])
        shown = await self._convert(conversion, conversion.kept, items, call.definition.version)
        return Response(answer.status, forms.headers(call), _in_form(backend, call, found, shown))

    async def _events(
        self, backend: Backend, call: Call, conversion: Conversion, stream: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        first = True
        try:
            async for chunk in stream:
                lines = []
                for line in chunk.splitlines():
                    event = objects.decode_json(line)
                    if event["type"] != "ERROR":
                        obj = event["object"]
                        if event["type"] != "BOOKMARK":
                            (obj,) = await self._convert(
                                conversion, conversion.kept, [obj], call.definition.version
                            )
                        obj["apiVersion"] = call.definition.api_version
                        if call.form.shape is Shape.TABLE:
                            meta = {"resourceVersion": obj["metadata"]["resourceVersion"]}
                            event["object"] = msgspec.Raw(_table(backend, call, [obj], meta, columns=first))
                            first = False
                        else:
                            event["object"] = obj
                    lines.append(objects.encode_json(event) + b"\n")
                yield b"".join(lines)
        finally:
            if isinstance(stream, AsyncGenerator):
                await stream.aclose()

    # --- the webhook --------------------------------------------------------------------------------------

    async def _convert(
        self, conversion: Conversion, source: ResourceDefinition, given: list[Json], version: str
    ) -> list[Json]:
        """The objects in another version. Raises `InternalError`."""
        if not given:
            return []
        wanted = f"{source.group}/{version}"
        review, uid = _review_version(conversion), ids.new_uid()
        body = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{review}",
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": given},
        }
        who = f"conversion webhook for {source.api_version}, Kind={source.kind}"
        try:
            raw = await self._client.post(conversion.target, objects.encode_json(body), timeout_s=_TIMEOUT_S)
            converted = _converted(objects.decode_json(raw), uid, f"apiextensions.k8s.io/{review}")
        except (CallFailed, ValueError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InternalError(f"{who} failed: {error}") from None
        if len(converted) != len(given):
            raise InternalError(f"{who} returned {len(converted)} objects, expected {len(given)}")
        try:
            return [_checked(one, other, wanted) for one, other in zip(given, converted, strict=True)]
        except ValueError as error:
            raise InternalError(f"{who} returned invalid object: {error}") from None


def _review_version(conversion: Conversion) -> str:
    known = [version for version in conversion.review_versions if version in _KNOWN_REVIEWS]
    return known[0] if known else _KNOWN_REVIEWS[0]


def _converted(review: Any, uid: str, version: str) -> list[Any]:
    if type(review) is not dict or type(review.get("response")) is not dict:
        raise ValueError("no response provided")
    if (review.get("apiVersion"), review.get("kind")) != (version, "ConversionReview"):
        found = f"{review.get('apiVersion')}, Kind={review.get('kind')}"
        raise ValueError(f"expected webhook response of {version}, Kind=ConversionReview, got {found}")
    response = review["response"]
    if response.get("uid") != uid:
        raise ValueError(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    result = response.get("result") or {}
    if result.get("status") != "Success":
        status = f"response.result.status was '{result.get('status', '')}', not 'Success'"
        raise ValueError(result.get("message") or status)
    return list(response.get("convertedObjects") or ())


def _checked(given: Json, converted: Any, wanted: str) -> Json:
    """`converted` with the metadata of what it was made of; only labels and annotations may be others."""
    if type(converted) is not dict or type(converted.get("metadata")) is not dict:
        raise ValueError("missing metadata in converted object")
    if converted.get("apiVersion") != wanted:
        found = converted.get("apiVersion")
        raise ValueError(f"invalid groupVersion (expected {wanted}, received {found})")
    if converted.get("kind") != given["kind"]:
        raise ValueError(f"must have the same kind: {given['kind']} != {converted.get('kind')}")
    before, after = given["metadata"], converted["metadata"]
    for field, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if before.get(field, "") != after.get(field, ""):
            raise ValueError(f"must have the same {word}: {before.get(field, '')} != {after.get(field, '')}")
    kept = {field: value for field, value in before.items() if field not in ("labels", "annotations")}
    changed = {field: after[field] for field in ("labels", "annotations") if after.get(field)}
    return {**converted, "metadata": kept | changed}


# --- calls ------------------------------------------------------------------------------------------------


def _read(call: Call) -> Json:
    obj, duplicates = bodies.read_object(call)
    check_type(call, obj)
    if text := bodies.strict_errors(call, [], duplicates):
        raise bodies.unreadable(call, call.definition.kind, call.definition.version, text)
    if type(obj.setdefault("metadata", {})) is not dict:
        raise BadRequest("metadata must be an object")
    return obj


def _patched(call: Call, change: Callable[[Any, Any], Any], shown: Json, wanted: Any) -> Json:
    try:
        patched = change(shown, wanted)
    except (PatchMalformed, PatchFailed) as error:
        raise BadRequest(f"error decoding patch: {error}") from None
    if type(patched) is not dict or type(patched.get("metadata")) is not dict:
        raise BadRequest("the patched document is not an object")
    check_type(call, patched)
    return patched


def _inner(call: Call, conversion: Conversion, sent: Json | None = None) -> Call:
    """The call for the kept version. What its schema does not know is dropped without a word."""
    inner = replace(
        call,
        definition=conversion.kept,
        form=call.form if call.form.shape is Shape.PARTIAL else WHOLE,
        query={**call.query, "fieldValidation": "Ignore"},
    )
    if sent is None:
        return inner
    headers = {**call.request.headers, "content-type": JSON}
    method = "POST" if call.verb == "create" else "PUT"
    request = Request(method, call.request.target, headers, objects.encode_json(sent), call.request.user)
    return replace(inner, request=request, verb="create" if call.verb == "create" else "update")


def _in_form(backend: Backend, call: Call, found: Json, shown: list[Json]) -> bytes:
    is_list = "items" in found
    meta = found["metadata"] if is_list else {"resourceVersion": found["metadata"].get("resourceVersion", "")}
    if call.form.shape is Shape.TABLE:
        return _table(backend, call, shown, meta, columns=True)
    if is_list:
        return objects.encode_json({**found, "apiVersion": call.definition.api_version, "items": shown})
    return objects.encode_json(shown[0])


def _table(backend: Backend, call: Call, shown: list[Json], meta: Json, *, columns: bool) -> bytes:
    return tables.render(
        call.definition,
        [objects.encode_json(obj) for obj in shown],
        now=backend.clock.now(),
        include=call.query.get("includeObject") or "Metadata",
        metadata=objects.encode_json(meta),
        with_columns=columns,
        version=call.form.version,
    )
