"""Match conditions: CEL expressions that keep a request from a webhook before it is called.

They see `object`, `oldObject` and `request`; `authorizer` is not there, and a condition that asks it cannot
be evaluated.

Source: Kubernetes documentation, "Dynamic Admission Control", matchConditions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from certwright.apiserver.admission.webhook_config import Hook
from certwright.apiserver.backend import Call
from certwright.apiserver.objects import Json, decode_json, encode_json
from certwright.resources.errors import Details, FieldError, Forbidden, invalid, required

_VARIABLES = ("object", "oldObject", "request")
_MAX_KEPT = 1000


class Conditions:
    """Evaluates match conditions, compiled once each."""

    def __init__(self) -> None:
        self._compiled: dict[str, Any] = {}

    def hold(self, hook: Hook, call: Call, request: Json) -> bool:
        """Whether all conditions are true; one that is false decides, whatever else is wrong.

        Raises `Forbidden` when one cannot be evaluated and the webhook fails closed.
        """
        # Once through JSON: an object may hold parts that are kept as bytes, which expressions cannot see.
        request = decode_json(encode_json(request))
        data = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
        errors: list[str] = []
        for _name, expression in hook.conditions:
            value = self._value(expression, data, errors)
            if value is False:
                return False
        if not errors:
            return True
        if hook.fails_closed:
            raise _forbidden(call, request, errors)
        return False

    def _value(self, expression: str, data: Json, errors: list[str]) -> Any:
        # The library takes 12 MB: only who has conditions pays for it.
        from certwright.apiserver.schemas import cel

        try:
            compiled = self._compiled.get(expression)
            if compiled is None:
                if len(self._compiled) >= _MAX_KEPT:
                    self._compiled.clear()
                compiled = self._compiled[expression] = cel.Expression(expression, _VARIABLES)
            value = compiled.run(data)
        except (cel.CompileError, cel.EvaluationError) as error:
            errors.append(f"expression '{expression}' resulted in error: {error}")
            return None
        if type(value) is not bool:
            errors.append(f"expression '{expression}' resulted in error: the value is no boolean")
        return value


def errors_of(conditions: Iterable[Json], path: str) -> list[FieldError]:
    """What is wrong with the match conditions of a webhook: expressions that do not compile."""
    # See `Conditions._value`.
    from certwright.apiserver.schemas import cel

    errors: list[FieldError] = []
    for index, condition in enumerate(conditions):
        expression = condition.get("expression", "")
        at = f"{path}[{index}].expression"
        if not expression.strip():
            errors.append(required(at))
            continue
        try:
            cel.Expression(expression, _VARIABLES)
        except cel.CompileError as error:
            errors.append(invalid(at, expression, f"compilation failed: {error}"))
    return errors


def _forbidden(call: Call, request: Json, errors: list[str]) -> Forbidden:
    definition, name = call.definition, request.get("name", "")
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    return Forbidden(
        f'{definition.resource} "{name}" is forbidden: {text}',
        details=Details(name=name, group=definition.group, kind=definition.plural),
    )
