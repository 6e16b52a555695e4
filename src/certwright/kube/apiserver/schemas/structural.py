"""Structural schemas: prune, default and validate objects.

Metadata is the same for all kinds and is not handled here. A schema is compiled on first use: a server that
starts with six CustomResourceDefinitions does not pay for those without writes.

Source: Kubernetes documentation, "Specifying a structural schema".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError, invalid
from certwright.kube.apiserver.base.json_values import NotOfKind, decode_as_go
from certwright.kube.apiserver.base.schema_common import Ratchet
from certwright.kube.apiserver.cel import rules as cel_rules
from certwright.kube.apiserver.cel.rules import Node
from certwright.kube.apiserver.schemas.check import Check, compile_check
from certwright.kube.apiserver.schemas.embedded import Malformed
from certwright.kube.apiserver.schemas.walk import Walk, compile_walk
from certwright.kube.util.caches import lazy_attribute

_BLOCKING = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""After one of these no rule runs, because rules rely on the types."""
_LARGE, _LARGE_TO_COMPILE = 64 * 1024, 8 * 1024
"""Bytes of a schema that takes tens of milliseconds of processor time: to check an object, and to compile."""
Also = Callable[[dict[str, Any], dict[str, Any] | None], list[FieldError]]
_NO_TYPE: dict[str, Any] = {"type": "object"}
_UNCHECKED_RULES = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation"
)


