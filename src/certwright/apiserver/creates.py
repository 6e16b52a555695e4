"""Create: from a body to a new object, under a name that is free.

Every write takes the same way: read → shape (unknown fields, defaults, what the server sets) → admission →
the store, which decides conflicts. Source: Kubernetes API conventions; KEP-4420 (retry of generateName).
"""

from __future__ import annotations

from certwright.apiserver import admission, bodies, forms, metadata, objects
from certwright.apiserver.backend import Backend, Call, already_exists
from certwright.apiserver.objects import Json
from certwright.apiserver.shaping import check_type
from certwright.kit import ids
from certwright.kit.exchange import Response
from certwright.resources.errors import AlreadyExists, BadRequest, Details
from certwright.store.contract import Exists, Key, Row

NAME_ATTEMPTS = 8
"""How many generated names are tried (KEP-4420: the first and seven more)."""
_MAX_PREFIX = 58  # 63 less the five characters of the suffix


async def create(backend: Backend, call: Call) -> Response:
    """POST to a collection: 201 with the object."""
    definition = call.definition
    obj, duplicates = bodies.read_object(call)
    check_type(call, obj)
    unknown = metadata.clean(definition, obj)
    if definition.status_subresource:
        obj.pop("status", None)
    unknown += definition.schema.process(obj)
    if text := bodies.strict_errors(call, unknown, duplicates):
        raise bodies.unreadable(call, definition.kind, definition.version, text)
    _place(call, obj["metadata"])
    row = await _create(backend, call, obj)
    return forms.one(call, row, now=backend.clock.now(), code=201)


def _place(call: Call, meta: Json) -> None:
    """Put the object into the namespace of the path."""
    if not call.definition.namespaced:
        meta.pop("namespace", None)
        return
    if not call.route.namespace:
        raise BadRequest("an empty namespace may not be set during creation")
    if meta.setdefault("namespace", call.route.namespace) != call.route.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


async def _create(backend: Backend, call: Call, obj: Json) -> Row:
    definition, meta = call.definition, obj["metadata"]
    generated = not meta.get("name") and bool(meta.get("generateName"))
    if definition.namespaced:
        await backend.namespaces.check_create(definition, call.route.namespace, meta.get("name", ""))
    metadata.begin(meta, uid=ids.new_uid(), now=backend.timestamp(), has_generation=definition.has_generation)
    if generated:
        _generate_name(backend, meta)
    admission.check_shape(definition, obj, None)
    definition.strategy.prepare_create(obj)
    admission.mutate(definition, call.user, obj, None)
    if not generated:
        return await _store_new(backend, call, obj)
    return await _store_generated(backend, call, obj)


def _generate_name(backend: Backend, meta: Json) -> None:
    meta["name"] = meta["generateName"][:_MAX_PREFIX] + backend.name_suffix()


async def _store_generated(backend: Backend, call: Call, obj: Json) -> Row:
    """Store under the generated name, and under another one while the name is taken (KEP-4420)."""
    for attempt in range(NAME_ATTEMPTS):
        if attempt:
            _generate_name(backend, obj["metadata"])
        try:
            return await _store_new(backend, call, obj)
        except AlreadyExists:
            continue
    definition, name = call.definition, obj["metadata"]["name"]
    raise AlreadyExists(
        f'{definition.resource} "{name}" already exists, '
        "the server was not able to generate a unique name for the object",
        details=Details(name=name, group=definition.group, kind=definition.plural, retry_after_seconds=1),
    )


async def _store_new(backend: Backend, call: Call, obj: Json) -> Row:
    definition = call.definition
    admission.validate(definition, obj, None)
    key = Key(
        definition.bucket, call.route.namespace if definition.namespaced else "", obj["metadata"]["name"]
    )
    if call.dry_run:
        if await backend.store.latest(key) is not None:
            raise already_exists(definition, key.name)
        return unstored(key, obj)
    try:
        return await backend.put(definition, key, objects.columns(obj), previous=None)
    except Exists:
        raise already_exists(definition, key.name) from None


def unstored(key: Key, obj: Json) -> Row:
    """What a dry run answers: the row that would have been written."""
    return Row(key, 0, objects.encode_json(obj["metadata"]), objects.body_of(obj))
