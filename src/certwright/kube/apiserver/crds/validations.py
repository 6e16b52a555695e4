"""Validation of CEL rules in a schema: their fields, and that they compile.

Source: Kubernetes API reference, ValidationRule v1 apiextensions; apiextensions-apiserver
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported, required
from certwright.kube.apiserver.base import schema_common
from certwright.kube.apiserver.base.schema_common import EMBEDDED
from certwright.kube.apiserver.cel import schema as cel_schema
from certwright.kube.apiserver.cel.checker import Checker
from certwright.kube.apiserver.cel.environment import CompileError

Schema = Mapping[str, Any]

RULES = "x-kubernetes-validations"
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_NO_TYPE = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations "
    "rules: unable to convert structural schema to CEL declarations"
)
_LINE_BREAK = re.compile(r"[\n\r]")
_GO_ESCAPES = {"&": "\\u0026", "<": "\\u003c", ">": "\\u003e"}


def rule_errors(path: str, schema: Schema, known: Collection[str] = frozenset()) -> list[FieldError]:
    """The errors of the rules in the whole (structural) schema, sorted.

    Rules whose text is in `known` are accepted unchecked.
    """
    errors = _node(_Place(path, schema, root=True), known)
    return sorted(errors.texts + errors.rules, key=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """A place in a schema.

    `loose` is the path of the nearest enclosing list whose items cannot be correlated with old ones.
    """

    path: str = field(kw_only=False)
    schema: Schema = field(kw_only=False)
    root: bool = False
    loose: str = ""

    def children(self) -> Iterator[_Place]:
        """The places directly below."""
        schema = self.schema
        for key, prop in (schema.get("properties") or {}).items():
            yield self._child(f"properties[{key}]", prop, self.loose)
        if isinstance(extra := schema.get("additionalProperties"), Mapping):
            yield self._child("additionalProperties", extra, self.loose)
        if isinstance(items := schema.get("items"), Mapping):
            is_map = schema.get("x-kubernetes-list-type") == "map"
            yield self._child("items", items, self.loose if is_map or self.loose else self.path)

    def _child(self, name: str, schema: Schema, loose: str) -> _Place:
        embedded = bool(schema.get(EMBEDDED))
        return _Place(f"{self.path}.{name}", schema, root=embedded, loose=loose)


class _Errors(NamedTuple):
    """The errors in the fields of rules, and in their expressions."""

    texts: list[FieldError]
    rules: list[FieldError]


def _node(place: _Place, known: Collection[str]) -> _Errors:
    errors = _Errors([], [])
    for child in place.children():
        child_errors = _node(child, known)
        errors.texts.extend(child_errors.texts)
        errors.rules.extend(child_errors.rules)
    rules = [
        (f"{place.path}.{RULES}[{index}]", rule)
        for index, rule in enumerate(place.schema.get(RULES) or ())
        if rule.get("rule") not in known
    ]
    for where, rule in rules:
        errors.texts.extend(_text_errors(where, rule, place.schema))
    if not rules or errors.texts:
        # Until the schema is valid, errors about expressions would be misleading.
        return errors
    try:
        checker = cel_schema.checker(place.schema, root=place.root)
    except CompileError as error:
        errors.rules.append(forbidden(f"{place.path}.{RULES}", str(error)))
        return errors
    if checker is None:
        errors.rules.append(FieldError(f"{place.path}.{RULES}", "InternalError", _NO_TYPE))
        return errors
    for where, rule in rules:
        errors.rules.extend(_rule_errors(checker, where, rule, place))
    return errors


# --- texts ------------------------------------------------------------------------------------------------


def _text_errors(path: str, rule: Mapping[str, Any], schema: Schema) -> list[FieldError]:
    errors = _message_errors(path, rule)
    words, reason = rule.get("messageExpression") or "", rule.get("reason")
    if words and not words.strip():
        text = "messageExpression must be non-empty if specified"
        errors.append(required(f"{path}.messageExpression", text))
    if reason is not None and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    where, value = f"{path}.fieldPath", rule.get("fieldPath") or ""
    if value and not value.strip():
        errors.append(invalid(where, value, "must be non-empty if specified"))
    if _LINE_BREAK.search(value):
        errors.append(invalid(where, value, "must not contain line breaks"))
    try:
        schema_common.resolve(value, schema)
    except ValueError:
        errors.append(invalid(where, value, "must be a valid path"))
    return errors


def _message_errors(path: str, rule: Mapping[str, Any]) -> list[FieldError]:
    text, message = rule["rule"].strip(), rule.get("message") or ""
    if not text:
        return [required(f"{path}.rule", "rule is not specified")]
    if message and not message.strip():
        return [invalid(f"{path}.message", message, "must be non-empty if specified")]
    if _LINE_BREAK.search(message.strip()):
        return [invalid(f"{path}.message", message, "must not contain line breaks")]
    if _LINE_BREAK.search(text) and not message:
        return [required(f"{path}.message", "message must be specified if rule contains line breaks")]
    return []


def _check(checker: Checker, rule: Mapping[str, Any], name: str) -> tuple[bool, str]:
    """Whether the expression in this field of the rule uses `oldSelf`, and its error."""
    is_rule = name == "rule"
    try:
        checked = checker.check(rule[name], optional_old=bool(rule.get("optionalOldSelf")))
    except CompileError as error:
        return False, f"{'' if is_rule else 'messageExpression '}compilation failed: {error}"
    if is_rule and checked.gives != "bool":
        return False, "cel expression must evaluate to a bool"
    if not is_rule and checked.gives != "string":
        return False, "messageExpression must evaluate to a string"
    return checked.uses_old, ""


def _rule_errors(checker: Checker, path: str, rule: Mapping[str, Any], place: _Place) -> list[FieldError]:
    optional = rule.get("optionalOldSelf")
    uses_old, problem = _check(checker, rule, "rule")
    errors = []
    if problem:
        errors.append(_refused(f"{path}.rule", rule, problem))
    elif rule.get("messageExpression"):
        _, problem = _check(checker, rule, "messageExpression")
        if problem:
            errors.append(_refused(f"{path}.messageExpression", rule, problem))
    if uses_old and place.loose:
        text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.loose}"
        errors.append(invalid(f"{path}.rule", rule["rule"], text))
    elif not uses_old and optional is not None:
        text = "may not be set if oldSelf is not used in rule"
        errors.append(invalid(f"{path}.optionalOldSelf", optional, text))
    return errors


def _refused(path: str, rule: Mapping[str, Any], problem: str) -> FieldError:
    # Kubernetes prints its internal form of the rule.
    shown = {
        "Rule": rule["rule"],
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }
    text = msgspec.json.encode(shown).decode()
    for mark, escaped in _GO_ESCAPES.items():
        text = text.replace(mark, escaped)
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {text}: {problem}")
