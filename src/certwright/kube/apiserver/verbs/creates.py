"""Create: from a request body to a new object under a free name.

Every write takes the same steps: read → shape (unknown fields, defaults, what the server sets) → admission →
the store, which decides conflicts. Source: Kubernetes API conventions; KEP-4420 (retry of generateName).
"""

from __future__ import annotations

import logging

from certwright.kube.api import naming
from certwright.kube.api.errors import AlreadyExists, ApiError, BadRequest, Details
from certwright.kube.apiserver.base import metadata
from certwright.kube.apiserver.base.features import NAME_GENERATION_LOOK_AHEAD, NAME_GENERATION_RETRIES
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.fieldmanager import managed
from certwright.kube.apiserver.model import objects, offload
from certwright.kube.apiserver.model.backend import Backend, Call, already_exists, is_terminating
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests import bodies
from certwright.kube.apiserver.verbs.shaping import (
    check_shape,
    check_type,
    drop_duplicate_owners,
    drop_nulls,
    read_fields,
    refuse_body,
    warn,
)
from certwright.kube.store.contract import Exists, Row
from certwright.kube.util.http_messages import Response

_log = logging.getLogger(__name__)

NAME_ATTEMPTS = 8
"""How many generated names are tried (KEP-4420: the first and seven more)."""
_MAX_PREFIX = 58  # 63 less the five characters of the suffix


async def create(backend: Backend, call: Call) -> Response:
    """POST to a collection: 201 with the object."""
    bodies.check_media(call)
    bodies.check(call)
    row = await _create(backend, call, await offload.run(call, _read, call))
    return responses.object_response(call, row, backend.clock, code=201)


def _read(call: Call) -> Json:
    obj, repeats = bodies.read_object(call)
    check_type(call, obj, repeats)
    _decode_body(call, obj, repeats)
    return obj


async def create_object(backend: Backend, call: Call, obj: Json) -> Row:
    """Shape a new object, pass it through admission and store it."""
    await offload.run(call, _decode_body, call, obj, [])
    return await _create(backend, call, obj)


def _decode_body(call: Call, obj: Json, repeats: list[str]) -> None:
    """Decode the fields of the request body, and drop what no client may set.

    `repeats`: the errors about fields that came twice, for strict field validation.
    """
    read_fields(call, obj, refuse_body, repeats)
    if call.verb != "patch":
        metadata.wipe(obj["metadata"])
    _set_namespace(call, obj["metadata"])
    if call.verb != "patch":
        drop_duplicate_owners(call, obj["metadata"], admitted=False)


def _set_namespace(call: Call, meta: Json) -> None:
    """Set the namespace to the path's. Raises `BadRequest` for another namespace."""
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
    if definition.namespaced:
        await backend.namespaces.check_create(definition, call.route.namespace, meta.get("name", ""))
    if definition.custom:
        # Fields that admission adds have no field manager, as in Kubernetes.
        await offload.run(call, managed.on_create, backend, call, obj)
    if await backend.admission.mutate(call, obj, None, operation="CREATE"):
        _set_namespace(call, obj["metadata"])
    generated = await offload.run(call, _shape, backend, call, obj)
    try:
        return await _store_new(backend, call, obj)
    except ApiError as error:
        is_retried = generated and backend.gates.enabled(NAME_GENERATION_RETRIES)
        if not is_retried or not _is_taken(error):
            raise
        return await _store_renamed(backend, call, obj, error)


def _shape(backend: Backend, call: Call, obj: Json) -> bool:
    """The steps between admission and the store; whether the name was generated. Raises `Invalid`."""
    definition, meta = call.definition, obj["metadata"]
    drop_duplicate_owners(call, meta, admitted=True)
    if definition.status_subresource:
        obj.pop("status", None)
    metadata.begin(
        meta, uid=naming.new_uid(), now=backend.timestamp(), has_generation=definition.has_generation
    )
    generated = not meta.get("name") and bool(meta.get("generateName"))
    if generated:
        _generate_name(backend, meta)
    check_shape(definition, obj, None)
    drop_nulls(call, obj)
    warn(call, metadata.warnings(definition, meta, None))
    definition.strategy.prepare_create(obj)
    definition.strategy.defaults(obj)
    if definition.strategy.identify is not None:
        definition.strategy.identify(obj, call.user)
    if not definition.custom:
        # Preparation has set the defaults of built-in kinds.
        managed.on_create(backend, call, obj)
    return generated


