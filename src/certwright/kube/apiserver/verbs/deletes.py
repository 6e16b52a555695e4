"""Delete: immediately, or marked with a deletion timestamp until the last finalizer is removed.

Source: Kubernetes documentation, "Finalizers"; API reference, DeleteOptions v1 meta.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import msgspec

from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Details,
    FieldError,
    Forbidden,
    StorageReadError,
    invalid,
    invalid_object,
    not_supported,
)
from certwright.kube.apiserver.base.json_values import Json, mismatch
from certwright.kube.apiserver.base.users import MASTERS
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import (
    IMMORTAL,
    NAMESPACES,
    Backend,
    Call,
    conflict,
    details,
    not_found,
)
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import lightly
from certwright.kube.apiserver.model.routes import is_true
from certwright.kube.apiserver.representations import responses
from certwright.kube.apiserver.requests import bodies
from certwright.kube.apiserver.requests.bodies import check_dry_run, values_of
from certwright.kube.apiserver.verbs import reads
from certwright.kube.apiserver.verbs.updates import WRITE_ATTEMPTS
from certwright.kube.store.contract import Changed, DamagedRow, Missing, Row
from certwright.kube.util.decoders import convert
from certwright.kube.util.encoding import quoted
from certwright.kube.util.http_messages import Response

"""The finalizer that keeps a CustomResourceDefinition until its objects are gone."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
FOREGROUND, BACKGROUND, ORPHAN = "Foreground", "Background", "Orphan"
"""Propagation policies: what happens to dependents."""
FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
"""The finalizers that keep an owner until its dependents are deleted or orphaned."""
_FINALIZER_OF = {FOREGROUND: (FOREGROUND_FINALIZER,), ORPHAN: (ORPHAN_FINALIZER,), BACKGROUND: ()}
_ANSWERED_WITH_OBJECT = frozenset({"pods", "resourcequotas", "serviceaccounts", "services"})
_TOGETHER = 64  # concurrent deletions: they share commits


class Preconditions(msgspec.Struct, rename="camel"):
    """Preconditions of a deletion."""

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
    def policy(self) -> str:
        """The propagation policy; empty where the client names none."""
        if self.orphan_dependents is not None:
            return ORPHAN if self.orphan_dependents else BACKGROUND
        return self.propagation_policy or ""


_ORPHANS = "orphanDependents"
_POLICIES = (FOREGROUND, BACKGROUND, ORPHAN)


def read_options(call: Call) -> DeleteOptions:
    """The options from the body or, without one, from the query.

    Raises `BadRequest`, `Invalid` and `UnsupportedMediaType`.
    """
    options = _options_of_body(call) if call.request.body else _options_of_query(call)
    if wrong := _check_options(options):
        raise invalid_object("meta.k8s.io", "DeleteOptions", "", wrong)
    return options


def _options_of_query(call: Call) -> DeleteOptions:
    grace, uid, version = map(call.query.get, ("gracePeriodSeconds", "uid", "resourceVersion"))
    if grace is not None and not (_INTEGER.fullmatch(grace) and -(2**63) <= int(grace) < 2**63):
        raise BadRequest(f"gracePeriodSeconds: expected a whole number of seconds, got {quoted(grace)}")
    return DeleteOptions(
        propagation_policy=call.query.get("propagationPolicy"),
        orphan_dependents=is_true(call.query, _ORPHANS) if _ORPHANS in call.query else None,
        grace_period_seconds=int(grace) if grace else None,
        # The members of a nested object are read from the same level.
        preconditions=Preconditions(uid, version),
        dry_run=values_of(call, "dryRun") if "dryRun" in call.query else None,
    )


def _check_options(options: DeleteOptions) -> list[FieldError]:
    errors, policy = [], options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, text))
    if policy is not None and policy not in _POLICIES:
        errors.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    return errors + check_dry_run(options.dry_run or [])


