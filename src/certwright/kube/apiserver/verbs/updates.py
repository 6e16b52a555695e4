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
from certwright.kube.apiserver.requests import bodies, forms
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
from certwright.kube.apiserver.verbs.creates import create_object, unstored
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
from certwright.kube.store.contract import Changed, Encode, Missing, Row
from certwright.kube.util.http_messages import Response

_log = logging.getLogger(__name__)

WRITE_ATTEMPTS = 100
"""Attempts of a read-modify-write without precondition. On etcd each failed attempt means that another write
of the object has succeeded, so this many concurrent writers all succeed (Kubernetes retries without limit,
`GuaranteedUpdate`)."""

Change = Callable[[Json], Json]
"""Makes the wanted object from the stored one, which it may change."""


class Wish(msgspec.Struct, frozen=True):
    """The change of a PUT or PATCH. `pinned`: only for the revision that it names.

    `applied` is the configuration of a server-side apply, which also creates. `owned`: the change itself
    updates the managed fields. `is_read`: its fields have been read, as with `read_fields`. `strict`: what a
    strict client is warned of in the patch itself. `shares`: the change leaves the stored object as it is,
    and its result contains parts of it.
    """

    change: Change
    pinned: bool
    refuse: Refuse
    applied: apply.Configuration | None = None
    owned: bool = False
    is_read: bool = False
    strict: Sequence[str] = ()
    shares: bool = False


async def update(backend: Backend, call: Call) -> Response:
    """PUT of an object or of its status: 200 with the object."""
    bodies.check(call)
    sent = await offload.run(call, _sent_object, call) if offload.is_long(call) else _sent_object(call)
    pinned = bool(sent["metadata"].get("resourceVersion"))
    # Each attempt shapes a separate object, so the body is read again for every attempt but the first.
    ready = [sent]

    def change(_: Json) -> Json:
        return ready.pop() if ready else _sent_object(call)

    return await modify(backend, call, Wish(change, pinned, refuse_body, is_read=True))


def _sent_object(call: Call) -> Json:
    """The object of a PUT, its fields read."""
    obj, repeats = bodies.read_object(call)
    check_type(call, obj, repeats)
    read_fields(call, obj, refuse_body, repeats)
    check_address(call, obj["metadata"])
    return obj


async def patch(backend: Backend, call: Call) -> Response:
    """PATCH of an object or of its status: 200 with the object."""
    is_long = offload.is_long(call)
    wish = await offload.run(call, patch_wish, backend, call) if is_long else patch_wish(backend, call)
    return await modify(backend, call, wish)


def check_media(call: Call) -> str:
    """The patch type of the request. Raises `UnsupportedMediaType`."""
    strategic = (STRATEGIC,) if call.definition.strategic is not None else ()
    accepted, media = (JSON_PATCH, MERGE, *strategic, APPLY), content_type(call.request.headers)
    if media not in accepted:
        raise unsupported(accepted)
    return media


def patch_wish(backend: Backend, call: Call) -> Wish:
    """The change that the body describes. Raises `UnsupportedMediaType`, `BadRequest` and `TooLarge`."""
    media, definition = check_media(call), call.definition
    if media == APPLY:
        return _apply_wish(backend, call)
    bodies.check(call)
    if media == JSON_PATCH:
        return _json_patch_wish(call)
    document, strict = _read_patch(call, strategic=media == STRATEGIC)
    if type(document) is not dict:
        return Wish(lambda _: _replaced_by_list(call), pinned=False, refuse=refuse_patch)
    meta = document.get("metadata")
    pinned = type(meta) is dict and bool(meta.get("resourceVersion"))
    if media == MERGE:
        merge = partial(merge_patch, patch=document)
    else:
        merge = partial(strategic_merge, patch=document, merge_keys=definition.strategic or {})
    # Objects of a built-in kind are changed in place.
    shares = media == MERGE and definition.custom
    return Wish(
        lambda old: _apply(call, lambda: merge(old)), pinned, refuse_patch, strict=strict, shares=shares
    )


