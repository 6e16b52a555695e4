"""The CEL expressions of policies: their variables, their checks, and their evaluation.

They see `object`, `oldObject`, `request`, `namespaceObject`, `authorizer`, `variables`, and `params` where
the policy has parameters, but for what their `Role` excludes.

Source: Kubernetes documentation, "Validating Admission Policy", validation expression; API reference,
ValidatingAdmissionPolicySpec v1 admissionregistration.k8s.io.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec

from certwright.kube.api.errors import FieldError, duplicate, invalid, required, too_many
from certwright.kube.api.naming import label_key_problems
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.cel import environment
from certwright.kube.apiserver.cel.limits import Meter

_ALWAYS: Final = ("object", "oldObject", "request", "namespaceObject")
_AUTHORIZER: Final = ("authorizer", "authorizer.requestResource")
_VARIABLES: Final = "variables"
_PARAMS: Final = "params"
_OF_REQUEST: Final[Mapping[str, tuple[str, ...]]] = {
    "request": (
        "kind", "resource", "subResource", "requestKind", "requestResource", "requestSubResource", "name",
        "namespace", "operation", "userInfo", "dryRun", "options",
    ),
    **dict.fromkeys(("request.kind", "request.requestKind"), ("group", "version", "kind")),
    **dict.fromkeys(("request.resource", "request.requestResource"), ("group", "version", "resource")),
    "request.userInfo": ("username", "uid", "groups", "extra"),
}  # fmt: skip
"""The fields of an AdmissionRequest that expressions may select."""
_TYPED: Final = ("request", "namespaceObject")
"""Variables whose fields have types in Kubernetes, and none here; so have those of a policy."""
_MAX_CONDITIONS: Final = 64


class Failed(Exception):
    """An expression could not be evaluated; the text says which, and why."""


class Role(NamedTuple):
    """The role of an expression: the allowed types of its value (empty: any), and its variables."""

    gives: tuple[str, ...] = ()
    has_authorizer: bool = True
    has_variables: bool = True


VARIABLE: Final = Role()
CONDITION: Final = Role(("bool",), has_variables=False)
"""Without variables, "because MatchConditions are evaluated before the rest of the policy"."""
VALIDATION: Final = Role(("bool",))
MESSAGE: Final = Role(("string",), has_authorizer=False)
AUDIT: Final = Role(("string", "null"))


def _names(role: Role, *, has_params: bool) -> tuple[str, ...]:
    return (
        *_ALWAYS,
        *(_AUTHORIZER if role.has_authorizer else ()),
        *((_VARIABLES,) if role.has_variables else ()),
        *((_PARAMS,) if has_params else ()),
    )


def check(
    text: str, path: str, role: Role, *, has_params: bool, variables: Collection[str] = ()
) -> list[FieldError]:
    """The errors of an expression: it is missing, does not compile, has another type, or uses a variable that
    `variables` lacks.

    A type that is known only at evaluation is accepted, where Kubernetes knows it before.
    """
    if not text.strip():
        return [required(path, "expression is not specified")]
    try:
        compiled = environment.Expression(text, _names(role, has_params=has_params))
    except environment.CompileError as error:
        return [invalid(path, text, f"compilation failed: {error}")]
    if unknown := sorted(compiled.fields_of(_VARIABLES) - set(variables)):
        return [invalid(path, text, f"compilation failed: undefined field '{unknown[0]}'")]
    for name, fields in _OF_REQUEST.items():
        if unknown := sorted(compiled.fields_of(name) - set(fields)):
            return [invalid(path, text, f"compilation failed: undefined field '{unknown[0]}'")]
    typed = role.has_variables or any(compiled.fields_of(name) - {"options"} for name in _TYPED)
    unsure = compiled.gives == "dyn" and typed
    if role.gives and compiled.gives not in role.gives and not unsure:
        expected = role.gives[0] if len(role.gives) == 1 else f"one of [{' '.join(role.gives)}]"
        return [invalid(path, text, f"must evaluate to {expected} but got {compiled.gives}")]
    return []


def condition_errors(conditions: Sequence[Json], path: str, *, has_params: bool) -> list[FieldError]:
    """The errors of the match conditions of a policy or of a webhook."""
    if len(conditions) > _MAX_CONDITIONS:
        return [too_many(path, len(conditions), _MAX_CONDITIONS)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at, name = f"{path}[{index}]", condition.get("name") or ""
        if not name:
            errors.append(required(f"{at}.name"))
        elif name in seen:
            errors.append(duplicate(f"{at}.name", name))
        else:
            errors += [invalid(f"{at}.name", name, problem) for problem in label_key_problems(name)]
        seen.add(name)
        expression = condition.get("expression") or ""
        errors += check(expression, f"{at}.expression", CONDITION, has_params=has_params)
    return errors


class _Compiled(msgspec.Struct, frozen=True):
    """A compiled expression, and the variables that it uses."""

    expression: environment.Expression
    variables: frozenset[str]


class Compiler:
    """Compiles each expression of a policy once."""

    def __init__(self, *, has_params: bool) -> None:
        self._names = _names(VARIABLE, has_params=has_params)
        self._compiled: dict[str, _Compiled] = {}

    def prepare(self, texts: Iterable[str]) -> None:
        """Compile these expressions. The evaluation of an invalid expression reports the error."""
        for text in texts:
            with suppress(environment.CompileError):
                self.compile(text)

    def compile(self, text: str) -> _Compiled:
        """The compiled expression. Raises `environment.CompileError`."""
        compiled = self._compiled.get(text)
        if compiled is None:
            expression = environment.Expression(text, self._names)
            compiled = self._compiled[text] = _Compiled(expression, expression.fields_of(_VARIABLES))
        return compiled


class Evaluation:
    """The evaluation of a policy's expressions on one request with one parameter.

    `data`: the values of variables. The expressions of `variables` are evaluated when used; each may use
    earlier ones.
    """

    def __init__(
        self, compiler: Compiler, data: Mapping[str, Any], variables: Mapping[str, str], meter: Meter
    ) -> None:
        self._compiler = compiler
        self._data = dict(data)
        self._expressions = variables
        self._values: Json = {}
        self._failures: dict[str, str] = {}
        self._meter = meter

    def value(self, text: str) -> Any:
        """The value of an expression. Raises `Failed`."""
        try:
            return self._run(text)
        except (environment.CompileError, environment.EvaluationError) as error:
            raise Failed(f"expression '{text}' resulted in error: {error}") from None

    def _run(self, text: str) -> Any:
        compiled = self._compiler.compile(text)
        for name in compiled.variables:
            self._prepare(name)
        try:
            return compiled.expression.run({**self._data, _VARIABLES: self._values}, self._meter)
        except environment.EvaluationError as error:
            why = str(error)
            for name in compiled.variables & self._failures.keys():
                if why == f"no such key: {name}":
                    why = f'composited variable "{name}" fails to evaluate: {self._failures[name]}'
            raise environment.EvaluationError(why) from None

    def _prepare(self, name: str) -> None:
        if name not in self._expressions or name in self._values or name in self._failures:
            return
        # Recorded before its variables are compiled, so that a cycle of variables ends.
        self._failures[name] = "it uses itself"
        try:
            self._values[name] = environment.reusable(self._run(self._expressions[name]))
            del self._failures[name]
        except (environment.CompileError, environment.EvaluationError) as error:
            self._failures[name] = str(error)
