"""Built-in validation of writes, and the fields that the server itself sets.

Order on every write: `check_shape`, the kind's own preparation, `mutate`, `validate`. A generated name that
was taken is validated again with the next one, never mutated again (KEP-4420).
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError, denied_object, invalid_object
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.metadata import check, check_name, check_update
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.util.http_messages import Identity


def mutate(definition: ResourceDefinition, user: Identity, new: Json, old: Json | None) -> None:
    """Let the kind's extension mutate the write."""
    if definition.extension is not None:
        definition.extension.mutate(user, new, old)


def check_shape(
    definition: ResourceDefinition,
    new: Json,
    old: Json | None,
    *,
    part: str = "",
    warnings: list[str] | None = None,
    is_accepted: bool = False,
) -> None:
    """Raise `Invalid` with every field that metadata's rules or the kind's schema forbid.

    Later steps may rely on the types of the schema. `part`: only `status` was written. `warnings` receives
    errors that existed before and have not changed. `is_accepted`: the schema has accepted the changes
    (`Schema.is_accepted`).
    """
    metadata = new["metadata"]
    errors: list[FieldError] = []
    if part != "status" or definition.is_crd:  # else the metadata is the stored one
        errors = check(metadata, definition)
        errors += check_name(definition, metadata) if old is None else check_update(metadata, old["metadata"])
    kept: list[FieldError] = []
    schema = definition.schema
    if definition.custom:
        schema_errors = schema.judge(new, old, kept, part, is_accepted=is_accepted)
    else:
        schema_errors = schema.validate(new, old)
    if warnings is not None:
        warnings += [text for text in map(str, kept) if text not in warnings]
    errors += map(_as_of_status, schema_errors) if part == "status" else schema_errors
    _raise(definition, new, errors)


def _as_of_status(error: FieldError) -> FieldError:
    """Kubernetes validates a status against its own schema, and names paths in it from there."""
    if not error.field.startswith("status"):
        return error
    below = error.field.removeprefix("status").removeprefix(".")
    return FieldError(
        error.field, error.reason, error.detail.replace(f"{error.field} in body", f"{below} in body")
    )


def validate(definition: ResourceDefinition, new: Json, old: Json | None) -> None:
    """Raise `Invalid` for violations of the kind's own rules, `Denied` for those of its extension."""
    _raise(definition, new, definition.strategy.validate(new, old))
    if definition.extension is not None and (errors := definition.extension.validate(new, old)):
        raise denied_object(definition.group, definition.kind, new["metadata"].get("name", ""), errors)


def warnings(definition: ResourceDefinition, new: Json, old: Json | None) -> list[str]:
    """Warnings to the client about an object that `validate` accepts."""
    texts = definition.strategy.warnings(new, old)
    return texts if definition.extension is None else [*texts, *definition.extension.warnings(new, old)]


def _raise(definition: ResourceDefinition, new: Json, errors: list[FieldError]) -> None:
    if errors:
        name = new["metadata"].get("name", "")
        raise invalid_object(definition.group, definition.kind, name, errors)