def _read_patch(call: Call, *, strategic: bool) -> tuple[Any, list[str]]:
    """The value of a merge patch, an object or a list, and the warnings about fields that come twice in it.

    Raises `BadRequest`.
    """
    lax, body = bodies.field_validation(call) == "Ignore", call.request.body
    try:
        document = bodies.read_json(body, custom=call.definition.custom)
    except BadRequest as error:
        if strategic:
            raise
        raise BadRequest("Invalid JSON Patch" if lax else f"error decoding patch: {error}") from None
    if type(document) is dict:
        return document, bodies.repeats(call, document)
    if strategic and document is None:
        return {}, []
    if strategic or not (lax or document is None):
        text = wrong_type("the patch", "an object", document)
        raise BadRequest(text if strategic else f"error decoding patch: {text}")
    if type(document) is not list:
        raise BadRequest("Invalid JSON Patch")
    return document, []


def _replaced_by_list(call: Call) -> Json:
    """A merge patch that is a list replaces the object, which then is no object (RFC 7386 §2)."""
    raise refuse_patch(call, bodies.headless([]))


def _apply_wish(backend: Backend, call: Call) -> Wish:
    apply.check_options(call)
    config = apply.read_configuration(call)
    meta = config.value.get("metadata")
    pinned = type(meta) is dict and bool(meta.get("resourceVersion"))
    return Wish(lambda old: apply.apply(backend, call, config, old), pinned, refuse_patch, applied=config)


def _json_patch_wish(call: Call) -> Wish:
    body = call.request.body
    try:
        document = bodies.read_json(body, custom=call.definition.custom)
    except BadRequest as error:
        raise BadRequest(f"error decoding patch: {error}") from None
    if type(document) is list and len(document) > MAX_OPERATIONS:
        raise TooLarge(
            "Request entity too large: "
            f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(document)}"
        )
    pinned = type(document) is list and any(
        type(operation) is dict and operation.get("path") == "/metadata/resourceVersion"
        for operation in document
    )
    return Wish(
        # Values of the patch become part of the document, so every attempt needs a copy.
        lambda old: _apply(call, lambda: json_patch(_reachable(old, body), _operations(call))),
        pinned,
        refuse_patch,
        strict=_unknown_members(call, document),
    )


def _operations(call: Call) -> Any:
    # A `test` distinguishes 1.0 from 1.
    return bodies.read_json(call.request.body)


def _unknown_members(call: Call, operations: Any) -> list[str]:
    """Strict-mode errors of the operations themselves."""
    if bodies.field_validation(call) == "Ignore":
        return []
    errors = bodies.repeats(call, operations)
    for index, operation in enumerate(operations if type(operations) is list else ()):
        names = operation if type(operation) is dict else ()
        errors += [f'unknown field "[{index}].{name}"' for name in names if name not in _OPERATION_MEMBERS]
    return [f"json patch {text}" for text in errors]


_OPERATION_MEMBERS = frozenset({"op", "path", "from", "value"})


def _reachable(old: Json, body: bytes) -> Json:
    """The document for a JSON patch, its managed fields as values where an operation may reach them."""
    if b"managedFields" in body or b'"/metadata"' in body or b'""' in body or b"\\" in body:
        return objects.with_managed_fields(old)
    return old


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


async def modify(backend: Backend, call: Call, wish: Wish) -> Response:
    """Read, change, write; retry on a conflict unless the client named a revision.

    The first attempt is made on a recent row, where the store has one: as the write is conditional, only a
    refusal needs the current row (as kube-apiserver's `GuaranteedUpdate` does with its cached object).
    """
    definition, key = call.definition, call.key
    recent = None if call.dry_run else backend.store.recent(key)
    for _ in range(WRITE_ATTEMPTS):
        guess, recent = recent, None
        row = guess or await backend.store.latest(key)
        if row is None:
            try:
                return await _create_absent(backend, call, wish)
            except AlreadyExists:
                continue
        try:
            written = await _write_over(backend, call, wish, row)
        except Changed:
            if wish.pinned:
                break
            continue
        except Missing:
            raise not_found(definition, key.name) from None
        except ApiError:
            if guess is None or await backend.is_current(guess):
                raise
            continue
        return forms.object_response(call, written, backend.clock)
    raise conflict(definition, key.name)


