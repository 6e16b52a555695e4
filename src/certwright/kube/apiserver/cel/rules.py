"""Validation rules of a schema: compiled, and evaluated on a new object and its old state.

Only changes are validated: where a part of an object is unchanged, a rule that depends on nothing else is
skipped ("ratcheting"). A rule that compares with `oldSelf` always runs, but only where there is an old value.

Source: KEP-2876, KEP-4008; Kubernetes documentation, "Validation rules".
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from certwright.kube.api.errors import FieldError, duplicate, forbidden, invalid, required
from certwright.kube.apiserver.base import schema_common
from certwright.kube.apiserver.base.json_values import same
from certwright.kube.apiserver.base.schema_common import EMBEDDED, MapKey, Path, old_items, show_path
from certwright.kube.apiserver.cel import environment
from certwright.kube.apiserver.cel.limits import Meter
from certwright.kube.apiserver.cel.schema import Convert, converter

RULES = "x-kubernetes-validations"

MAX_SECONDS = 1.0
"""Seconds of processor time that the rules of one object may take. Kubernetes counts cost instead; its limit
is about the same. Other threads run in the pauses of the `Meter`."""
MAX_VALUES = 100_000
"""Values (fields, items) in the input of a rule. Passing them to the library takes 15 to 30 ms, in which no
other thread runs."""
_MAX_MESSAGE = 5 * 1024


class _Exhausted(Exception):
    """No further rules run."""


@dataclass(slots=True)
class _Run:
    """One validation in progress. `is_large`: some part of the object has more than `MAX_VALUES` values."""

    meter: Meter
    is_large: bool
    errors: list[FieldError] = field(default_factory=list)
    kept: list[FieldError] = field(default_factory=list)

    def check(self, rule: _Rule, values: tuple[Any, Any], path: Path, kind: str) -> None:
        """Raise `_Exhausted` if no processor time is left, or the rule's values are too many."""
        if self.meter.is_exhausted:
            reason = (
                "validation failed due to running out of cost budget, no further validation rules will be run"
                f" ({self.meter.shown} of processor time for the rules of one object) for rule: {rule.shown}"
            )
        elif self.is_large and any(map(_is_large, values)):
            reason = (
                f"the value has more than {MAX_VALUES} fields and items, no further validation rules will be"
                f" run due to this limit for rule: {rule.shown}"
            )
        else:
            return
        self.errors.append(invalid(_field(path), kind, reason))
        raise _Exhausted


def _is_large(value: Any) -> bool:
    count, waiting = 0, [value]
    while waiting:
        inner = waiting.pop()
        count += 1
        if type(inner) is dict:
            waiting += inner.values()
        elif type(inner) is list:
            waiting += inner
        if count + len(waiting) > MAX_VALUES:
            return True
    return False


