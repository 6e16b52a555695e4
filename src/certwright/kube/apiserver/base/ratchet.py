"""Validation ratcheting: unchanged parts of an object stay valid when its schema becomes stricter.

Source: KEP-4008 (CRD validation ratcheting); apiserver `pkg/cel/common/equality.go`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base.field_errors import Path
from certwright.kube.apiserver.base.json_values import encode_sorted, same

Check = Callable[[Any, Path, list[FieldError]], None]
Schema = Mapping[str, Any]

_ABSENT = object()
"""A value that was missing before: a null may have been added since."""


def old_items(schema: Schema, old: Any) -> Callable[[Any], Any]:
    """Finds the old item of a new one: by its keys in a list of type map, never in other lists."""
    names = schema.get("x-kubernetes-list-map-keys") or ()
    if schema.get("x-kubernetes-list-type") != "map" or type(old) is not list:
        return lambda _: None

    def key_of(item: Any) -> bytes:
        return encode_sorted([item.get(name) if type(item) is dict else None for name in names])

    by_key = {key_of(item): item for item in reversed(old)}
    return lambda item: by_key.get(key_of(item))


class _Judged(threading.local):
    """The objects being validated, per thread, because large objects are validated in threads."""

    new: Any = None
    old: Any = None


class Ratchet:
    """Suppresses the errors of unchanged parts.

    Wrap the check of every schema node in `guard`, and call `run`.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._judged = _Judged()

    def guard(self, check: Check) -> Check:
        """`check` without errors for unchanged values."""

        def guarded(value: Any, path: Path, errors: list[FieldError]) -> None:
            before = len(errors)
            check(value, path, errors)
            if len(errors) > before and self._unchanged(value, path):
                del errors[before:]

        return guarded

    def run(self, check: Check, new: Any, old: Any) -> list[FieldError]:
        """The errors of a guarded check in `new`, without those of unchanged parts of `old`."""
        judged = self._judged
        judged.new, judged.old = new, old
        errors: list[FieldError] = []
        try:
            check(new, None, errors)
        finally:
            judged.new = judged.old = None
        return errors

    def _unchanged(self, value: Any, path: Path) -> bool:
        if path is not None and path[0] is None and path[1] in ("apiVersion", "kind"):
            return False
        return same(value, self._old_at(path))

    def _old_at(self, path: Path) -> Any:
        steps: list[str | int] = []
        while path is not None:
            path, step = path
            steps.append(step)
        schema, new, old = self._schema, self._judged.new, self._judged.old
        for step in reversed(steps):
            if isinstance(step, int):
                old_item = old_items(schema, old)(new[step])
                old, new, schema = (
                    _ABSENT if old_item is None else old_item,
                    new[step],
                    schema.get("items") or {},
                )
            else:
                if type(old) is not dict:
                    return _ABSENT
                old, new, schema = old.get(step, _ABSENT), new.get(step), _property(schema, step)
        return old


def _property(schema: Schema, key: str) -> Schema:
    property_schema = (schema.get("properties") or {}).get(key)
    extra = schema.get("additionalProperties")
    return property_schema or (extra if isinstance(extra, Mapping) else {})
