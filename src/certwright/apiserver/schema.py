"""A structural schema, ready to prune, default and check objects.

Metadata is the same for all kinds and is left alone here. A schema is compiled on first use: a server that
starts with six CustomResourceDefinitions does not pay for those that nobody writes to.

Source: Kubernetes documentation, "Specifying a structural schema".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import msgspec

from certwright.apiserver.schema_check import compile_check
from certwright.apiserver.schema_scalars import Check
from certwright.apiserver.schema_walk import EMBEDDED, Walk, compile_walk
from certwright.resources.errors import FieldError, invalid

_NO_TYPE: dict[str, Any] = {"type": "object"}
_UNCHECKED_RULES = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation"
)


class Schema:
    """One version's schema.

    It is kept as JSON until it is needed: that of an Issuer is 60 KB so, and ten times as much as dicts.
    """

    def __init__(self, openapi: Mapping[str, Any] | None = None) -> None:
        self._encoded = msgspec.json.encode(openapi or _NO_TYPE)

    @property
    def openapi(self) -> dict[str, Any]:
        """The schema as it was given, for documentation; a new copy each time."""
        decoded: dict[str, Any] = msgspec.json.decode(self._encoded)
        return decoded

    def process(self, obj: dict[str, Any]) -> list[str]:
        """Prune and default `obj` in place; returns the paths of the fields dropped, sorted.

        Paths read like `spec.keystores.jks.x` or `spec.list[0].x`. Values of a wrong type are left alone;
        `validate` finds them.
        """
        unknown: list[str] = []
        self._walk(obj, None, unknown)
        return sorted(unknown)

    def validate(self, obj: dict[str, Any]) -> list[FieldError]:
        """What is wrong with a pruned and defaulted object, sorted by field."""
        errors: list[FieldError] = []
        self._check(obj, None, errors)
        if not errors:
            return errors
        errors.sort(key=str)
        if self.has_rules:
            errors.append(invalid("<nil>", None, _UNCHECKED_RULES))
        return errors

    @cached_property
    def has_rules(self) -> bool:
        """Whether there are CEL rules in it."""
        return b'"x-kubernetes-validations"' in self._encoded and _mentions_rules(self.openapi)

    @cached_property
    def _walk(self) -> Walk:
        # The metadata of every kind is the same, and looked after by metadata.py.
        walk = compile_walk({"type": "object", **self.openapi, EMBEDDED: True})
        assert walk is not None, "an object is always walked for unknown fields"
        return walk

    @cached_property
    def _check(self) -> Check:
        given = self.openapi
        types = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        root = {"type": "object", **given, "properties": {**given.get("properties", {}), **types}}
        check = compile_check(root)
        assert check is not None, "an object is always checked for being one"
        return check


def _mentions_rules(node: Any) -> bool:
    if isinstance(node, Mapping):
        return "x-kubernetes-validations" in node or any(_mentions_rules(item) for item in node.values())
    if isinstance(node, list):
        return any(_mentions_rules(item) for item in node)
    return False