def _options_of_body(call: Call) -> DeleteOptions:
    value: Any = bodies.read_options(call, "DeleteOptions")
    if value is not None and (text := bodies.headless(value)):
        raise BadRequest(text)
    # Go reads null as an object without members.
    members = {name: item for name, item in (value or {}).items() if item is not None}
    _check_kind(members.get("apiVersion") or "meta.k8s.io/v1", members.get("kind") or _KIND)
    try:
        return convert(members, DeleteOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{_KIND}: {mismatch(error)}") from None


_KIND = "DeleteOptions"


def _check_kind(version: str, kind: str) -> None:
    """Raise `BadRequest` unless the body is DeleteOptions."""
    if kind == _KIND:
        return
    if kind in _OTHER_OPTIONS.get(version, ()):
        raise BadRequest(f"converting (v1.{kind}) to (v1.{_KIND}): unknown conversion")
    raise BadRequest(
        f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
    )


_OTHER_OPTIONS = {
    "v1": ("APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"),
    "meta.k8s.io/v1": (
        "CreateOptions",
        "GetOptions",
        "ListOptions",
        "PatchOptions",
        "Table",
        "UpdateOptions",
    ),
}
"""Kinds that Kubernetes knows beside DeleteOptions, and cannot convert to them."""


async def delete(backend: Backend, call: Call) -> Response:
    """DELETE of an object: a `Status` once it is removed, the object while finalizers keep it."""
    options, definition, name = read_options(call), call.definition, call.route.name
    recent = None if options.dry_run else backend.store.recent(call.key)
    for _ in range(WRITE_ATTEMPTS):
        guess, recent = recent, None
        try:
            row = guess or await backend.store.latest(call.key)
        except DamagedRow as error:
            if await _discard(backend, call, options, error):
                return responses.success(call, name=name, uid="")
            continue
        _check_mortal(definition, name)
        if row is None:
            raise not_found(definition, name)
        try:
            _check_preconditions(definition, options, row)
            last, gone = await _delete_row(backend, call, row, options)
        except Changed:
            continue
        except Missing:
            raise not_found(definition, name) from None
        except ApiError:
            if guess is None or await backend.is_current(guess):
                raise
            continue
        if last is guess:  # nothing was to be changed, if the guess is right
            continue
        if gone and definition.bucket not in _ANSWERED_WITH_OBJECT:
            return responses.success(call, name=name, uid=objects.uid_of(last.meta))
        # Kubernetes answers 202 only to clients that use the deprecated option.
        code = 202 if not gone and options.orphan_dependents is False else 200
        return responses.object_response(call, last, backend.clock, code=code)
    raise conflict(definition, name)


async def _discard(backend: Backend, call: Call, options: DeleteOptions, damaged: DamagedRow) -> bool:
    """Remove a row that cannot be read; whether that was done. Its finalizers, owners and preconditions are
    not known, so only administrators may. Raises `StorageReadError`."""
    if MASTERS not in call.user.groups or options.preconditions != Preconditions():
        raise StorageReadError(str(damaged), details=details(call.definition, call.route.name))
    if options.dry_run:
        return True
    with suppress(Changed, Missing):
        await backend.discard(call.definition, call.key)
        return True
    return False


def _check_mortal(definition: ResourceDefinition, name: str) -> None:
    if definition.bucket == NAMESPACES and name in IMMORTAL:
        raise Forbidden(
            f'namespaces "{name}" is forbidden: this namespace may not be deleted',
            details=Details(name=name, kind="namespaces"),
        )


def _check_preconditions(definition: ResourceDefinition, options: DeleteOptions, row: Row) -> None:
    preconditions = options.preconditions
    if preconditions.uid is None and preconditions.resource_version is None:
        return
    uid, version, whose = objects.uid_of(row.meta), str(row.revision), (definition, row.key.name)
    if definition.is_crd:
        _check_of_definition(definition, preconditions, row)
    if preconditions.uid is not None and preconditions.uid != uid:
        sent = f"UID in the precondition ({preconditions.uid})"
        raise _mismatch(*whose, sent, f"UID in record ({uid})", _RECREATED)
    if preconditions.resource_version is not None and preconditions.resource_version != version:
        sent = f"ResourceVersion in the precondition ({preconditions.resource_version})"
        raise _mismatch(*whose, sent, f"ResourceVersion in record ({version})", _MODIFIED)


def _check_of_definition(definition: ResourceDefinition, preconditions: Preconditions, row: Row) -> None:
    """Preconditions of a CustomResourceDefinition: Kubernetes deletes these in separate code, with separate
    messages."""
    uid, version = objects.uid_of(row.meta), str(row.revision)
    for what, sent, stored in (
        ("UID", preconditions.uid, uid),
        ("ResourceVersion", preconditions.resource_version, version),
    ):
        if sent is not None and sent != stored:
            text = f"Precondition failed: {what} in precondition: {sent}, {what} in object meta: {stored}"
            raise conflict(definition, row.key.name, text)


_RECREATED = "The object might have been deleted and then recreated"
_MODIFIED = "The object might have been modified"


def _mismatch(definition: ResourceDefinition, name: str, sent: str, stored: str, guess: str) -> Conflict:
    """The conflict of a failed precondition. The message names the kind here, elsewhere the resource."""
    resource = f"{definition.kind}.{definition.group}" if definition.group else definition.kind
    return Conflict(
        f'Operation cannot be fulfilled on {resource} "{name}": '
        f"the {sent} does not match the {stored}. {guess}",
        details=Details(name=name, group=definition.group, kind=definition.kind),
    )


async def _delete_row(backend: Backend, call: Call, row: Row, options: DeleteOptions) -> tuple[Row, bool]:
    definition = call.definition
    await backend.admission.deleting(call, row)
    if options.dry_run:
        meta = objects.to_metadata(row)
        before = meta.get("finalizers", [])
        finalizers = meta["finalizers"] = _finalizers(before, options.policy)
        if not _is_blocked(definition, meta):
            return row, True
        if "deletionTimestamp" in meta and finalizers == before:
            return row, False
        obj = objects.to_object(definition, row)
        _put_finalizers(obj, finalizers)
        if "deletionTimestamp" not in meta:
            _mark(backend, definition, obj)
        encoded = objects.columns(obj)(row.revision)
        return Row(row.key, row.revision, *encoded), False
    call.require_client()
    return await remove(backend, definition, row, options.policy)


def _put_finalizers(obj: Json, finalizers: list[str]) -> None:
    obj["metadata"].pop("finalizers", None)
    if finalizers:
        obj["metadata"]["finalizers"] = finalizers


def _is_blocked(definition: ResourceDefinition, meta: Json) -> bool:
    """Whether finalizers or contents keep the object."""
    return bool(meta.get("finalizers")) or definition.bucket == NAMESPACES or definition.is_crd


async def remove(
    backend: Backend, definition: ResourceDefinition, row: Row, policy: str = ""
) -> tuple[Row, bool]:
    """Delete the object of `row`, or mark it for deletion while finalizers keep it.

    `policy` is one of Foreground, Background and Orphan; when it is empty, the finalizers already set decide
    what happens to dependents. Returns the object's last state and whether it is removed. Raises `Changed`
    and `Missing`.
    """
    meta = objects.to_metadata(row)
    before = meta.get("finalizers", [])
    finalizers = _finalizers(before, policy)
    meta["finalizers"] = finalizers
    if not _is_blocked(definition, meta):
        return await backend.delete(definition, row, objects.tombstone(row)), True
    # Separate code marks a definition; this one only handles its second deletion.
    again = definition.is_crd and "deletionTimestamp" in meta and "deletionGracePeriodSeconds" not in meta
    obj = lightly(definition, row)
    unchanged = "deletionTimestamp" in meta and finalizers == before and not again
    if unchanged and objects.is_as_kept(definition, row, obj):
        return row, False
    _put_finalizers(obj, finalizers)
    if again:
        obj["metadata"]["deletionGracePeriodSeconds"] = 0
    if "deletionTimestamp" not in meta:
        _mark(backend, definition, obj)
    return await backend.put(definition, row.key, objects.columns(obj), previous=row), False


def _finalizers(given: list[str], policy: str) -> list[str]:
    """The finalizers of an object that is deleted with this policy."""
    if not policy:
        return given
    kept = [name for name in given if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
    return [*kept, *_FINALIZER_OF[policy]]


def _mark(backend: Backend, definition: ResourceDefinition, obj: Json) -> None:
    meta = obj["metadata"]
    meta["deletionTimestamp"] = backend.timestamp()
    if definition.strategy.mark_deleted is not None:
        definition.strategy.mark_deleted(obj)
        return
    meta["deletionGracePeriodSeconds"] = 0
    if meta.get("generation"):
        meta["generation"] += 1


async def delete_collection(backend: Backend, call: Call) -> Response:
    """DELETE of a collection: the selected objects, and the list of them."""
    # The list shows the objects before the deletion; a client that needs to see the end watches.
    selected, answer = await reads.selected(backend, call)
    options = read_options(call)
    for start in range(0, len(selected), _TOGETHER):
        some = selected[start : start + _TOGETHER]
        await asyncio.gather(*(_delete_item(backend, call, row, options) for row in some))
    return answer


async def _delete_item(backend: Backend, call: Call, row: Row, options: DeleteOptions) -> None:
    """Delete the object now stored under the row's key; a concurrent deletion counts as success."""
    _check_mortal(call.definition, row.key.name)
    for _ in range(WRITE_ATTEMPTS):
        current = await backend.store.latest(row.key)
        if current is None:
            return
        _check_preconditions(call.definition, options, current)
        try:
            await _delete_row(backend, call, current, options)
        except (Changed, Missing):
            continue
        return
    raise conflict(call.definition, row.key.name)
