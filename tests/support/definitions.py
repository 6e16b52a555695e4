"""Definitions: the schemas that many tests of a process create are validated once.

Every API server of a test creates certwright's own definitions, and validating their schemas costs more than
everything else at its start. The outcome depends on the schema alone, so a schema without errors is validated
by the first server of a process only. Schemas with errors are validated each time. Servers of a `World` also
share what their schemas are compiled to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.crds import definitions, versions
from certwright.kube.apiserver.schemas.structural import Schema


@contextmanager
def valid_schemas_remembered() -> Iterator[None]:
    """Validate no schema a second time in this process after it was found to be without errors."""
    validate, valid = versions._schema_errors, set[bytes]()

    def validate_once(
        path: str, schema: dict[str, Any], accepted: Any, *, has_status: bool
    ) -> list[FieldError]:
        schemas, rules = accepted
        if schemas:  # an update
            return validate(path, schema, accepted, has_status=has_status)
        key = sha256(msgspec.json.encode((path, has_status, sorted(rules), schema))).digest()
        if key in valid:
            return []
        errors = validate(path, schema, accepted, has_status=has_status)
        if not errors:
            valid.add(key)
        return errors

    setattr(versions, "_schema_errors", validate_once)  # noqa: B010 - mypy takes the name for a function's
    try:
        yield
    finally:
        setattr(versions, "_schema_errors", validate)  # noqa: B010 - see above


_compiled: dict[tuple[bytes, frozenset[str], tuple[str, str]], Schema] = {}


@contextmanager
def compiled_schemas_shared() -> Iterator[None]:
    """Servers that load their definitions meanwhile have one object for each schema of the process."""

    def shared(openapi: Any, *, known_rules: frozenset[str], named: tuple[str, str], also: Any) -> Schema:
        made = Schema(openapi, known_rules=known_rules, named=named, also=also)
        return (
            made if also else _compiled.setdefault((msgspec.json.encode(openapi), known_rules, named), made)
        )

    setattr(definitions, "Schema", shared)  # noqa: B010 - mypy takes the name for a class
    try:
        yield
    finally:
        setattr(definitions, "Schema", Schema)  # noqa: B010 - see above
