"""The CEL expressions of policies: their variables, their checks, and their evaluation.

They see `object`, `oldObject`, `request`, `namespaceObject`, `authorizer`, `variables`, and `params` where
the policy has parameters.

Source: Kubernetes documentation, "Validating Admission Policy", validation expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from certwright.kube.api.errors import FieldError, invalid, required
from certwright.kube.apiserver.cel import environment
from certwright.kube.apiserver.cel.meter import Meter
from certwright.kube.apiserver.model.objects import Json

_ALWAYS: Final = (
    "object",
    "oldObject",
    "request",
    "namespaceObject",
    "variables",
    "authorizer",
    "authorizer.requestResource",
)
_PARAMS: Final = "params"
_VARIABLE = re.compile(r"\bvariables\.([A-Za-z_][A-Za-z0-9_]*)")
_MAX_COMPILED: Final = 1000


class Failed(Exception):
    """An expression could not be evaluated; the text says which, and why."""


def names_of(*, has_params: bool) -> tuple[str, ...]:
    """The variables that an expression may use."""
    return (*_ALWAYS, _PARAMS) if has_params else _ALWAYS


def check(text: str, path: str, *, has_params: bool) -> list[FieldError]:
    """The errors of an expression: missing, or it does not compile."""
    if not text.strip():
        return [required(path, "expression is required")]
    try:
        environment.Expression(text, names_of(has_params=has_params))
    except environment.CompileError as error:
        return [invalid(path, text, f"compilation failed: {error}")]
    return []


class Compiler:
    """Compiles each expression once."""

    def __init__(self) -> None:
        self._compiled: dict[tuple[str, bool], environment.Expression] = {}

    def compile(self, text: str, *, has_params: bool) -> environment.Expression:
        """The compiled expression. Raises `environment.CompileError`."""
        key = (text, has_params)
        if key not in self._compiled:
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            self._compiled[key] = environment.Expression(text, names_of(has_params=has_params))
        return self._compiled[key]


class Evaluation:
    """The evaluation of a policy's expressions on one request with one parameter.

    `data` are the values of the variables. Those of `variables` are evaluated when an expression uses them;
    each may use those before it.
    """

    def __init__(
        self, compiler: Compiler, data: Mapping[str, Any], variables: Mapping[str, str], meter: Meter
    ) -> None:
        self._compiler = compiler
        self._has_params = _PARAMS in data
        self._data = dict(data)
        self._expressions = variables
        self._values: Json = {}
        self._failures: dict[str, str] = {}
        self._meter = meter

    def value(self, text: str) -> Any:
        """The value of an expression. Raises `Failed`."""
        for name in _VARIABLE.findall(text):
            self._prepare(name)
        try:
            return self._run(text)
        except (environment.CompileError, environment.EvaluationError) as error:
            why = str(error)
            for name in _VARIABLE.findall(text):
                if name in self._failures and name in why:
                    why = f'composited variable "{name}" fails to evaluate: {self._failures[name]}'
            raise Failed(f"expression '{text}' resulted in error: {why}") from None

    def _prepare(self, name: str) -> None:
        if name not in self._expressions or name in self._values or name in self._failures:
            return
        # Before those that it uses, so that two which use each other end.
        self._failures[name] = "it uses itself"
        text = self._expressions[name]
        for inner in _VARIABLE.findall(text):
            self._prepare(inner)
        try:
            self._values[name] = environment.reusable(self._run(text))
            del self._failures[name]
        except (environment.CompileError, environment.EvaluationError) as error:
            self._failures[name] = str(error)

    def _run(self, text: str) -> Any:
        compiled = self._compiler.compile(text, has_params=self._has_params)
        return compiled.run({**self._data, "variables": self._values}, self._meter)
