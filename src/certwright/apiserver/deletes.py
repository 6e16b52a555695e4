"""Delete: at once, or marked and held until the last finalizer is taken away.

Source: Kubernetes documentation, "Finalizers"; API reference, DeleteOptions v1 meta.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from certwright.apiserver import bodies, forms, objects
from certwright.apiserver.backend import Backend, Call, conflict, not_found
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.matching import Matcher
from certwright.apiserver.namespaces import BUCKET as NAMESPACES
from certwright.apiserver.namespaces import IMMORTAL
from certwright.apiserver.negotiation import JSON, YAML, content_type, unsupported
from certwright.apiserver.objects import Json
from certwright.apiserver.reads import CHUNK
from certwright.apiserver.routes import is_true
from certwright.apiserver.verbs import WRITE_ATTEMPTS
from certwright.kit.exchange import Response
from certwright.resources.errors import BadRequest, Details, Forbidden
from certwright.store.contract import Changed, Missing, Row

CRD_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
"""The finalizer that keeps a CustomResourceDefinition until its objects are gone."""
_TOGETHER = 64  # deletions under way at the same time: they share commits


class Preconditions(msgspec.Struct, rename="camel"):
    """What must be true of the object that is deleted."""

    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """The body of a DELETE."""

    preconditions: Preconditions = msgspec.field(default_factory=Preconditions)
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    grace_period_seconds: int | None = None
    dry_run: list[str] | None = None

    @property
    def orphan(self) -> bool:
        """Whether dependents are to stay, without this owner."""
        return self.propagation_policy == "Orphan" or self.orphan_dependents is True


_POLICIES = ("Foreground", "Background", "Orphan")


def read_options(call: Call) -> DeleteOptions:
    """The options, from the body and the query. Raises `BadRequest` and `UnsupportedMediaType`."""
    options = _options_of_body(call)
    options.propagation_policy = options.propagation_policy or call.query.get("propagationPolicy")
    if "orphanDependents" in call.query:
        options.orphan_dependents = is_true(call.query, "orphanDependents")
    policy = options.propagation_policy
    if policy and policy not in _POLICIES:
        raise BadRequest(
            f'propagationPolicy: Unsupported value: "{policy}": supported values: {", ".join(_POLICIES)}'
        )
    if call.dry_run:
        options.dry_run = ["All"]
    if options.dry_run not in (None, [], ["All"]):
        raise BadRequest('dryRun: Unsupported value: supported values: "All"')
    return options


def _options_of_body(call: Call) -> DeleteOptions:
    if not call.request.body:
        return DeleteOptions()
    media = content_type(call.request.headers)
    if media not in (JSON, YAML):
        raise unsupported((JSON, YAML))
    value: Any = bodies.read_value(call.request.body, media)
    if type(value) is not dict or value.get("kind", "DeleteOptions") != "DeleteOptions":
        raise BadRequest("the body of a DELETE must be of kind DeleteOptions")
    try:
        return msgspec.convert(
            {name: item for name, item in value.items() if item is not None}, DeleteOptions
        )
    except msgspec.ValidationError as error:
        raise BadRequest(f"DeleteOptions: {error}") from None


async def delete(backend: Backend, call: Call) -> Response:
    """DELETE of an object: a `Status` when it is gone, the object while finalizers hold it."""
    options, definition, name = read_options(call), call.definition, call.route.name
    _check_mortal(definition, name)
    for _ in range(WRITE_ATTEMPTS):
        row = await backend.store.latest(call.key)
        if row is None:
            raise not_found(definition, name)
        _check_preconditions(call, options, row)
        try:
            last, gone = await _delete_row(backend, call, row, options)
        except Changed:
            continue
        except Missing:
            raise not_found(definition, name) from None
        if (
            gone and definition.plural != "serviceaccounts"
        ):  # its storage answers with the object, as for Pods
            return forms.success(call, name=name, uid=objects.uid_of(last.meta))
        return forms.one(call, last, now=backend.clock.now())
    raise conflict(definition, name)


def _check_mortal(definition: ResourceDefinition, name: str) -> None:
    if definition.bucket == NAMESPACES and name in IMMORTAL:
        raise Forbidden(
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            details=Details(name=name, kind="namespaces"),
        )


def _check_preconditions(call: Call, options: DeleteOptions, row: Row) -> None:
    wanted = options.preconditions
    if wanted.uid is None and wanted.resource_version is None:
        return
    uid, version = objects.uid_of(row.meta), str(row.revision)
    if wanted.uid is not None and wanted.uid != uid:
        detail = f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {uid}"
        raise conflict(call.definition, call.route.name, detail)
    if wanted.resource_version is not None and wanted.resource_version != version:
        detail = (
            f"Precondition failed: ResourceVersion in precondition: {wanted.resource_version}, "
            f"ResourceVersion in object meta: {version}"
        )
        raise conflict(call.definition, call.route.name, detail)


async def _delete_row(backend: Backend, call: Call, row: Row, options: DeleteOptions) -> tuple[Row, bool]:
    definition = call.definition
    await backend.admission.deleting(call, row)
    if options.dry_run:
        return row, not _holders(definition, objects.to_metadata(row))
    if options.orphan:
        await backend.dependents.orphan(objects.uid_of(row.meta))
    return await remove(backend, definition, row)


def _holders(definition: ResourceDefinition, meta: Json) -> bool:
    """Whether somebody must first clean up."""
    return bool(meta.get("finalizers")) or definition.bucket == NAMESPACES or definition.is_crd


async def remove(backend: Backend, definition: ResourceDefinition, row: Row) -> tuple[Row, bool]:
    """Delete the object of `row`, or mark it for deletion while something holds it.

    Returns its last state and whether it is gone. Raises `Changed` and `Missing`.
    """
    meta = objects.to_metadata(row)
    if not _holders(definition, meta):
        return await backend.delete(definition, row, objects.last_words(row)), True
    if "deletionTimestamp" in meta:
        return row, False
    obj = objects.to_object(definition, row)
    _mark(backend, definition, obj)
    return await backend.put(definition, row.key, objects.columns(obj), previous=row), False


def _mark(backend: Backend, definition: ResourceDefinition, obj: Json) -> None:
    meta = obj["metadata"]
    meta["deletionTimestamp"] = backend.timestamp()
    if definition.bucket == NAMESPACES:
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        return
    meta["deletionGracePeriodSeconds"] = 0
    if meta.get("generation"):
        meta["generation"] += 1
    if definition.is_crd and CRD_CLEANUP not in meta.get("finalizers", ()):
        meta["finalizers"] = [*meta.get("finalizers", ()), CRD_CLEANUP]


async def delete_collection(backend: Backend, call: Call) -> Response:
    """DELETE of a collection: what the selectors select, and the list of it."""
    options, matcher, definition = read_options(call), Matcher.of(call), call.definition
    selected = [
        row for row in await every_row(backend, definition, call.route.namespace) if matcher.matches(row)
    ]
    deleted: list[Row] = []
    for start in range(0, len(selected), _TOGETHER):
        some = selected[start : start + _TOGETHER]
        deleted += await asyncio.gather(*(_one_of_many(backend, call, row, options) for row in some))
    metadata = objects.encode_json({"resourceVersion": str(backend.store.revision)})
    body = forms.list_opening(definition, call.form, metadata)
    body += b",".join(forms.item(definition, call.form, row) for row in deleted) + b"]}"
    return Response(200, forms.headers(call), body)


async def every_row(backend: Backend, definition: ResourceDefinition, namespace: str) -> list[Row]:
    """All rows of a resource; empty `namespace` means all of them."""
    rows: list[Row] = []
    after: tuple[str, str] | None = None
    while True:
        page = await backend.store.list(definition.bucket, namespace or None, limit=CHUNK, after=after)
        rows += page.rows
        if not page.more or not page.rows:
            return rows
        after = (page.rows[-1].key.namespace, page.rows[-1].key.name)


async def _one_of_many(backend: Backend, call: Call, row: Row, options: DeleteOptions) -> Row:
    """Delete whatever is under the row's key by now; who was faster has done the work."""
    _check_mortal(call.definition, row.key.name)
    for _ in range(WRITE_ATTEMPTS):
        current = await backend.store.latest(row.key)
        if current is None:
            return row
        try:
            last, _ = await _delete_row(backend, call, current, options)
        except (Changed, Missing):
            continue
        return last
    raise conflict(call.definition, row.key.name)
