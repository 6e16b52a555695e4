"""ValidatingAdmissionPolicies and bindings, compiled: which requests they match, and what a request violates.

Source: Kubernetes documentation, "Validating Admission Policy"; API reference, ValidatingAdmissionPolicy and
ValidatingAdmissionPolicyBinding v1 admissionregistration.k8s.io.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.cel.limits import Meter
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.policies.expressions import Compiler, Evaluation, Failed
from certwright.kube.apiserver.requests.selectors import Requirement, selector_of
from certwright.kube.apiserver.webhooks.config import Rule, rule_of

_log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 5 * 1024
_MAX_AUDIT = 10 * 1024
"""Characters of an audit annotation that are logged."""


class NamedRule(msgspec.Struct, frozen=True):
    """A rule that may be for some names only; empty: for all."""

    rule: Rule
    names: frozenset[str]

    def allows_name(self, name: str) -> bool:
        """Whether the rule is for objects of that name."""
        return not self.names or name in self.names


class Match(msgspec.Struct, frozen=True):
    """Which requests are concerned; without rules: all."""

    rules: tuple[NamedRule, ...]
    excluded: tuple[NamedRule, ...]
    equivalent: bool
    namespace_labels: tuple[Requirement, ...]
    object_labels: tuple[Requirement, ...]

    def includes(
        self, definition: ResourceDefinition, subresource: str, operation: str, name: str | None
    ) -> bool:
        """Whether a rule matches that request. `name` None: any name."""
        return not self.rules or _match_any(self.rules, definition, subresource, operation, name)

    def excludes(
        self, definition: ResourceDefinition, subresource: str, operation: str, name: str | None
    ) -> bool:
        """Whether a rule excludes that request. `name` None: only rules for all names are asked."""
        rules = self.excluded if name is not None else tuple(rule for rule in self.excluded if not rule.names)
        return _match_any(rules, definition, subresource, operation, name)


def _match_any(
    rules: tuple[NamedRule, ...],
    definition: ResourceDefinition,
    subresource: str,
    operation: str,
    name: str | None,
) -> bool:
    return any(
        entry.rule.matches(definition, subresource, operation) and (name is None or entry.allows_name(name))
        for entry in rules
    )


class Validation(msgspec.Struct, frozen=True):
    """A validation of a policy. `reason` is the refusal's."""

    expression: str
    message: str
    message_expression: str
    reason: str


class Policy(msgspec.Struct, frozen=True):
    """The validations of a policy. `param_kind`: apiVersion and kind of its parameters; None without any."""

    name: str
    match: Match
    param_kind: tuple[str, str] | None
    conditions: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    validations: tuple[Validation, ...]
    audits: tuple[tuple[str, str], ...]
    fails_closed: bool

    @property
    def expressions(self) -> tuple[str, ...]:
        """All CEL expressions."""
        validations = (
            text
            for validation in self.validations
            for text in (validation.expression, validation.message_expression)
            if text
        )
        named = (text for _, text in (*self.variables, *self.audits))
        return (*self.conditions, *named, *validations)


class ParamRef(msgspec.Struct, frozen=True):
    """The parameters of a binding: one by name, or several by selector. `namespace` empty: the namespace of
    the request's object."""

    name: str
    namespace: str
    labels: tuple[Requirement, ...]
    denies_without: bool


class Binding(msgspec.Struct, frozen=True):
    """Where a policy is enforced, with which parameters, and what follows a violation: `actions` are Deny,
    Warn and Audit."""

    name: str
    policy: str
    match: Match
    params: ParamRef | None
    actions: frozenset[str]


def compile_policy(obj: Json) -> Policy:
    """The policy. Its expressions are compiled when they are first evaluated."""
    spec = obj["spec"]
    kind = spec.get("paramKind")
    return Policy(
        name=obj["metadata"]["name"],
        match=_match(spec.get("matchConstraints") or {}),
        param_kind=(kind["apiVersion"], kind["kind"]) if kind else None,
        conditions=tuple(condition["expression"] for condition in spec.get("matchConditions") or ()),
        variables=tuple(
            (variable["name"], variable["expression"]) for variable in spec.get("variables") or ()
        ),
        validations=tuple(
            Validation(
                validation["expression"],
                (validation.get("message") or "").strip(),
                validation.get("messageExpression") or "",
                validation.get("reason") or "Invalid",
            )
            for validation in spec.get("validations") or ()
        ),
        audits=tuple(
            (audit["key"], audit["valueExpression"]) for audit in spec.get("auditAnnotations") or ()
        ),
        fails_closed=spec.get("failurePolicy", "Fail") == "Fail",
    )


