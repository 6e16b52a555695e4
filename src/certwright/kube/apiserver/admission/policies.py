"""ValidatingAdmissionPolicies: which of them match a request, with which parameters, and what follows.

Without a binding this costs one comparison per write. Policies, bindings and webhook configurations are
exempt: otherwise a broken policy could not be deleted.

Source: Kubernetes documentation, "Validating Admission Policy".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec

from certwright.kube.api.errors import ApiError, Cause, Details
from certwright.kube.apiserver.admission.policy_params import BadConfiguration, Params, plain
from certwright.kube.apiserver.admission.review import attributes
from certwright.kube.apiserver.cel import authz
from certwright.kube.apiserver.cel.authz import Question
from certwright.kube.apiserver.cel.meter import Meter
from certwright.kube.apiserver.crds.conversion import Conversions
from certwright.kube.apiserver.model import objects, offload
from certwright.kube.apiserver.model.backend import Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.namespaces import BUCKET as NAMESPACES
from certwright.kube.apiserver.model.objects import Json
from certwright.kube.apiserver.policies.config import (
    Binding,
    Match,
    Policy,
    Validation,
    compile_binding,
    compile_policy,
)
from certwright.kube.apiserver.policies.expressions import Compiler, Evaluation, Failed
from certwright.kube.apiserver.requests.selectors import Requirement, labels_match
from certwright.kube.apiserver.verbs.deletes import every_row
from certwright.kube.apiserver.webhooks.config import GROUP
from certwright.kube.apiserver.webhooks.match_conditions import decide
from certwright.kube.store.contract import Key, Row

_log = logging.getLogger(__name__)

_POLICIES = f"{GROUP}/validatingadmissionpolicies"
_BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}
_ON_LOOP_S, _ASIDE_S = 0.025, 0.5
"""Seconds of processor time that one policy may take for one parameter, on the event loop and beside it."""
_MAX_MESSAGE = 5 * 1024


class _Enforced(msgspec.Struct, frozen=True):
    """A policy that a binding enforces."""

    policy: Policy
    binding: Binding


class _Violation(msgspec.Struct, frozen=True):
    """Why a request does not meet a policy. An error in the configuration is always a refusal."""

    message: str
    reason: str = "Invalid"
    is_configuration: bool = False


class _Subject(msgspec.Struct, frozen=True):
    """A request, as policies see it."""

    call: Call
    request: Json
    namespace: Json | None


class Policies:
    """All policies of a server; an observer of them and of their bindings."""

    observed_buckets = frozenset((_POLICIES, _BINDINGS))

    def __init__(self, backend: Backend, conversions: Conversions) -> None:
        self._backend = backend
        self._conversions = conversions
        self._params = Params(backend, conversions)
        self._compiler = Compiler()
        self._policies: dict[str, Policy] = {}
        self._bindings: dict[str, Binding] = {}
        self._kept: dict[tuple[ResourceDefinition, str, str], tuple[_Enforced, ...]] = {}
        self._generation = -1

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Apply a committed policy or binding."""
        self._kept.clear()
        name, obj = row.key.name, objects.to_object(definition, row)
        try:
            if row.key.bucket == _POLICIES:
                self._policies[name] = compile_policy(obj)
            else:
                self._bindings[name] = compile_binding(obj)
        except (KeyError, TypeError, AttributeError) as error:
            # The schema refuses such an object; one written to the store directly must not stop the server.
            _log.error("%s %s is not understood and not used: %r", definition.kind, name, error)
            self._forget(row)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Remove a deleted policy or binding."""
        self._kept.clear()
        self._forget(row)

    def _forget(self, row: Row) -> None:
        if row.key.bucket == _POLICIES:
            self._policies.pop(row.key.name, None)
        else:
            self._bindings.pop(row.key.name, None)

    async def load(self) -> None:
        """Load the policies and bindings in the store."""
        for bucket in sorted(self.observed_buckets):
            group, _, plural = bucket.partition("/")
            definition = self._backend.registry.by_resource(group, plural)
            if definition is not None:
                for row in await every_row(self._backend, definition, ""):
                    self.wrote(definition, row, None)

    async def validate(self, call: Call, new: Json | None, old: Json | None, operation: str) -> None:
        """Add warnings to the call. Raises the refusal of a policy."""
        for enforced in self._matching(call, operation):
            await self._enforce(enforced, call, new, old, operation)

    def concern(self, call: Call, operation: str) -> bool:
        """Whether a policy may match the request."""
        return bool(self._matching(call, operation))

    def _matching(self, call: Call, operation: str) -> tuple[_Enforced, ...]:
        if not self._bindings:
            return ()
        if self._generation != self._backend.registry.generation:
            self._generation = self._backend.registry.generation
            self._kept.clear()
        at = (call.definition, call.route.subresource, operation)
        if at not in self._kept:
            self._kept[at] = tuple(self._find(*at))
        return self._kept[at]

    def _find(self, definition: ResourceDefinition, subresource: str, operation: str) -> Iterable[_Enforced]:
        if definition.group == GROUP:
            return
        for _, binding in sorted(self._bindings.items()):
            policy = self._policies.get(binding.policy)
            if policy is None:
                continue
            version_for = partial(
                self._version_for, definition=definition, subresource=subresource, operation=operation
            )
            if all(version_for(match) is not None for match in (policy.match, binding.match)):
                yield _Enforced(policy, binding)

    def _version_for(
        self,
        match: Match,
        definition: ResourceDefinition,
        subresource: str,
        operation: str,
        name: str | None = None,
    ) -> ResourceDefinition | None:
        """The version of the resource that matches, the request's own first; None: none does, or one is
        excluded. `name` None: any name."""
        versions = [definition]
        if match.equivalent:
            versions += [one for one in self._backend.registry.all() if one.bucket == definition.bucket]
        if any(match.excludes(one, subresource, operation, name) for one in versions):
            return None
        return next((one for one in versions if match.includes(one, subresource, operation, name)), None)

    async def _enforce(
        self, enforced: _Enforced, call: Call, new: Json | None, old: Json | None, operation: str
    ) -> None:
        policy, binding = enforced.policy, enforced.binding
        name = call.route.name or ((new or {}).get("metadata") or {}).get("name", "")
        request_of = (call.definition, call.route.subresource, operation, name)
        definition = self._version_for(policy.match, *request_of)
        if definition is None or self._version_for(binding.match, *request_of) is None:
            return
        labels = [(obj["metadata"].get("labels") or {}) for obj in (new, old) if obj is not None]
        for match in (policy.match, binding.match):
            if match.object_labels and not any(labels_match(match.object_labels, one) for one in labels):
                return
        namespace = await self._namespace_of(call, new, operation)
        for match in (policy.match, binding.match):
            if not _namespace_matches(match.namespace_labels, namespace):
                return
        if definition.conversion is not None:
            new = new and await self._conversions.shown(definition, new)
            old = old and await self._conversions.shown(definition, old)
        request = attributes(call, definition, new, old, operation)
        subject = _Subject(call, plain(request), namespace)
        for violation in await self._violations(enforced, subject):
            self._react(enforced, subject, violation)

    async def _violations(self, enforced: _Enforced, subject: _Subject) -> list[_Violation]:
        policy = enforced.policy
        namespace = subject.request.get("namespace", "")
        try:
            params = await self._params.find(policy, enforced.binding, namespace)
        except BadConfiguration as error:
            return [_Violation(str(error), is_configuration=True)] if policy.fails_closed else []
        found: list[_Violation] = []
        for one in params:
            judge = partial(self._judge, policy, subject, one)
            if offload.is_long(subject.call) and not _uses_authorizer(policy):
                found += await offload.run(judge, _ASIDE_S)
            else:
                found += judge(_ON_LOOP_S)
        return found

    def _judge(
        self, policy: Policy, subject: _Subject, params: Json | None, seconds: float
    ) -> list[_Violation]:
        """The violations with one parameter. Raises nothing."""
        request, route = subject.request, subject.call.route
        definition = subject.call.definition
        data: dict[str, Any] = {
            "object": request["object"],
            "oldObject": request["oldObject"],
            "request": request,
            "namespaceObject": subject.namespace,
            "authorizer": authz.AUTHORIZER,
            "authorizer.requestResource": authz.request_resource(
                definition.group, definition.plural, route.subresource, route.namespace, route.name
            ),
        }
        if policy.param_kind is not None:
            data["params"] = params
        meter = Meter(seconds, pauses=seconds == _ASIDE_S)
        evaluation = Evaluation(self._compiler, data, dict(policy.variables), meter)
        asked: authz.Decide = partial(self._decide, subject.call)
        with authz.asking(asked):
            try:
                if not all(evaluation.value(text) is True for text in policy.conditions):
                    return []
            except Failed as error:
                return _failed(policy, error)
            self._annotate(policy, evaluation)
            return [found for one in policy.validations for found in _validated(policy, one, evaluation)]

    def _decide(self, call: Call, question: Question) -> tuple[bool, str]:
        return decide(self._backend.authorizer, call.user, question)

    def _annotate(self, policy: Policy, evaluation: Evaluation) -> None:
        """Log the audit annotations: this server writes no audit log of requests."""
        for key, expression in policy.audits:
            try:
                value = evaluation.value(expression)
            except Failed as error:
                _log.warning("ValidatingAdmissionPolicy %s: audit annotation %s: %s", policy.name, key, error)
                continue
            if value is not None:
                _log.info("audit: %s/%s: %s", policy.name, key, value)

    def _react(self, enforced: _Enforced, subject: _Subject, violation: _Violation) -> None:
        """Warn, log, or raise the refusal."""
        policy, binding = enforced.policy.name, enforced.binding.name
        actions = enforced.binding.actions
        if "Warn" in actions and not violation.is_configuration:
            subject.call.warnings.append(
                f"Validation failed for ValidatingAdmissionPolicy '{policy}' with binding '{binding}': "
                f"{violation.message}"
            )
        if "Audit" in actions:
            _log.warning(
                "audit: %s %s violates ValidatingAdmissionPolicy %s with binding %s: %s",
                subject.call.definition.resource,
                subject.request.get("name", ""),
                policy,
                binding,
                violation.message,
            )
        if "Deny" in actions or violation.is_configuration:
            raise _refusal(enforced, subject, violation)

    async def _namespace_of(self, call: Call, new: Json | None, operation: str) -> Json | None:
        """The Namespace of the request's object, or that object itself; None where it has none."""
        definition, route = call.definition, call.route
        name = route.namespace
        if definition.bucket == NAMESPACES:
            if operation != "DELETE" and not route.subresource and new is not None:
                return plain(new)
            name = route.name
        if not name:
            return None
        row = await self._backend.store.latest(Key(NAMESPACES, "", name))
        found = self._backend.registry.by_kind("", "Namespace")
        if row is None or found is None:
            return None
        return plain(objects.to_object(found, row))


