"""Match conditions: CEL expressions that filter the requests of a webhook before it is called.

They see `object`, `oldObject` and `request`, and may use `authorizer` to check permissions of the user, or of
a service account.

Source: Kubernetes documentation, "Dynamic Admission Control", matchConditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from certwright.kube.api.errors import Details, Forbidden
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.users import account_identity
from certwright.kube.apiserver.cel import authz, environment
from certwright.kube.apiserver.cel.authz import Question
from certwright.kube.apiserver.cel.limits import Meter
from certwright.kube.apiserver.model import offload
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.model.routes import Action, Authorizer
from certwright.kube.apiserver.webhooks.config import Hook
from certwright.kube.util.http_messages import Identity

_VARIABLES = ("object", "oldObject", "request", "namespaceObject", "authorizer", "authorizer.requestResource")
_MAX_KEPT = 1000
_ON_LOOP_S, _ASIDE_S = 0.025, 0.5
"""Seconds of processor time that the conditions of one webhook, or a policy with one parameter, may take on
the event loop and beside it."""
T = TypeVar("T")


async def within_time(call: Call, work: Callable[[Meter], T], *, uses_authorizer: bool) -> T:
    """The result of `work`, with the time that it may take. Large objects are evaluated beside the event
    loop, unless an expression uses the authorizer, whose state belongs to the loop."""
    if offload.is_long(call) and not uses_authorizer:
        return await offload.in_thread(call, work, Meter(_ASIDE_S, pauses=True))
    return work(Meter(_ON_LOOP_S))


def variables(call: Call, request: Json) -> Json:
    """What expressions see of a request to admission."""
    route = call.route
    return {
        "object": request["object"],
        "oldObject": request["oldObject"],
        "request": request,
        "namespaceObject": None,  # declared, and without a value for webhooks
        "authorizer": authz.AUTHORIZER,
        "authorizer.requestResource": authz.request_resource(
            route.group, route.plural, route.subresource, route.namespace, route.name
        ),
    }


class Conditions:
    """Evaluates match conditions, compiled once each. `authorizer` decides permissions for them."""

    def __init__(self, authorizer: Callable[[], Authorizer]) -> None:
        self._authorizer = authorizer
        self._compiled: dict[str, environment.Expression] = {}

    async def check(self, hook: Hook, call: Call, request: Json) -> bool:
        """Whether all conditions are true; a false condition decides, whatever errors others have.

        Raises `Forbidden` if a condition cannot be evaluated and the webhook fails closed.
        """
        texts = [text for _name, text in hook.conditions]
        if not self._compiled.keys() >= set(texts):
            # Before the time is measured: the first compilation takes longer than an evaluation may.
            await offload.run(None, self._prepare, texts)
        uses_authorizer = any("authorizer" in text for text in texts)
        hold = partial(self._hold, hook, call, request)
        return await within_time(call, hold, uses_authorizer=uses_authorizer)

    def _hold(self, hook: Hook, call: Call, request: Json, meter: Meter) -> bool:
        # Once through JSON: an object may contain parts that are kept as bytes, which expressions cannot see.
        data, errors = variables(call, decode_json(encode_json(request))), list[str]()
        with authz.asking(lambda question: decide(self._authorizer(), call.user, question)):
            if any(self._value(text, data, errors, meter) is False for _, text in hook.conditions):
                return False
        if not errors:
            return True
        if hook.fails_closed:
            definition, name = call.definition, request.get("name", "")
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            raise Forbidden(
                f'{definition.resource} "{name}" is forbidden: {text}',
                details=Details(name=name, group=definition.group, kind=definition.plural),
            )
        return False

    def _prepare(self, texts: Iterable[str]) -> None:
        for text in texts:
            with suppress(environment.CompileError):
                self._compile(text)

    def _compile(self, text: str) -> environment.Expression:
        expression = self._compiled.get(text)
        if expression is None:
            if len(self._compiled) >= _MAX_KEPT:
                self._compiled.clear()
            expression = self._compiled[text] = environment.Expression(text, _VARIABLES)
        return expression

    def _value(self, expression: str, data: Json, errors: list[str], meter: Meter) -> Any:
        try:
            value = self._compile(expression).run(data, meter)
        except (environment.CompileError, environment.EvaluationError) as error:
            errors.append(f"expression '{expression}' resulted in error: {error}")
            return None
        if type(value) is not bool:
            errors.append(f"expression '{expression}' resulted in error: the value is no boolean")
        return value


def decide(authorizer: Authorizer, user: Identity, question: Question) -> tuple[bool, str]:
    """The answer to an expression's `authorizer`: allowed or not, and why."""
    if question.account:
        namespace, _, name = question.account.partition("/")
        user = account_identity(namespace, name)
    action = Action(
        question.verb,
        question.group,
        question.resource,
        question.subresource,
        question.namespace,
        question.name,
        question.path,
    )
    return authorizer.explain(user, action)
