"""Whether the rules of a schema can be accepted: their texts, and that they compile.

Kubernetes also estimates what a rule may cost at worst and refuses those that may cost too much. Here the
cost is bounded when a rule runs instead (see `cel_rules`).

Source: Kubernetes API reference, ValidationRule v1 apiextensions; apiextensions-apiserver
`pkg/apis/apiextensions/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from certwright.apiserver.schemas import field_paths
from certwright.apiserver.schemas.schema_walk import EMBEDDED
from certwright.resources.errors import FieldError, invalid, not_supported, required

if TYPE_CHECKING:
    from certwright.apiserver.schemas.cel import Checker

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
    """What is wrong with the rules in the whole (structural) schema, sorted.

    Rules whose text is in `known` are taken as they are.
    """
    return sorted(_node(path, schema, known, root=True, loose=""), key=str)


def _node(path: str, schema: Schema, known: Collection[str], *, root: bool, loose: str) -> list[FieldError]:
    """`loose` is the path of the nearest list above whose items cannot be told apart over time."""
    errors: list[FieldError] = []
    for where, child, child_loose in _children(path, schema, loose):
        errors += _node(where, child, known, root=bool(child.get(EMBEDDED)), loose=child_loose)
    rules = [
        (f"{path}.{RULES}[{index}]", rule)
        for index, rule in enumerate(schema.get(RULES) or ())
        if rule.get("rule") not in known
    ]
    for where, rule in rules:
        errors += _text_errors(where, rule, schema)
    if rules and not errors:
        errors += _compile_errors(path, schema, rules, root=root, loose=loose)
    return errors


def _children(path: str, schema: Schema, loose: str) -> Iterator[tuple[str, Schema, str]]:
    for key, prop in (schema.get("properties") or {}).items():
        yield f"{path}.properties[{key}]", prop, loose
    if isinstance(extra := schema.get("additionalProperties"), Mapping):
        yield f"{path}.additionalProperties", extra, loose
    if isinstance(items := schema.get("items"), Mapping):
        is_map = schema.get("x-kubernetes-list-type") == "map"
        yield f"{path}.items", items, loose if is_map or loose else path


# --- texts ------------------------------------------------------------------------------------------------


def _text_errors(path: str, rule: Mapping[str, Any], schema: Schema) -> list[FieldError]:
    errors = _message_errors(path, rule)
    words, reason = rule.get("messageExpression") or "", rule.get("reason")
    if words and not words.strip():
        text = "messageExpression must be non-empty if specified"
        errors.append(required(f"{path}.messageExpression", text))
    if reason is not None and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    return errors + _field_path_errors(f"{path}.fieldPath", rule.get("fieldPath") or "", schema)


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


def _field_path_errors(path: str, value: str, schema: Schema) -> list[FieldError]:
    errors = []
    if value and not value.strip():
        errors.append(invalid(path, value, "must be non-empty if specified"))
    if _LINE_BREAK.search(value):
        errors.append(invalid(path, value, "must not contain line breaks"))
    try:
        field_paths.resolve(value, schema)
    except ValueError:
        errors.append(invalid(path, value, "must be a valid path"))
    return errors


# --- compiling --------------------------------------------------------------------------------------------


def _compile_errors(
    path: str, schema: Schema, rules: list[tuple[str, Mapping[str, Any]]], *, root: bool, loose: str
) -> list[FieldError]:
    # Imported here because CEL takes 12 MB, and most servers never see a rule.
    from certwright.apiserver.schemas import cel_schema

    checker = cel_schema.checker(schema, root=root)
    if checker is None:
        return [FieldError(f"{path}.{RULES}", "InternalError", _NO_TYPE)]
    errors = []
    for where, rule in rules:
        errors += _one_rule(checker, where, rule, loose=loose)
    return errors


def _one_rule(checker: Checker, path: str, rule: Mapping[str, Any], *, loose: str) -> list[FieldError]:
    optional = rule.get("optionalOldSelf")
    check = partial(checker.check, optional_old=bool(optional))
    uses_old, problem = _check(check, rule["rule"], "bool")
    errors = []
    if problem:
        errors.append(_refused(f"{path}.rule", rule, problem))
    elif words := rule.get("messageExpression"):
        _, problem = _check(check, words, "string")
        if problem:
            errors.append(_refused(f"{path}.messageExpression", rule, problem))
    if uses_old and loose:
        text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {loose}"
        errors.append(invalid(f"{path}.rule", rule["rule"], text))
    elif not uses_old and optional is not None:
        text = "may not be set if oldSelf is not used in rule"
        errors.append(invalid(f"{path}.optionalOldSelf", optional, text))
    return errors


def _check(check: Callable[[str], Any], expression: str, wanted: str) -> tuple[bool, str]:
    """Whether the expression looks at `oldSelf`, and what is wrong with it."""
    from certwright.apiserver.schemas.cel import CompileError  # see above

    is_rule = wanted == "bool"
    try:
        found = check(expression)
    except CompileError as error:
        return False, f"{'' if is_rule else 'messageExpression '}compilation failed: {error}"
    if found.gives != wanted:
        return False, "cel expression must evaluate to a bool" if is_rule else (
            "messageExpression must evaluate to a string"
        )
    return found.uses_old, ""


def _refused(path: str, rule: Mapping[str, Any], problem: str) -> FieldError:
    # Kubernetes shows its own form of the rule.
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