def _generate_name(backend: Backend, meta: Json) -> None:
    # Go cuts bytes; half a character is left out here.
    prefix = meta["generateName"].encode(errors="replace")[:_MAX_PREFIX].decode(errors="ignore")
    meta["name"] = prefix + backend.name_suffix()


def _is_taken(error: ApiError) -> bool:
    """Whether another generated name may succeed: the store has the name, or a validating webhook denies it
    with this reason, as in Kubernetes (apiserver `Store.createWithGenerateNameRetry`)."""
    return error.reason == AlreadyExists.default_reason


async def _store_renamed(backend: Backend, call: Call, obj: Json, taken: ApiError) -> Row:
    """Store under another generated name, because of `taken` for the first one (KEP-4420).

    Schema, CEL rules, name rules and validating admission run for each name that may be free; mutating
    admission does not. A name that the store is seen to have costs a lookup instead of a validation, and
    counts as an attempt. Raises the error of the last attempt.
    """
    definition, meta = call.definition, obj["metadata"]
    looks_ahead = backend.gates.enabled(NAME_GENERATION_LOOK_AHEAD)

    def validate_again() -> None:
        check_shape(definition, obj, None)
        definition.strategy.prepare_create(obj)  # some of it follows from the name

    for attempt in range(2, NAME_ATTEMPTS + 1):
        _log.debug(
            "%s %s: the generated name is taken; attempt %d of %d",
            definition.resource, meta["name"], attempt, NAME_ATTEMPTS,
        )  # fmt: skip
        call.retries += 1
        _generate_name(backend, meta)
        key = call.key._replace(name=meta["name"])
        if looks_ahead and (current := await backend.store.latest(key)) is not None:
            taken = _taken(definition, meta, current)
            continue
        await offload.run(call, validate_again)
        try:
            return await _store_new(backend, call, obj)
        except ApiError as error:
            if not _is_taken(error):
                raise
            taken = error
    raise taken


def _taken(definition: ResourceDefinition, meta: Json, current: Row) -> AlreadyExists:
    """The 409 of a create, in Kubernetes' words (apiserver `rest.CheckGeneratedNameError`).

    The message blames the server whenever there is a `generateName`, also where the client chose the name.
    """
    error = already_exists(definition, meta["name"])
    if meta.get("generateName"):
        error = AlreadyExists(
            f"{error.message}, the server was not able to generate a unique name for the object",
            details=Details(
                name=meta["name"], group=definition.group, kind=definition.plural, retry_after_seconds=1
            ),
        )
    if is_terminating(current):
        return AlreadyExists(f"object is being deleted: {error.message}", details=error.details)
    return error


async def _store_new(backend: Backend, call: Call, obj: Json) -> Row:
    """Validate and store. Raises `AlreadyExists` where the name is taken, and what admission raises."""
    await backend.admission.validate(call, obj, None, operation="CREATE")
    if call.definition.custom:
        call.definition.schema.complete(obj)
    key = call.key._replace(name=obj["metadata"]["name"])
    if call.dry_run:
        if (current := await backend.store.latest(key)) is not None:
            raise _taken(call.definition, obj["metadata"], current)
        return objects.unstored(key, obj)
    sent = obj["metadata"].get("resourceVersion", "")
    is_revision = sent.isascii() and sent.isdecimal() and len(sent) <= 20 and 0 < int(sent) < 2**64
    if call.verb != "patch" and is_revision:
        # An apply that creates may name the revision of a deleted object.
        raise ApiError("resourceVersion should not be set on objects to be created")
    columns = await offload.run(call, objects.columns, obj)
    call.require_client()
    try:
        return await backend.put(call.definition, key, columns, previous=None)
    except Exists as error:
        raise _taken(call.definition, obj["metadata"], error.current) from None
