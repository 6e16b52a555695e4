"""ValidatingAdmissionPolicies: which policies match a request, with which parameters, and the actions that
follow.

Without a binding this costs one comparison per write. Policies and bindings are exempt: otherwise a broken
policy could not be deleted.

Source: Kubernetes documentation, "Validating Admission Policy", with parameter resources.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

import msgspec

from certwright.kube.api.errors import ApiError, Cause, Details
from certwright.kube.apiserver.admission.review import attributes, part_kind
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.cel import authz
from certwright.kube.apiserver.cel.limits import Meter
from certwright.kube.apiserver.crds.conversion import Conversions
from certwright.kube.apiserver.model import objects, offload
from certwright.kube.apiserver.model.backend import NAMESPACES, Backend, Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.policies.evaluation import (
    Binding,
    Evaluator,
    Match,
    Policy,
    Violation,
    compile_binding,
    compile_policy,
)
from certwright.kube.apiserver.requests.selectors import labels_match
from certwright.kube.apiserver.webhooks.config import GROUP
from certwright.kube.apiserver.webhooks.match_conditions import decide, variables, within_time
from certwright.kube.store.contract import Key, Row


class BadConfiguration(Exception):
    """A policy or binding that cannot be enforced; the text says why. `of_policy`: with any binding."""

    def __init__(self, text: str, *, of_policy: bool = False) -> None:
        super().__init__(f"failed to configure {'policy' if of_policy else 'binding'}: {text}")
        self.of_policy = of_policy


def plain(obj: Json) -> Json:
    """The same through JSON: an object may contain parts that are kept as bytes, which CEL cannot see."""
    plain_object: Json = decode_json(encode_json(obj))
    return plain_object


async def find_params(
    backend: Backend, conversions: Conversions, policy: Policy, binding: Binding, namespace: str
) -> list[Json | None]:
    """The parameters for a request about an object in this namespace; None: evaluate without any. Raises
    `BadConfiguration`."""
    ref = binding.params
    if policy.param_kind is None:
        return [None]
    api_version, kind = policy.param_kind
    group, _, version = api_version.rpartition("/")
    definition = next(
        (
            each
            for each in backend.registry.all()
            if (each.group, each.version, each.kind) == (group, version, kind)
        ),
        None,
    )
    if definition is None:
        text = f"failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
        raise BadConfiguration(text, of_policy=True)
    if ref is None:
        return [None]
    if definition.namespaced:
        namespace = ref.namespace or namespace
        if not namespace:
            text = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
            raise BadConfiguration(text)
    elif ref.namespace:
        text = "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
        raise BadConfiguration(text)
    within = namespace if definition.namespaced else ""
    if ref.name:
        row = await backend.store.latest(Key(definition.bucket, within, ref.name))
        rows = [row] if row is not None else []
    else:
        rows = await backend.rows(definition.bucket, within)
        rows = [row for row in rows if labels_match(ref.labels, objects.labels_of(row.meta))]
    parameters = [objects.to_object(definition, row) for row in rows]
    if definition.conversion is not None:
        parameters = [await conversions.shown(definition, parameter) for parameter in parameters]
    if not parameters and ref.denies_without:
        text = "no params found for policy binding with `Deny` parameterNotFoundAction"
        raise BadConfiguration(text)
    return [plain(parameter) for parameter in parameters]


_log = logging.getLogger(__name__)

_POLICIES = f"{GROUP}/validatingadmissionpolicies"
_BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
_EXEMPT = frozenset(
    f"{kind}admissionpolic{ending}" for kind in ("validating", "mutating") for ending in ("ies", "ybindings")
)
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


class _Enforced(msgspec.Struct, frozen=True):
    """A policy that a binding enforces."""

    evaluator: Evaluator
    binding: Binding


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
        self._policies: dict[str, Evaluator] = {}
        self._bindings: dict[str, Binding] = {}
        self._kept: dict[tuple[ResourceDefinition, str, str], tuple[_Enforced, ...]] = {}
        self._generation = -1

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Apply a committed policy or binding."""
        self._kept.clear()
        name, obj = row.key.name, objects.to_object(definition, row)
        try:
            if row.key.bucket == _POLICIES:
                self._policies[name] = Evaluator(compile_policy(obj))
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

    async def validate(self, call: Call, new: Json | None, old: Json | None, operation: str) -> None:
        """Add warnings to the call. Raises the first refusal, after all policies have been evaluated."""
        refusals: list[ApiError] = []
        for enforced in self._matching(call, operation):
            refusals += await self._enforce(enforced, call, new, old, operation)
        if refusals:
            raise refusals[0]

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
        if definition.group == GROUP and definition.plural in _EXEMPT:
            return
        for _, binding in sorted(self._bindings.items()):
            evaluator = self._policies.get(binding.policy)
            if evaluator is None:
                continue
            version_for = partial(
                self._version_for, definition=definition, subresource=subresource, operation=operation
            )
            if all(version_for(match) is not None for match in (evaluator.policy.match, binding.match)):
                yield _Enforced(evaluator, binding)

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
            versions += [kind for kind in self._backend.registry.all() if kind.bucket == definition.bucket]
        if any(match.excludes(version, subresource, operation, name) for version in versions):
            return None
        return next(
            (version for version in versions if match.includes(version, subresource, operation, name)), None
        )

    async def _enforce(
        self, enforced: _Enforced, call: Call, new: Json | None, old: Json | None, operation: str
    ) -> list[ApiError]:
        """The refusals, if the policy matches."""
        policy, binding = enforced.evaluator.policy, enforced.binding
        name = call.route.name or ((new or {}).get("metadata") or {}).get("name", "")
        request_of = (call.definition, call.route.subresource, operation, name)
        definition = self._version_for(policy.match, *request_of)
        if definition is None or self._version_for(binding.match, *request_of) is None:
            return []
        label_sets = [(obj["metadata"].get("labels") or {}) for obj in (new, old) if obj is not None]
        for match in (policy.match, binding.match):
            if match.object_labels and not any(
                labels_match(match.object_labels, labels) for labels in label_sets
            ):
                return []
        namespace = await self._namespace_of(call, new, operation)
        namespace_labels = namespace["metadata"].get("labels") or {} if namespace is not None else {}
        for match in (policy.match, binding.match):
            if namespace is not None and not labels_match(match.namespace_labels, namespace_labels):
                return []
        if definition.conversion is not None and part_kind(call, new) is None:
            new = new and await self._conversions.shown(definition, new)
            old = old and await self._conversions.shown(definition, old)
        request = attributes(call, definition, new, old, operation)
        # A Namespace is selected by its own labels, but belongs to none.
        within = None if call.definition.bucket == NAMESPACES else namespace
        subject = _Subject(call, plain(request), within)
        violations = await self._violations(enforced, subject)
        return [refusal for violation in violations for refusal in self._react(enforced, subject, violation)]

    async def _violations(self, enforced: _Enforced, subject: _Subject) -> list[Violation]:
        policy = enforced.evaluator.policy
        namespace = subject.request.get("namespace", "")
        try:
            params = await find_params(self._backend, self._conversions, policy, enforced.binding, namespace)
        except BadConfiguration as error:
            fault = Violation(str(error), is_fault=True, names_binding=not error.of_policy)
            return [fault] if policy.fails_closed else []
        evaluator = enforced.evaluator
        if not evaluator.is_prepared:
            await offload.run(None, evaluator.prepare)
        violations: list[Violation] = []
        for parameter in params:
            judge = partial(self._judge, evaluator, subject, parameter)
            violations += await within_time(subject.call, judge, uses_authorizer=evaluator.uses_authorizer)
        return violations

    def _judge(
        self, evaluator: Evaluator, subject: _Subject, params: Json | None, meter: Meter
    ) -> list[Violation]:
        """The violations with one parameter. Raises nothing."""
        data = variables(subject.call, subject.request)
        data["request"] = {
            name: value for name, value in subject.request.items() if name not in ("object", "oldObject")
        }
        data["namespaceObject"] = subject.namespace
        if evaluator.policy.param_kind is not None:
            data["params"] = params
        authorizer, user = self._backend.authorizer, subject.call.user
        with authz.asking(lambda question: decide(authorizer, user, question)):
            return evaluator.evaluate(data, meter)

    def _react(self, enforced: _Enforced, subject: _Subject, violation: Violation) -> list[ApiError]:
        """Warn and log; returns the refusal, if any."""
        if violation.is_fault:
            return [_refusal(enforced, subject, violation)]
        policy, binding = enforced.evaluator.policy.name, enforced.binding.name
        actions = enforced.binding.actions
        if "Warn" in actions:
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
        return [_refusal(enforced, subject, violation)] if "Deny" in actions else []

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
        namespace_definition = self._backend.registry.by_kind("", "Namespace")
        if row is None or namespace_definition is None:
            return None
        return plain(objects.to_object(namespace_definition, row))


def _refusal(enforced: _Enforced, subject: _Subject, violation: Violation) -> ApiError:
    definition, name = subject.call.definition, subject.request.get("name", "")
    binding = f" with binding '{enforced.binding.name}'" if violation.names_binding else ""
    policy = enforced.evaluator.policy.name
    message = f"ValidatingAdmissionPolicy '{policy}'{binding} denied request: {violation.message}"
    return ApiError(
        f'{definition.resource} "{name}" is forbidden: {message}',
        details=Details(
            name=name, group=definition.group, kind=definition.plural, causes=(Cause(message=message),)
        ),
        reason=violation.reason,
        code=_CODES[violation.reason],
    )