def compile_binding(obj: Json) -> Binding:
    """The binding."""
    spec = obj["spec"]
    ref = spec.get("paramRef")
    return Binding(
        name=obj["metadata"]["name"],
        policy=spec["policyName"],
        match=_match(spec.get("matchResources") or {}),
        params=ParamRef(
            ref.get("name") or "",
            ref.get("namespace") or "",
            selector_of(ref.get("selector") or {}),
            ref.get("parameterNotFoundAction") == "Deny",
        )
        if ref
        else None,
        actions=frozenset(spec.get("validationActions") or ()),
    )


def _match(match: Json) -> Match:
    return Match(
        _rules(match.get("resourceRules") or ()),
        _rules(match.get("excludeResourceRules") or ()),
        match.get("matchPolicy", "Equivalent") == "Equivalent",
        selector_of(match.get("namespaceSelector") or {}),
        selector_of(match.get("objectSelector") or {}),
    )


def _rules(rules: list[Json] | tuple[()]) -> tuple[NamedRule, ...]:
    return tuple(NamedRule(rule_of(rule), frozenset(rule.get("resourceNames") or ())) for rule in rules)


class Violation(msgspec.Struct, frozen=True):
    """Why a request does not meet a policy. `is_fault`: a fault of the policy, which is a refusal whatever
    the binding's actions are."""

    message: str
    reason: str = "Invalid"
    is_fault: bool = False
    names_binding: bool = True


class Evaluator:
    """Evaluates a policy. `prepare` MUST have run before; it may run in another thread."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.uses_authorizer = any("authorizer" in text for text in policy.expressions)
        self.is_prepared = False
        self._compiler = Compiler(has_params=policy.param_kind is not None)

    def prepare(self) -> None:
        """Compile the expressions, which takes longer than their evaluation may."""
        self._compiler.prepare(self.policy.expressions)
        self.is_prepared = True

    def evaluate(self, data: Mapping[str, Any], meter: Meter) -> list[Violation]:
        """The violations with these values of the variables."""
        policy = self.policy
        # Conditions see neither the namespace nor variables, as in Kubernetes.
        before = Evaluation(self._compiler, {**data, "namespaceObject": None}, {}, meter)
        evaluation = Evaluation(self._compiler, data, dict(policy.variables), meter)
        try:
            if not _conditions_match(policy, before):
                return []
        except Failed as error:
            return [Violation(str(error))] if policy.fails_closed else []
        violations = []
        for validation in policy.validations:
            try:
                if evaluation.value(validation.expression) is not True:
                    violations.append(Violation(_message(validation, evaluation), validation.reason))
            except Failed as error:
                violations += [Violation(str(error))] if policy.fails_closed else []
        return violations + _annotate(policy, evaluation)


def _conditions_match(policy: Policy, evaluation: Evaluation) -> bool:
    """Whether all match conditions hold; one that does not decides, whatever else fails. Raises `Failed`."""
    failures: list[str] = []
    for text in policy.conditions:
        try:
            value = evaluation.value(text)
        except Failed as error:
            failures.append(str(error))
            continue
        if value is False:
            return False
        if value is not True:
            failures.append(f"expression '{text}' resulted in error: the value is no boolean")
    failures = list(dict.fromkeys(failures))
    if failures:
        raise Failed(failures[0] if len(failures) == 1 else f"[{', '.join(failures)}]")
    return True


def _message(validation: Validation, evaluation: Evaluation) -> str:
    if validation.message_expression:
        try:
            made = evaluation.value(validation.message_expression)
        except Failed as error:
            _log.info("messageExpression: %s", error)
        else:
            made = made.strip() if isinstance(made, str) else ""
            if made and "\n" not in made and len(made.encode()) <= _MAX_MESSAGE_BYTES:
                return made
    return validation.message or f"failed expression: {validation.expression.strip()}"


def _annotate(policy: Policy, evaluation: Evaluation) -> list[Violation]:
    """Log the audit annotations, since this server writes no audit log of requests; the faults of those that
    have no value."""
    faults: list[Violation] = []
    for key, expression in policy.audits:
        try:
            value = evaluation.value(expression)
            if not (value is None or isinstance(value, str)):
                raise Failed(f"valueExpression '{expression}' resulted in neither a string nor null")
        except Failed as error:
            faults += [Violation(str(error), is_fault=True)] if policy.fails_closed else []
            continue
        if value and value.strip():
            _log.info("audit: %s/%s: %s", policy.name, key, value.strip()[:_MAX_AUDIT])
    return faults