class _Rule:
    """One compiled rule."""

    def __init__(self, given: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
        self.text: str = given["rule"].strip()
        self.message: str = (given.get("message") or "").strip()
        self.reason: str = given.get("reason") or ""
        try:
            self.field_path = schema_common.resolve(given.get("fieldPath") or "", schema)[0]
        except ValueError:
            # It was not checked when the definition was accepted; the place of the rule is used instead.
            self.field_path = ""
        self.optional_old = bool(given.get("optionalOldSelf"))
        self.program = environment.Program(given["rule"], optional_old=self.optional_old)
        words = given.get("messageExpression")
        self.words = environment.Program(words, optional_old=self.optional_old) if words else None

    @property
    def transition(self) -> bool:
        """Whether it compares with the old value."""
        return self.program.uses_old

    def detail(self, new: Any, old: Any, meter: Meter) -> str:
        """The message for a refused value."""
        if self.words is not None:
            try:
                text = self.words.run(new, old, meter)
            except environment.EvaluationError:
                text = None
            text = text.strip() if isinstance(text, str) else ""
            if text and "\n" not in text and len(text.encode()) <= _MAX_MESSAGE:
                return text
        return self.message or f"failed rule: {self.text}"

    @property
    def shown(self) -> str:
        """Its name in error messages."""
        return self.message or self.text


@dataclass(slots=True)
class Node:
    """The rules on one place of a schema and on the places below it."""

    schema: Mapping[str, Any]
    rules: list[_Rule]
    convert: Convert | None
    properties: dict[str, Node]
    additional: Node | None
    items: Node | None

    @property
    def kind(self) -> str:
        """The type in the schema, which replaces the value in some errors."""
        return str(self.schema.get("type", ""))


def compile_rules(
    schema: Mapping[str, Any], *, root: bool = False, known: Collection[str] = frozenset()
) -> Node | None:
    """The rules in `schema`, less those whose text is in `known`; None where there are none.

    Raises `cel.CompileError`; the rule was checked when its definition was accepted.
    """
    given = [rule for rule in schema.get(RULES) or () if rule["rule"].strip() and rule["rule"] not in known]
    rules = [_Rule(rule, schema) for rule in given]
    properties = {
        key: child
        for key, prop in schema.get("properties", {}).items()
        if (child := _compile_child(prop, known)) is not None
    }
    additional = _compile_child(schema.get("additionalProperties"), known)
    items = _compile_child(schema.get("items"), known)
    if not (rules or properties or additional or items):
        return None
    convert = converter(schema, root=root) if rules else None
    return Node(schema, rules, convert, properties, additional, items)


def _compile_child(schema: Any, known: Collection[str]) -> Node | None:
    if not isinstance(schema, Mapping):
        return None
    return compile_rules(schema, root=bool(schema.get(EMBEDDED)), known=known)


def run_rules(
    node: Node,
    new: Any,
    old: Any,
    kept: list[FieldError] | None = None,
    *,
    clock: Callable[[], float] = time.thread_time,
) -> list[FieldError]:
    """The rule violations of `new`; `old` is None for a new object.

    A violation in an unchanged part that existed before is no error; it goes into `kept`. `clock`: of the
    processor time that the thread has used, in seconds.
    """
    run = _Run(Meter(MAX_SECONDS, clock), is_large=_is_large(new) or _is_large(old))
    try:
        _visit(run, node, _Part(new, old, None))
    except _Exhausted:
        pass
    if kept is not None:
        kept += run.kept
    return run.errors


class _Part(NamedTuple):
    """A part of the object, the part of the old object, and the path. `unchanged`: the parent is
    unchanged."""

    new: Any
    old: Any
    path: Path
    unchanged: bool = False


def _visit(run: _Run, node: Node, part: _Part) -> None:
    new, old, path, unchanged = part
    if new is None:
        return
    if not unchanged and old is not None:
        unchanged = same(new, old)
    _apply_rules(run, node, _Part(new, old, path, unchanged))
    if type(new) is dict:
        old = old if type(old) is dict else {}
        for key, child in node.properties.items():
            if key in new:
                _visit(run, child, _Part(new[key], old.get(key), (path, key), unchanged))
        if node.additional is not None:
            for key, item in new.items():
                _visit(run, node.additional, _Part(item, old.get(key), (path, MapKey(key)), unchanged))
    elif type(new) is list and node.items is not None:
        before = old_items(node.schema, old)
        for index, item in enumerate(new):
            _visit(run, node.items, _Part(item, before(item), (path, index), unchanged))


def _apply_rules(run: _Run, node: Node, part: _Part) -> None:
    due = [rule for rule in node.rules if not rule.transition or part.old is not None or rule.optional_old]
    if not due:
        return
    values = (part.new, part.old)
    if node.convert is not None:
        values = (node.convert(part.new), node.convert(part.old))
    for rule in due:
        _apply(run, node, rule, part, values)


def _apply(run: _Run, node: Node, rule: _Rule, part: _Part, values: tuple[Any, Any]) -> None:
    """Apply one rule to the values of a part, which are converted for rules."""
    run.check(rule, values, part.path, node.kind)
    # Without a comparison with the old value, a rule on an unchanged value gives no new result.
    into = run.kept if part.unchanged and not rule.transition else run.errors
    try:
        holds = rule.program.run(*values, run.meter)
    except environment.EvaluationError as error:
        into.append(invalid(_field(part.path), node.kind, _failure_text(error, rule)))
        if isinstance(error, environment.CostExceeded):
            raise _Exhausted from None
        return
    if holds is not True:
        where = _field(part.path)
        if rule.field_path:
            where = f"{show_path(part.path)}.{rule.field_path}".removeprefix(".")
        into.append(_refusal(where, node, rule, part.new, rule.detail(*values, run.meter)))


def _failure_text(error: environment.EvaluationError, rule: _Rule) -> str:
    if isinstance(error, environment.CostExceeded):
        return (
            f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: "
            f"{rule.shown}"
        )
    if str(error).startswith("no such overload"):
        return (
            f"'{error}': call arguments did not match a supported operator, function or macro signature for "
            f"rule: {rule.shown}"
        )
    return f"{error} evaluating rule: {rule.shown}"


def _refusal(where: str, node: Node, rule: _Rule, new: Any, detail: str) -> FieldError:
    if rule.reason == "FieldValueForbidden":
        return forbidden(where, detail)
    if rule.reason == "FieldValueRequired":
        return required(where, detail)
    # Objects and lists are not shown.
    hidden = node.kind in ("object", "array")
    if rule.reason == "FieldValueDuplicate":
        return FieldError(where, rule.reason, "Duplicate value") if hidden else duplicate(where, new)
    if hidden:
        return FieldError(where, "FieldValueInvalid", f"Invalid value: {detail}")
    return invalid(where, new, detail)


def _field(path: Path) -> str:
    return show_path(path) or "<nil>"
