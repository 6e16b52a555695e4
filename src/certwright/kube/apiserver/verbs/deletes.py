"""Delete: immediately, or marked with a deletion timestamp until the last finalizer is removed.

Source: Kubernetes documentation, "Finalizers"; API reference, DeleteOptions v1 meta.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import msgspec

from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Conflict,
    Details,
    Forbidden,
    StorageReadError,
    invalid,
    invalid_object,
    not_supported,
)
from certwright.kube.apiserver.base.json_values import mismatch
from certwright.kube.apiserver.base.users import MASTERS
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import (
    IMMORTAL,
    NAMESPACES,
    Backend,
    Call,
    conflict,
    details,
    in_batches,
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

_INTEGER = re.compile(r"[+-]?[0-9]{1,100}")
FOREGROUND, BACKGROUND, ORPHAN = "Foreground", "Background", "Orphan"
"""Propagation policies: what happens to dependents."""
FOREGROUND_FINALIZER, ORPHAN_FINALIZER = "foregroundDeletion", "orphan"
"""The finalizers that keep an owner until its dependents are deleted or orphaned."""
_FINALIZER_OF = {FOREGROUND: (FOREGROUND_FINALIZER,), ORPHAN: (ORPHAN_FINALIZER,), BACKGROUND: ()}
_ANSWERED_WITH_OBJECT = frozenset({"pods", "resourcequotas", "serviceaccounts", "services"})


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


def read_options(call: Call) -> DeleteOptions:
    """The options from the body or, without one, from the query.

    Raises `BadRequest`, `Invalid` and `UnsupportedMediaType`.
    """
    options = _options_of_body(call) if call.request.body else _options_of_query(call)
    errors, policy = [], options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, text))
    if policy is not None and policy not in _FINALIZER_OF:
        errors.append(not_supported("propagationPolicy", policy, (FOREGROUND, BACKGROUND, ORPHAN, "nil")))
    errors += check_dry_run(options.dry_run or [])
    if errors:
        raise invalid_object("meta.k8s.io", "DeleteOptions", "", errors)
    if options.dry_run:
        call.query = {**call.query, "dryRun": "All"}  # admission must know it, also where the body says it
    elif "dryRun" in call.query:
        call.query = {name: value for name, value in call.query.items() if name != "dryRun"}
    return options


def _options_of_query(call: Call) -> DeleteOptions:
    grace, uid, version = map(call.query.get, ("gracePeriodSeconds", "uid", "resourceVersion"))
    orphans = "orphanDependents"
    if grace is not None and not (_INTEGER.fullmatch(grace) and -(2**63) <= int(grace) < 2**63):
        raise BadRequest(f"gracePeriodSeconds: expected a whole number of seconds, got {quoted(grace)}")
    return DeleteOptions(
        propagation_policy=call.query.get("propagationPolicy"),
        orphan_dependents=is_true(call.query, orphans) if orphans in call.query else None,
        grace_period_seconds=int(grace) if grace else None,
        # The members of a nested object are read from the same level.
        preconditions=Preconditions(uid, version),
        dry_run=values_of(call, "dryRun") if "dryRun" in call.query else None,
    )


def _options_of_body(call: Call) -> DeleteOptions:
    value: Any = bodies.read_options(call, "DeleteOptions")
    if value is not None and (text := bodies.headless(value)):
        raise BadRequest(text)
    # Go reads null as an object without members.
    members = {name: item for name, item in (value or {}).items() if item is not None}
    version, kind = members.get("apiVersion") or "meta.k8s.io/v1", members.get("kind") or _KIND
    if kind != _KIND and kind in _OTHER_OPTIONS.get(version, ()):
        raise BadRequest(f"converting (v1.{kind}) to (v1.{_KIND}): unknown conversion")
    if kind != _KIND:
        raise BadRequest(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    try:
        return convert(members, DeleteOptions)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{_KIND}: {mismatch(error)}") from None


_KIND = "DeleteOptions"


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
    """Remove an unreadable row; returns whether it was removed. Only administrators may, because its
    finalizers, owners and preconditions are unknown. Raises `StorageReadError`."""
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
    sent, name = options.preconditions, row.key.name
    if sent == Preconditions():
        return
    for what, given, stored, guess in (
        ("UID", sent.uid, objects.uid_of(row.meta), "might have been deleted and then recreated"),
        ("ResourceVersion", sent.resource_version, str(row.revision), "might have been modified"),
    ):
        if given is None or given == stored:
            continue
        if definition.is_crd:
            # Kubernetes deletes these in separate code, with separate messages.
            text = f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {stored}"
            raise conflict(definition, name, text)
        # The message names the kind here, elsewhere the resource.
        kind = f"{definition.kind}.{definition.group}" if definition.group else definition.kind
        raise Conflict(
            f'Operation cannot be fulfilled on {kind} "{name}": the {what} in the precondition ({given}) '
            f"does not match the {what} in record ({stored}). The object {guess}",
            details=Details(name=name, group=definition.group, kind=definition.kind),
        )


async def _delete_row(backend: Backend, call: Call, row: Row, options: DeleteOptions) -> tuple[Row, bool]:
    await backend.admission.deleting(call, row)
    if not options.dry_run:
        call.require_client()
    return await remove(backend, call.definition, row, options.policy, dry_run=bool(options.dry_run))


async def remove(
    backend: Backend, definition: ResourceDefinition, row: Row, policy: str = "", *, dry_run: bool = False
) -> tuple[Row, bool]:
    """Delete the object of `row`, or mark it for deletion while finalizers or contents keep it.

    `policy` is Foreground, Background or Orphan; empty: finalizers that are already set decide about
    dependents. `dry_run`: write nothing. Returns the object's last state and whether it is removed. Raises
    `Changed` and `Missing`.
    """
    meta = objects.to_metadata(row)
    before = meta.get("finalizers", [])
    finalizers = before
    if policy:
        kept = [name for name in before if name not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)]
        finalizers = [*kept, *_FINALIZER_OF[policy]]
    if not (finalizers or definition.bucket == NAMESPACES or definition.is_crd):
        return row if dry_run else await backend.delete(definition, row, objects.tombstone(row)), True
    is_marked = "deletionTimestamp" in meta
    # Separate code marks a definition; this one only handles its second deletion.
    again = definition.is_crd and is_marked and "deletionGracePeriodSeconds" not in meta
    obj = lightly(definition, row)
    unchanged = is_marked and finalizers == before and not again
    if unchanged and objects.is_as_kept(definition, row, obj):
        return row, False
    meta = obj["metadata"]
    meta.pop("finalizers", None)
    if finalizers:
        meta["finalizers"] = finalizers
    if again:
        meta["deletionGracePeriodSeconds"] = 0
    if not is_marked:
        meta["deletionTimestamp"] = backend.timestamp()
        if definition.strategy.mark_deleted is not None:
            definition.strategy.mark_deleted(obj)
        else:
            meta["deletionGracePeriodSeconds"] = 0
            if meta.get("generation"):
                meta["generation"] += 1
    columns = objects.columns(obj)
    if dry_run:
        return Row(row.key, row.revision, *columns(row.revision)), False
    return await backend.put(definition, row.key, columns, previous=row), False


async def delete_collection(backend: Backend, call: Call) -> Response:
    """DELETE of a collection: the selected objects, and the list of them."""
    # The list shows the objects before the deletion; a client that needs to see the end watches.
    selected, answer = await reads.selected(backend, call)
    options = read_options(call)
    await in_batches(lambda row: _delete_item(backend, call, row, options), selected)
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
