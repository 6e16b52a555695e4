"""What the API servers of all tests in a process share, because a start would cost more than most tests.

Valid schemas are validated by the first server that gets them (those with errors each time); servers of a
`World` share what schemas are compiled to; and a server starts on a store in which one has started before, as
after a restart: what is written at the first start is recorded once per process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.crds import definitions, versions
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.kube.store.contract import Encode, Key, Row
from certwright.kube.store.memory import MemoryStore


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


_recorded: dict[str, list[Row]] = {}


class _Recording(MemoryStore):
    """A store that remembers the rows written to it. Nothing is deleted at a start."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    async def put(self, key: Key, encode: Encode, *, expect: int | None = None) -> Row:
        row = await super().put(key, encode, expect=expect)
        self.rows.append(row)
        return row


def _columns(row: Row, _: int) -> tuple[bytes, bytes]:
    return row.meta, row.body


async def started_store(what: str, start: Callable[[MemoryStore], Awaitable[None]]) -> MemoryStore:
    """A store in which a server has started before. `start` starts and ends one, for the first of `what`."""
    if what not in _recorded:
        first = _Recording()
        await start(first)
        _recorded[what] = first.rows
    store = MemoryStore()
    for row in _recorded[what]:
        await store.put(row.key, partial(_columns, row))
    assert store.revision == _recorded[what][-1].revision
    return store