async def _write_over(backend: Backend, call: Call, wish: Wish, row: Row) -> Row:
    """Change a row and write it; the row as it is then. Raises `Changed`, `Missing`, `ApiError`."""
    is_long = offload.is_long(call, row)
    work = backend, call, wish, row
    old, new = await offload.run(call, _changed, *work) if is_long else _changed(*work)
    if await backend.admission.mutate(call, new, old, operation="UPDATE"):
        new = shape_update(call, new, old, wish.refuse, admitted=True)
    await backend.admission.validate(call, new, old, operation="UPDATE", is_long=is_long)
    return await _store_update(backend, call, new, old, row, is_long=is_long)


def _changed(backend: Backend, call: Call, wish: Wish, row: Row) -> tuple[Json, Json]:
    """The stored object, and the wanted one, shaped."""
    old = objects.to_object(call.definition, row)
    new, is_accepted = _wished(call, wish, row, old)
    check_preconditions(call, new, old, row)
    if wish.applied is not None or wish.owned:
        return old, shape_update(call, new, old, wish.refuse)
    track = partial(managed.on_update, backend, call)
    if call.verb != "patch":
        return old, shape_update(call, new, old, wish.refuse, track, is_read=wish.is_read)

    def refuse(_: Call, text: str) -> ApiError:
        # Shaping changes the patch's result, which the message shows, so the patch is applied again.
        return refuse_patched(call, wish.change(objects.to_object(call.definition, row)), text)

    read_fields(call, new, refuse, wish.strict, is_accepted=is_accepted)
    return old, shape_update(call, new, old, refuse, track, is_read=True, is_accepted=is_accepted)


def _wished(call: Call, wish: Wish, row: Row, old: Json) -> tuple[Json, bool]:
    """The wanted object, and whether it has passed its schema.

    It contains parts of `old` only where nothing but its metadata is going to be changed in place.
    """
    definition = call.definition
    if wish.shares:
        new = wish.change(old)
        if type(new.get("metadata")) is dict and definition.schema.is_accepted(new):
            new["metadata"] = dict(new["metadata"])
            return new, True
    return wish.change(objects.to_object(definition, row)), False


async def _create_absent(backend: Backend, call: Call, wish: Wish) -> Response:
    """Create a missing object of an apply, or of a PUT where its kind allows that.

    Raises `NotFound` for any other missing object, and `Forbidden` where the user may not create.
    """
    definition, route, is_long = call.definition, call.route, offload.is_long(call)
    by_put = call.verb == "update" and definition.create_on_update
    if route.subresource or (wish.applied is None and not by_put):
        raise not_found(definition, route.name)
    if wish.applied is not None:
        work = backend, call, wish.applied, None
        new = await offload.run(call, apply.apply, *work) if is_long else apply.apply(*work)
        check_new(call, new)
        inner = call
    else:
        new = wish.change({})
        if uid := new["metadata"].get("uid"):
            raise other_uid(call, uid, "")
        new["metadata"].pop("resourceVersion", None)
        inner = replace(call, verb="create")
    action = Action("create", route.group, route.plural, "", route.namespace, route.name)
    backend.authorizer.require(call.user, action)
    row = await create_object(backend, inner, new, is_long=is_long)
    return forms.object_response(call, row, backend.clock, code=201)


async def _store_update(
    backend: Backend, call: Call, new: Json, old: Json, row: Row, *, is_long: bool
) -> Row:
    """Write `new` over `row`, or remove it when the last finalizer of a terminating object is removed."""
    definition = call.definition
    if definition.custom:
        definition.schema.complete(new)
    keep_times(new, old)
    if call.dry_run:
        return unstored(row.key, new)
    columns, is_same = await offload.run(call, _laid_down, new, old) if is_long else _laid_down(new, old)
    if is_same and objects.is_as_kept(definition, row, new):
        committed = await backend.store.get(row.key)
        # Uncommitted state must not be shown, so it is written again, and the commit awaited.
        if committed is not None and committed.revision == row.revision:
            return row
    call.require_client()
    if is_released(new):
        # The change that removes the last finalizer is never stored: watchers see the object as it was, and
        # the answer shows the change at the revision that it was made on.
        await backend.delete(definition, row, objects.last_words(row))
        return Row(row.key, row.revision, *columns(row.revision))
    return await backend.put(definition, row.key, columns, previous=row)


def _laid_down(new: Json, old: Json) -> tuple[Encode, bool]:
    """`new` encoded for the store, and whether it equals `old`. Raises `TooLarge`."""
    return objects.columns(new), same(new, old)