def _namespace_matches(labels: tuple[Requirement, ...], namespace: Json | None) -> bool:
    if not labels or namespace is None:
        return True
    return labels_match(labels, namespace["metadata"].get("labels") or {})


def _uses_authorizer(policy: Policy) -> bool:
    texts = (
        *policy.conditions,
        *(text for _, text in policy.variables),
        *(text for _, text in policy.audits),
    )
    more = (text for one in policy.validations for text in (one.expression, one.message_expression))
    return any("authorizer" in text for text in (*texts, *more))


def _failed(policy: Policy, error: Failed) -> list[_Violation]:
    return [_Violation(str(error))] if policy.fails_closed else []


def _validated(policy: Policy, one: Validation, evaluation: Evaluation) -> list[_Violation]:
    try:
        value = evaluation.value(one.expression)
    except Failed as error:
        return _failed(policy, error)
    if value is True:
        return []
    return [_Violation(_message(one, evaluation), one.reason)]


def _message(one: Validation, evaluation: Evaluation) -> str:
    if one.message_expression:
        try:
            made = evaluation.value(one.message_expression)
        except Failed as error:
            _log.info("messageExpression: %s", error)
        else:
            if isinstance(made, str) and made.strip() and "\n" not in made and len(made) <= _MAX_MESSAGE:
                return made.strip()
    return one.message or f"failed expression: {one.expression.strip()}"


def _refusal(enforced: _Enforced, subject: _Subject, violation: _Violation) -> ApiError:
    definition, name = subject.call.definition, subject.request.get("name", "")
    message = (
        f"ValidatingAdmissionPolicy '{enforced.policy.name}' with binding '{enforced.binding.name}' denied "
        f"request: {violation.message}"
    )
    return ApiError(
        f'{definition.resource} "{name}" is forbidden: {message}',
        details=Details(
            name=name, group=definition.group, kind=definition.plural, causes=(Cause(message=message),)
        ),
        reason=violation.reason,
        code=_CODES[violation.reason],
    )