class Schema:
    """The schema of one version.

    It is stored as JSON until needed: an Issuer's schema takes 60 KB as JSON, and ten times as much as dicts.
    """

    def __init__(
        self,
        openapi: Mapping[str, Any] | msgspec.Raw | None = None,
        *,
        known_rules: frozenset[str] = frozenset(),
        also: Also | None = None,
        named: tuple[str, str] = ("Object", "v1"),
    ) -> None:
        """`known_rules` are texts of CEL rules that are enforced elsewhere, and not run here. `also` finds
        errors that no schema can express; it gets objects of any shape. `named`: kind and version, for error
        messages. A schema may be given as its JSON.
        """
        self._known_rules = known_rules
        self._also = also
        self._named = named
        self._encoded = msgspec.json.encode(openapi or _NO_TYPE)
        self._is_cheap = False

    @property
    def openapi(self) -> dict[str, Any]:
        """The schema as it was given, for documentation; a new copy each time."""
        decoded: dict[str, Any] = decode_as_go(self._encoded)
        return decoded

    @property
    def fingerprint(self) -> str:
        """Its identifier in documents."""
        return sha256(self._encoded).hexdigest()

    def is_same_as(self, other: Schema) -> bool:
        """Whether both were given as the same JSON, except for the order of names."""
        left, right = self._encoded, other._encoded
        return left == right or (
            len(left) == len(right) and msgspec.json.decode(left) == msgspec.json.decode(right)
        )

    @property
    def is_expensive(self) -> bool:
        """Whether even a small object may take much processor time.

        The schema is large, or has yet to be compiled, or has rules.
        """
        if self._is_cheap:
            return False
        size = len(self._encoded)
        compiled = Schema._check.is_made(self)
        is_expensive = size > _LARGE or (size > _LARGE_TO_COMPILE and not compiled) or self.has_rules
        # A compiled schema that is cheap stays cheap.
        self._is_cheap = not is_expensive
        return is_expensive

    def process(self, obj: dict[str, Any]) -> list[str]:
        """Prune and default `obj` in place; returns the paths of the fields dropped, sorted.

        Paths read like `spec.keystores.jks.x` or `spec.list[0].x`. Values of a wrong type are left alone;
        `validate` finds them. Raises `NotOfKind` where the head of an embedded object cannot be read.
        """
        unknown: list[str] = []
        try:
            self._walk(obj, None, unknown)
        except Malformed as error:
            kind, version = self._named
            raise NotOfKind(kind, version, str(error)) from None
        return sorted(unknown)

    def complete(self, obj: dict[str, Any]) -> None:
        """Default the status of an object without status.

        Kubernetes applies defaults to objects read from its store, where a new object has no status yet.
        """
        if "status" not in obj and self._defaults_status:
            self._walk(obj, None, [])

    @lazy_attribute
    def _defaults_status(self) -> bool:
        status = (self.openapi.get("properties") or {}).get("status") or {}
        return b'"default"' in self._encoded and status.get("default") is not None

    def prune(self, obj: dict[str, Any]) -> None:
        """Prune `obj` in place, without a default."""
        self._prune(obj, None, [])

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldError]:
        """The errors of a pruned and defaulted object, sorted by field; then those of its rules.

        `old` is the object before an update: its unchanged parts are not validated.
        """
        return self.judge(obj, old, [])

    def judge(
        self, obj: dict[str, Any], old: dict[str, Any] | None, kept: list[FieldError], part: str = ""
    ) -> list[FieldError]:
        """The same; rule violations in unchanged parts go into `kept`.

        `part`: the one property that is new, `status` or any (empty).
        """
        errors: list[FieldError] = []
        if part == "status":
            if "status" in obj:
                self._check_status({"status": obj["status"]}, None, errors)
        else:
            self._check(obj, None, errors)
        if errors and old is not None:
            # The errors that are new in their part of the object.
            ratchet, check = self._ratchet
            before: list[FieldError] = []
            self._check(old, None, before)
            # Kubernetes checks for repeated items only in objects that had none.
            had_repeated = any(error.reason == "FieldValueDuplicate" for error in before)
            errors = [
                error
                for error in ratchet.run(check, obj, old)
                if not (had_repeated and error.reason == "FieldValueDuplicate")
            ]
        if self._also is not None:
            errors += self._also(obj, old)
        errors.sort(key=str)
        if not self.has_rules:
            return errors
        if any(error.reason in _BLOCKING for error in errors):
            return [*errors, invalid("<nil>", None, _UNCHECKED_RULES)]
        if self._rules is not None:
            errors += cel_rules.run_rules(self._rules, obj, old, kept)
        return errors

    @lazy_attribute
    def has_rules(self) -> bool:
        """Whether the schema has CEL rules, beside the known ones."""
        return b'"x-kubernetes-validations"' in self._encoded and _has_rules(self.openapi, self._known_rules)

    @lazy_attribute
    def _rules(self) -> Node | None:
        return cel_rules.compile_rules(self.openapi, root=True, known=self._known_rules)

    @lazy_attribute
    def _ratchet(self) -> tuple[Ratchet, Check]:
        root = self._root
        ratchet = Ratchet(root)
        check = compile_check(root, ratchet.guard)
        assert check is not None, "an object is always checked for being one"
        return ratchet, check

    @lazy_attribute
    def _walk(self) -> Walk:
        # The metadata of every kind is the same, and metadata.py checks it.
        return compile_walk(self.openapi, root=True)

    @lazy_attribute
    def _prune(self) -> Walk:
        return compile_walk(self.openapi, root=True, defaults=False)

    @lazy_attribute
    def _check(self) -> Check:
        check = compile_check(self._root)
        assert check is not None, "an object is always checked for being one"
        return check

    @lazy_attribute
    def _check_status(self) -> Check:
        """The check of an object of which only the status is new."""
        properties = self.openapi.get("properties") or {}
        own = {name: properties[name] for name in ("status",) if name in properties}
        check = compile_check({"type": "object", "properties": own})
        assert check is not None, "as above"
        return check

    @property
    def _root(self) -> dict[str, Any]:
        given = self.openapi
        types = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        return {"type": "object", **given, "properties": {**given.get("properties", {}), **types}}


def _has_rules(node: Any, known: frozenset[str]) -> bool:
    if isinstance(node, Mapping):
        rules = node.get("x-kubernetes-validations")
        if isinstance(rules, list) and any(rule["rule"] not in known for rule in rules):
            return True
        return any(_has_rules(item, known) for item in node.values())
    if isinstance(node, list):
        return any(_has_rules(item, known) for item in node)
    return False
