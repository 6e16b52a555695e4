"""Shaping of updates: preconditions, decoding, defaults, and the fields that an update must not change.

Source: apiserver `pkg/registry/rest/update.go`; API conventions, "Spec and Status".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from certwright.kube.api.errors import (
    ApiError,
    BadRequest,
    Cause,
    Details,
    FieldError,
    Invalid,
    invalid,
    invalid_object,
)
from certwright.kube.apiserver.base import metadata
from certwright.kube.apiserver.base.json_values import Json, NotOfKind, same
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Call, conflict
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.negotiation import content_type
from certwright.kube.apiserver.requests import bodies
from certwright.kube.apiserver.requests.patch import APPLY
from certwright.kube.store.contract import Row
from certwright.kube.util.encoding import quoted

Refuse = Callable[[Call, str], ApiError]
"""Words the error for a client with strict field validation."""
Track = Callable[[Json, Json], None]
"""Called with the new and the stored object (managed.py)."""


def check_type(call: Call, obj: Json, repeats: Sequence[str] = ()) -> None:
    """Check that apiVersion and kind of an object are those of the path; for built-in kinds they are
    optional.

    `repeats`: duplicate fields, which strict field validation reports before any other error.
    """
    definition = call.definition
    if definition.custom:
        _check_custom_type(call, obj, repeats)
        return
    version, kind = obj.get("apiVersion") or definition.api_version, obj.get("kind") or definition.kind
    if version != definition.api_version:
        raise _other_version(definition, version)
    if kind != definition.kind:
        raise bodies.unreadable(call, kind, definition.version, "the kind is another one")
    obj["apiVersion"], obj["kind"] = version, kind


def _check_custom_type(call: Call, obj: Json, repeats: Sequence[str]) -> None:
    definition, version, kind = call.definition, obj.get("apiVersion"), obj.get("kind")
    if not kind:
        detail = "Object 'Kind' is missing in '{}'"
        if call.verb != "patch":
            text = detail.format(bodies.quotable(call, call.request.body.decode(errors="replace")))
            if bodies.field_validation(call) == "Ignore":
                raise bodies.unreadable(call, definition.kind, definition.version, text)
            raise bodies.unrecognized(call, text)
        shown = bodies.quotable(call, objects.go_json_of_object(obj))
        raise _refused(shown, detail.format(shown))
    meta = obj.get("metadata")
    name = str(meta.get("name", "")) if type(meta) is dict else ""
    if version != definition.api_version:
        if call.verb != "patch":
            _check_unserved_version(call, obj, repeats)
            raise _other_version(definition, version)
        wrong = invalid("apiVersion", version, f"must be {definition.api_version}")
        raise invalid_object(definition.group, kind, name, [wrong])
    if kind != definition.kind:
        if text := bodies.strict_errors(call, [], repeats):
            raise bodies.unreadable(call, kind, definition.version, text)
        wrong = invalid("kind", kind, f"must be {definition.kind}")
        raise invalid_object(definition.group, kind, name, [wrong])


def _check_unserved_version(call: Call, obj: Json, repeats: Sequence[str]) -> None:
    """In a version without a schema every field is unknown, which is reported first."""
    definition = call.definition
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    unknown = sorted(obj.keys() - {"apiVersion", "kind", "metadata"})
    if group != definition.group or obj["kind"] != definition.kind or version in definition.served_versions:
        unknown = []
    if text := bodies.strict_errors(call, unknown, repeats):
        raise bodies.unreadable(call, definition.kind, version, text)


def _other_version(definition: ResourceDefinition, version: object) -> BadRequest:
    return BadRequest(
        f"the API version in the data ({version or ''}) does not match the expected API version "
        f"({definition.api_version})"
    )


def refuse_body(call: Call, text: str) -> ApiError:
    """The 400 of an object with unknown or duplicate fields."""
    return bodies.unreadable(call, call.definition.kind, call.definition.version, text)


def refuse_patch(call: Call, text: str) -> ApiError:
    """The 422 of a patch whose result has such fields. It names no object, as in Kubernetes."""
    return _refused(bodies.quotable(call, call.request.body.decode(errors="replace")), text)


def refuse_patched(call: Call, patched: Json, text: str) -> ApiError:
    """The same, where the message can show the result of the patch."""
    return _refused(bodies.quotable(call, objects.go_json_of_object(patched)), text)


def _refused(shown: str, text: str) -> Invalid:
    wrong = invalid("patch", shown, text)
    cause = Cause(reason=wrong.reason, message=wrong.message, field=wrong.field)
    return Invalid(f' "" is invalid: {wrong}', details=Details(causes=(cause,)))


def check_preconditions(call: Call, new: Json, old: Json, row: Row) -> None:
    """Compare name, uid and resourceVersion with what is stored.

    A patch without a revision contains the stored one.
    """
    meta, stored, name = new.get("metadata"), old["metadata"], call.route.name
    if call.verb == "patch":
        if meta is None:
            raise nameless(call)
        if type(meta) is not dict:
            return
        check_address(call, meta)
    assert type(meta) is dict, "the metadata of a PUT has been read"
    if meta.get("uid") and meta["uid"] != stored["uid"]:
        raise other_uid(call, meta["uid"], stored["uid"])
    version = meta.get("resourceVersion")
    if not version or version == "0":
        # Only some built-in kinds may be replaced without a resourceVersion.
        if not call.definition.unconditional_update:
            wrong = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_object(call.definition.group, call.definition.plural, call.route.name, [wrong])
    elif version != str(row.revision):
        _check_revision(call, version)
        raise conflict(call.definition, name)


def _check_revision(call: Call, version: object) -> None:
    if type(version) is str and not (version.isascii() and version.isdecimal()):
        # Kubernetes answers 500, as if the server were at fault.
        error = ApiError if call.definition.custom else BadRequest
        raise error(f"metadata.resourceVersion: expected a whole number, got {quoted(version)}")


def nameless(call: Call) -> BadRequest:
    """The 400 of an object without a name."""
    return BadRequest(
        f"the name of the object ({call.route.name} based on URL) was undeterminable: name must be provided"
    )


def other_uid(call: Call, sent: object, stored: str) -> ApiError:
    """The error of another uid: a failed precondition in a PUT, an immutable field in a patch."""
    if call.verb == "patch":
        wrong = invalid("metadata.uid", sent, "field is immutable")
        # Kubernetes checks it twice.
        return invalid_object(call.definition.group, call.definition.kind, call.route.name, [wrong, wrong])
    detail = f"Precondition failed: UID in precondition: {sent}, UID in object meta: {stored}"
    return conflict(call.definition, call.route.name, detail)


def check_new(call: Call, new: Json) -> None:
    """Check that an object created by an apply is the object that the path names."""
    meta = new.get("metadata")
    meta = meta if type(meta) is dict else {}
    check_address(call, meta)
    if meta.get("resourceVersion"):
        _check_revision(call, meta["resourceVersion"])
    if meta.get("uid"):
        detail = (
            f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
        )
        raise conflict(call.definition, call.route.name, detail)


def check_address(call: Call, meta: Json) -> None:
    """Check that namespace and name are those of the path. Raises `BadRequest`."""
    name, namespace = meta.get("name"), meta.get("namespace")
    if namespace and call.definition.namespaced and namespace != call.route.namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if not name:
        raise nameless(call)
    if name != call.route.name:
        raise BadRequest(
            f"the name of the object ({name}) does not match the name on the URL ({call.route.name})"
        )


def process(call: Call, obj: Json) -> list[str]:
    """Prune and default `obj` in place; the paths of the fields dropped.

    In the result of a server-side apply of a custom resource, nulls are kept, so that validation rejects
    them.
    """
    nulls: list[tuple[Json, str]] = []
    if _is_apply(call) and call.definition.custom:
        _find_nulls(obj, nulls)
    unknown = call.definition.schema.process(obj)
    for holder, name in nulls:
        holder.setdefault(name, None)
    return unknown


def drop_nulls(call: Call, obj: Json) -> None:
    """Drop the nulls of an apply that `process` has kept and validation has accepted."""
    if _is_apply(call) and call.definition.custom:
        nulls: list[tuple[Json, str]] = []
        _find_nulls({name: value for name, value in obj.items() if name != "metadata"}, nulls)
        if nulls:
            call.definition.schema.process(obj)


def _is_apply(call: Call) -> bool:
    return call.verb == "patch" and content_type(call.request.headers) == APPLY


def _find_nulls(value: Any, nulls: list[tuple[Json, str]]) -> None:
    if type(value) is dict:
        for name, item in value.items():
            if item is None:
                nulls.append((value, name))
            else:
                _find_nulls(item, nulls)
    elif type(value) is list:
        for item in value:
            _find_nulls(item, nulls)


def read_fields(call: Call, obj: Json, refuse: Refuse, strict: Sequence[str] = ()) -> list[str]:
    """Decode metadata and fields of the request body, with Kubernetes' defaults.

    `strict`: errors so far of strict field validation. Returns the paths of unknown fields. Raises the error
    that `refuse` makes for a value of a wrong type, and for unknown or duplicate fields under strict field
    validation.
    """
    definition = call.definition
    try:
        unknown = metadata.clean(definition, obj) + process(call, obj)
    except NotOfKind as error:
        raise refuse(call, error.detail) from None
    if _is_apply(call):
        # An applied configuration has its type; fields dropped from the result are never reported.
        return unknown
    if text := bodies.strict_errors(call, unknown, strict):
        raise refuse(call, text)
    return unknown


def drop_duplicate_owners(call: Call, meta: Json, *, admitted: bool) -> None:
    """Keep one of equal owner references, with a warning. `admitted`: mutating admission has run."""
    if dropped := metadata.drop_duplicate_owners(meta):
        after = admitted or call.verb == "patch"
        text = metadata.DUPLICATE_OWNERS_AFTER_ADMISSION if after else metadata.DUPLICATE_OWNERS
        warn(call, [text + ", ".join(dropped)])


def warn(call: Call, texts: list[str]) -> None:
    """Send each warning once."""
    call.warnings += [text for text in texts if text not in call.warnings]


def shape_update(
    call: Call,
    new: Json,
    old: Json,
    refuse: Refuse,
    track: Track | None = None,
    *,
    is_read: bool = False,
    admitted: bool = False,
) -> Json:
    """`new` in the form to be stored: known fields, defaults, and the old values of fields that this verb may
    not change.

    `track` updates the managed fields, once the client's change is decoded and before unchangeable fields are
    restored. `is_read`: `read_fields` has run on `new`. `admitted`: a webhook has changed it since it was
    shaped.
    """
    definition, meta = call.definition, old["metadata"]
    unknown = [] if is_read else read_fields(call, new, refuse)
    if call.verb == "update":
        drop_duplicate_owners(call, new["metadata"], admitted=admitted)
    if track is not None and (definition.custom or call.route.subresource):
        track(new, old)
    if call.verb == "patch":
        drop_duplicate_owners(call, new["metadata"], admitted=admitted)
    if call.route.subresource == "status":
        given = new["metadata"]
        # The stored object with the new status. Its metadata is a copy, because it gets a new revision.
        restored = dict(old)
        _restore(restored, new, "status")
        _set_owners(restored, new["metadata"].get(MANAGED))
        new = restored
        if definition.is_crd:
            # A write to the status of a definition may change its metadata too, to remove its finalizer.
            metadata.carry_over(given, meta)
            new["metadata"] = given
        check_shape(definition, new, old, part="status", warnings=call.warnings)
        definition.strategy.prepare_status(new, old)
    elif (part := definition.subresource(call.route.subresource)) is not None and part.shape is not None:
        owners = new["metadata"].get(MANAGED)
        new = part.shape(new, old)
        _set_owners(new, owners)
        check_shape(definition, new, old, warnings=call.warnings)
    else:
        _shape_object(call, new, old, track, unknown)
    new["metadata"]["resourceVersion"] = meta["resourceVersion"]
    return new


def _shape_object(call: Call, new: Json, old: Json, track: Track | None, unknown: list[str]) -> None:
    definition, meta = call.definition, old["metadata"]
    if definition.status_subresource:
        _restore(new, old, "status")
    metadata.carry_over(new["metadata"], meta)
    check_shape(definition, new, old, warnings=call.warnings)
    warn(call, metadata.warnings(definition, new["metadata"], meta))
    definition.strategy.prepare_update(new, old)
    definition.strategy.defaults(new)
    if track is not None and not definition.custom:
        # Preparation has set the defaults of built-in kinds.
        track(new, old)
    left_out = {"metadata", "status"} if definition.status_subresource else {"metadata"}
    changed = not same(
        {name: value for name, value in new.items() if name not in left_out},
        {name: value for name, value in old.items() if name not in left_out},
    )
    # Kubernetes compares an applied object with the stored one before it drops unknown fields.
    changed = changed or (_is_apply(call) and any(path.partition(".")[0] not in left_out for path in unknown))
    if definition.has_generation and changed:
        new["metadata"]["generation"] = meta.get("generation", 0) + 1
    drop_nulls(call, new)


def _set_owners(obj: Json, owners: object) -> None:
    meta = obj["metadata"] = dict(obj["metadata"])
    meta.pop(MANAGED, None)
    if owners is not None:
        meta[MANAGED] = owners


def _restore(into: Json, source: Json, name: str) -> None:
    if name in source:
        into[name] = source[name]
    else:
        into.pop(name, None)


def is_released(obj: Json) -> bool:
    """Whether no finalizer keeps an object that is being deleted."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    spec = obj.get("spec") if obj["kind"] == "Namespace" else None
    return not (type(spec) is dict and spec.get("finalizers"))


