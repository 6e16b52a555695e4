"""Update and patch: from a request body to one write in the store.

Every write takes the same steps: read → shape (unknown fields, defaults, what the server sets) → admission →
the store, which decides conflicts. Source: Kubernetes API conventions; apiserver `pkg/registry/rest`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from certwright.kube.api.errors import AlreadyExists, ApiError, BadRequest, Details, Invalid, TooLarge
from certwright.kube.apiserver.base.json_values import Json, same, wrong_type
from certwright.kube.apiserver.fieldmanager import apply, managed
from certwright.kube.apiserver.fieldmanager.entries import keep_times
from certwright.kube.apiserver.model import objects, offload
from certwright.kube.apiserver.model.backend import Backend, Call, conflict, not_found
from certwright.kube.apiserver.model.negotiation import content_type, unsupported
from certwright.kube.apiserver.model.routes import Action
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests import bodies
from certwright.kube.apiserver.requests.patch import (
    APPLY,
    JSON_PATCH,
    MAX_OPERATIONS,
    MERGE,
    STRATEGIC,
    PatchFailed,
    PatchMalformed,
    json_patch,
    merge_patch,
    strategic_merge,
)
from certwright.kube.apiserver.verbs.creates import create_object
from certwright.kube.apiserver.verbs.shaping import (
    Refuse,
    check_address,
    check_new,
    check_preconditions,
    check_type,
    is_released,
    other_uid,
    read_fields,
    refuse_body,
    refuse_patch,
    refuse_patched,
    shape_update,
)
from certwright.kube.store.contract import Changed, Missing, Row
from certwright.kube.util.http_messages import Response

_log = logging.getLogger(__name__)

WRITE_ATTEMPTS = 100
"""Attempts of a read-modify-write without precondition. On etcd each failed attempt means that another write
of the object has succeeded, so this many concurrent writers all succeed (Kubernetes retries without limit,
`GuaranteedUpdate`)."""

Change = Callable[[Json], Json]
"""Makes the new object from the stored one, which it may change."""


class Update(msgspec.Struct, frozen=True):
    """The change of a PUT or PATCH. `pinned`: only for the revision that it names.

    `applied` is the configuration of a server-side apply, which also creates. `owned`: the change itself
    updates the managed fields. `is_read`: its fields have been read, as with `read_fields`. `strict`: the
    errors of strict field validation in the patch itself.
    """

    change: Change
    pinned: bool
    refuse: Refuse
    applied: apply.Configuration | None = None
    owned: bool = False
    is_read: bool = False
    strict: Sequence[str] = ()


async def update(backend: Backend, call: Call) -> Response:
    """PUT of an object or of its status: 200 with the object."""
    bodies.check(call)
    sent = await offload.run(call, _read_object, call)
    pinned = bool(sent["metadata"].get("resourceVersion"))
    # Each attempt shapes a separate object, so the body is read again for every attempt but the first.
    ready = [sent]

    def change(_: Json) -> Json:
        return ready.pop() if ready else _read_object(call)

    return await modify(backend, call, Update(change, pinned, refuse_body, is_read=True))


def _read_object(call: Call) -> Json:
    obj, repeats = bodies.read_object(call)
    check_type(call, obj, repeats)
    read_fields(call, obj, refuse_body, repeats)
    check_address(call, obj["metadata"])
    return obj


async def patch(backend: Backend, call: Call) -> Response:
    """PATCH of an object or of its status: 200 with the object."""
    return await modify(backend, call, await offload.run(call, read_patch, backend, call))


def check_media(call: Call) -> str:
    """The patch type of the request. Raises `UnsupportedMediaType`."""
    strategic = (STRATEGIC,) if call.definition.strategic is not None else ()
    accepted, media = (JSON_PATCH, MERGE, *strategic, APPLY), content_type(call.request.headers)
    if media not in accepted:
        raise unsupported(accepted)
    return media


def read_patch(backend: Backend, call: Call) -> Update:
    """The change that the body describes. Raises `UnsupportedMediaType`, `BadRequest` and `TooLarge`."""
    media = check_media(call)
    if media == APPLY:
        bodies.check(call, applies=True)
        config = apply.read_configuration(call)
        pinned = _names_revision(config.value)
        return Update(
            lambda old: apply.apply(backend, call, config, old), pinned, refuse_patch, applied=config
        )
    bodies.check(call)
    return _read_json_patch(call) if media == JSON_PATCH else _read_merge_patch(call, media)


def _names_revision(document: Json) -> bool:
    meta = document.get("metadata")
    return type(meta) is dict and bool(meta.get("resourceVersion"))


def _read_merge_patch(call: Call, media: str) -> Update:
    """A merge patch, of RFC 7386 or strategic."""
    definition, strategic = call.definition, media == STRATEGIC
    lax = bodies.field_validation(call) == "Ignore"
    try:
        document = bodies.read_json(call.request.body, custom=definition.custom)
    except BadRequest as error:
        if strategic:
            raise
        raise BadRequest("Invalid JSON Patch" if lax else f"error decoding patch: {error}") from None
    if strategic and document is None:
        document = {}
    if type(document) is not dict:
        if strategic or not (lax or document is None):
            text = wrong_type("the patch", "an object", document)
            raise BadRequest(text if strategic else f"error decoding patch: {text}")
        if type(document) is not list:
            raise BadRequest("Invalid JSON Patch")

        def replace_by_list(_: Json) -> Json:
            # A list replaces the object, which then is no object (RFC 7386 §2).
            raise refuse_patch(call, bodies.headless([]))

        return Update(replace_by_list, pinned=False, refuse=refuse_patch)
    if strategic:
        assert definition.strategic is not None, "any other kind refuses the media type"
        merge = partial(strategic_merge, patch=document, merge_keys=definition.strategic())
    else:
        merge = partial(merge_patch, patch=document)
    return Update(
        lambda old: _apply(call, lambda: merge(old)),
        _names_revision(document),
        refuse_patch,
        strict=bodies.repeats(call, document),
    )


def _read_json_patch(call: Call) -> Update:
    body = call.request.body
    try:
        document = bodies.read_json(body, custom=call.definition.custom)
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error}") from None
    operations = document if type(document) is list else []
    if len(operations) > MAX_OPERATIONS:
        raise TooLarge(
            "Request entity too large: "
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(operations)}"
        )
    strict: list[str] = []
    if bodies.field_validation(call) != "Ignore":
        strict = bodies.repeats(call, document)
        for index, operation in enumerate(operations):
            names = operation if type(operation) is dict else ()
            strict += [
                f'unknown field "[{index}].{name}"' for name in names if name not in _OPERATION_MEMBERS
            ]
    # Where an operation may reach the managed fields, they must be values.
    reaches_managed = any(part in body for part in (b"managedFields", b'"/metadata"', b'""', b"\\"))

    def change(old: Json) -> Json:
        target = objects.with_managed_fields(old) if reaches_managed else old
        # Values of the patch become part of the document, so every attempt reads the patch again; and in the
        # form in which a `test` distinguishes 1.0 from 1.
        return _apply(call, lambda: json_patch(target, bodies.read_json(body)))

    return Update(
        change,
        any(type(each) is dict and each.get("path") == "/metadata/resourceVersion" for each in operations),
        refuse_patch,
        strict=[f"json patch {text}" for text in strict],
    )


_OPERATION_MEMBERS = frozenset({"op", "path", "from", "value"})


def _apply(call: Call, work: Callable[[], Any]) -> Json:
    try:
        patched = work()
    except PatchMalformed as error:
        raise BadRequest(f"error decoding patch: {error}") from None
    except PatchFailed as error:
        # Kubernetes does not report the cause; the log does.
        _log.debug("patch of %s: %s", call.route.name, error)
        raise Invalid(
            "the server rejected our request due to an error in our request", details=Details()
        ) from None
    if type(patched) is not dict:
        raise Invalid("the server rejected our request due to an error in our request", details=Details())
    check_type(call, patched)
    obj: Json = patched
    return obj


async def modify(backend: Backend, call: Call, update: Update) -> Response:
    """Read, change, write; retry on a conflict unless the client named a revision.

    The first attempt is made on a recent row, where the store has one: as the write is conditional, only a
    refusal needs the current row (as kube-apiserver's `GuaranteedUpdate` does with its cached object).
    """
    definition, key = call.definition, call.key
    recent = None if call.dry_run else backend.store.recent(key)
    for _ in range(WRITE_ATTEMPTS):
        guess, recent = recent, None
        row = call.stored = guess or await backend.store.latest(key)
        if row is None:
            try:
                return await _create_absent(backend, call, update)
            except AlreadyExists:
                continue
        try:
            old, new = await offload.run(call, _changed, backend, call, update, row)
            if await backend.admission.mutate(call, new, old, operation="UPDATE"):
                new = shape_update(call, new, old, update.refuse, admitted=True)
            await backend.admission.validate(call, new, old, operation="UPDATE")
            written = await _store_update(backend, call, new, old, row)
        except Changed:
            if update.pinned:
                break
            continue
        except Missing:
            raise not_found(definition, key.name) from None
        except ApiError:
            if guess is None or await backend.is_current(guess):
                raise
            continue
        return responses.object_response(call, written, backend.clock)
    raise conflict(definition, key.name)


def _changed(backend: Backend, call: Call, update: Update, row: Row) -> tuple[Json, Json]:
    """The stored object, and the changed one, shaped."""
    definition = call.definition
    old = objects.to_object(definition, row)
    new = update.change(objects.to_object(definition, row))
    check_preconditions(call, new, old, row)
    if update.applied is not None or update.owned:
        return old, shape_update(call, new, old, update.refuse)
    track = partial(managed.on_update, backend, call)
    if call.verb != "patch":
        return old, shape_update(call, new, old, update.refuse, track, is_read=update.is_read)

    def refuse(_: Call, text: str) -> ApiError:
        # Shaping changes the patch's result, which the message shows, so the patch is applied again.
        return refuse_patched(call, update.change(objects.to_object(definition, row)), text)

    read_fields(call, new, refuse, update.strict)
    return old, shape_update(call, new, old, refuse, track, is_read=True)


async def _create_absent(backend: Backend, call: Call, update: Update) -> Response:
    """Create a missing object of an apply, or of a PUT where its kind allows that.

    Raises `NotFound` for any other missing object, and `Forbidden` where the user may not create.
    """
    definition, route = call.definition, call.route
    by_put = call.verb == "update" and definition.create_on_update
    if route.subresource or (update.applied is None and not by_put):
        raise not_found(definition, route.name)
    if update.applied is not None:
        new = await offload.run(call, apply.apply, backend, call, update.applied, None)
        check_new(call, new)
        inner = call
    else:
        new = update.change({})
        if uid := new["metadata"].get("uid"):
            raise other_uid(call, uid, "")
        new["metadata"].pop("resourceVersion", None)
        inner = replace(call, verb="create")
    action = Action("create", route.group, route.plural, "", route.namespace, route.name)
    backend.authorizer.require(call.user, action)
    row = await create_object(backend, inner, new)
    return responses.object_response(call, row, backend.clock, code=201)


async def _store_update(backend: Backend, call: Call, new: Json, old: Json, row: Row) -> Row:
    """Write `new` over `row`, or remove it when the last finalizer of a terminating object is removed."""
    definition = call.definition
    if definition.custom:
        definition.schema.complete(new)
    keep_times(new, old)
    if call.dry_run:
        return objects.unstored(row.key, new)
    columns, is_same = await offload.run(call, lambda: (objects.columns(new), same(new, old)))
    if is_same and objects.is_as_kept(definition, row, new):
        committed = await backend.store.get(row.key)
        # The equal row may not be committed yet. Then it must not be returned: it is written again.
        if committed is not None and committed.revision == row.revision:
            return row
    call.require_client()
    if is_released(new):
        # The change that removes the last finalizer is never stored: watchers see the object before it, and
        # the answer shows the change at the object's old revision.
        await backend.delete(definition, row, objects.tombstone(row))
        return Row(row.key, row.revision, *columns(row.revision))
    return await backend.put(definition, row.key, columns, previous=row)
