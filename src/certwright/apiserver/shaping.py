"""How an update is brought into shape: whom it may concern, what it may change, what stays as it was.

Source: apiserver `pkg/registry/rest/update.go`; API conventions, "Spec and Status".
"""

from __future__ import annotations

from collections.abc import Callable

from certwright.apiserver import admission, bodies, metadata, objects
from certwright.apiserver.backend import Call, conflict
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.objects import Json
from certwright.resources.errors import ApiError, BadRequest, FieldError, invalid_object
from certwright.store.contract import Row

Refuse = Callable[[Call, str], ApiError]
"""Words the error of a client that wanted strictness."""


def check_type(call: Call, obj: Json) -> None:
    """apiVersion and kind may be left out; when they are there they must be those of the path."""
    definition = call.definition
    version, kind = obj.get("apiVersion") or definition.api_version, obj.get("kind") or definition.kind
    if version != definition.api_version:
        raise BadRequest(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({definition.api_version})"
        )
    if kind != definition.kind:
        raise bodies.unreadable(call, kind, definition.version, "the kind is another one")
    obj["apiVersion"], obj["kind"] = version, kind


def refuse_body(call: Call, text: str) -> ApiError:
    """The 400 of an object with fields that are not known or not single."""
    return bodies.unreadable(call, call.definition.kind, call.definition.version, text)


def refuse_patch(call: Call, text: str) -> ApiError:
    """The 422 of a patch whose result has such fields."""
    shown = call.request.body.decode(errors="replace")
    wrong = FieldError(
        "patch", "FieldValueInvalid", f"Invalid value: {objects.encode_json(shown).decode()}: {text}"
    )
    return invalid_object(call.definition.group, call.definition.kind, call.route.name, [wrong])


def check_preconditions(call: Call, new: Json, old: Json, row: Row) -> None:
    """Compare name, uid and resourceVersion with what is stored.

    A patch that says nothing of the revision carries the stored one.
    """
    meta, stored, name = new.get("metadata"), old["metadata"], call.route.name
    if type(meta) is not dict:
        return
    _check_address(call, meta)
    if meta.get("uid") and meta["uid"] != stored["uid"]:
        raise conflict(
            call.definition,
            name,
            f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {stored['uid']}",
        )
    version = meta.get("resourceVersion")
    if not version:
        _check_unconditional(call)
    elif version != str(row.revision):
        raise conflict(call.definition, name)


def _check_address(call: Call, meta: Json) -> None:
    name, namespace = meta.get("name"), meta.get("namespace")
    if name and name != call.route.name:
        raise BadRequest(
            f"the name of the object ({name}) does not match the name on the URL ({call.route.name})"
        )
    if namespace and call.definition.namespaced and namespace != call.route.namespace:
        raise BadRequest(
            f"the namespace of the object ({namespace}) does not match the namespace on the URL "
            f"({call.route.namespace})"
        )


def _check_unconditional(call: Call) -> None:
    """Only kinds of the core group may be replaced without saying which revision is meant."""
    if call.definition.group:
        wrong = FieldError(
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0x0: must be specified for an update",
        )
        raise invalid_object(call.definition.group, call.definition.kind, call.route.name, [wrong])


def shape_update(call: Call, new: Json, old: Json, refuse: Refuse) -> Json:
    """`new` as it would be stored: known fields, defaults, and what this verb may not change as it was."""
    definition, meta = call.definition, old["metadata"]
    unknown = metadata.clean(definition, new)
    unknown += definition.schema.process(new)
    if text := bodies.strict_errors(call, unknown, []):
        raise refuse(call, text)
    if wrong := metadata.creation_immutable(new["metadata"], meta):
        raise invalid_object(definition.group, definition.kind, call.route.name, wrong)
    if call.route.subresource == "status":
        new = _only_status(new, old)
        admission.check_shape(definition, new, old)
        definition.strategy.prepare_status(new, old)
    elif (part := definition.subresource(call.route.subresource)) is not None and part.shape is not None:
        new = part.shape(new, old)
        admission.check_shape(definition, new, old)
    else:
        if definition.status_subresource:
            _restore(new, old, "status")
        metadata.carry_over(new["metadata"], meta)
        admission.check_shape(definition, new, old)
        definition.strategy.prepare_update(new, old)
        if definition.has_generation and not _same_spec(definition, new, old):
            new["metadata"]["generation"] = meta.get("generation", 0) + 1
    new["metadata"]["resourceVersion"] = meta["resourceVersion"]
    return new


def _only_status(new: Json, old: Json) -> Json:
    """The stored object with the status of the new one; its metadata is a copy: it gets a new revision."""
    restored = {**old, "metadata": dict(old["metadata"])}
    _restore(restored, new, "status")
    return restored


def _restore(into: Json, source: Json, name: str) -> None:
    if name in source:
        into[name] = source[name]
    else:
        into.pop(name, None)


def _same_spec(definition: ResourceDefinition, new: Json, old: Json) -> bool:
    """Whether nothing that counts for `metadata.generation` has changed."""
    left_out = {"metadata", "status"} if definition.status_subresource else {"metadata"}
    return objects.same(
        {name: value for name, value in new.items() if name not in left_out},
        {name: value for name, value in old.items() if name not in left_out},
    )


def is_released(obj: Json) -> bool:
    """Whether an object that is being deleted has nobody left who wants it kept."""
    meta = obj["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers"):
        return False
    spec = obj.get("spec") if obj["kind"] == "Namespace" else None
    return not (type(spec) is dict and spec.get("finalizers"))