def check_shape(
    definition: ResourceDefinition,
    new: Json,
    old: Json | None,
    *,
    part: str = "",
    warnings: list[str] | None = None,
) -> None:
    """Raise `Invalid` with every field that metadata's rules or the kind's schema forbid.

    Later steps may rely on the types of the schema. `part`: only `status` was written. `warnings` receives
    errors that existed before and have not changed.
    """
    meta = new["metadata"]
    errors: list[FieldError] = []
    if part != "status" or definition.is_crd:  # else the metadata is the stored one
        errors = metadata.check(meta, definition)
        errors += (
            metadata.check_name(definition, meta)
            if old is None
            else metadata.check_update(meta, old["metadata"])
        )
    kept: list[FieldError] = []
    schema = definition.schema
    schema_errors = schema.judge(new, old, kept, part) if definition.custom else schema.validate(new, old)
    if warnings is not None:
        warnings += [text for text in map(str, kept) if text not in warnings]
    errors += map(_as_of_status, schema_errors) if part == "status" else schema_errors
    raise_if_invalid(definition, new, errors)


def _as_of_status(error: FieldError) -> FieldError:
    """Kubernetes validates a status against its own schema, and names paths in it from there."""
    if not error.field.startswith("status"):
        return error
    below = error.field.removeprefix("status").removeprefix(".")
    return FieldError(
        error.field, error.reason, error.detail.replace(f"{error.field} in body", f"{below} in body")
    )


def raise_if_invalid(definition: ResourceDefinition, obj: Json, errors: list[FieldError]) -> None:
    """Raise the `Invalid` of an object that has errors."""
    if errors:
        raise invalid_object(definition.group, definition.kind, obj["metadata"].get("name", ""), errors)
