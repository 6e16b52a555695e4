"""The evaluation of one policy: which of its demands a request violates.

Source: Kubernetes documentation, "Validating Admission Policy".
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from certwright.kube.apiserver.cel.meter import Meter
from certwright.kube.apiserver.policies.config import Policy, Validation
from certwright.kube.apiserver.policies.expressions import Compiler, Evaluation, Failed

_log = logging.getLogger(__name__)

_MAX_MESSAGE_BYTES = 5 * 1024
_MAX_AUDIT = 10 * 1024
"""Characters of an audit annotation that are logged."""


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
            return _failed(policy, error)
        violations = [
            violation for each in policy.validations for violation in _validated(policy, each, evaluation)
        ]
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


def _failed(policy: Policy, error: Failed) -> list[Violation]:
    return [Violation(str(error))] if policy.fails_closed else []


def _validated(policy: Policy, validation: Validation, evaluation: Evaluation) -> list[Violation]:
    try:
        value = evaluation.value(validation.expression)
    except Failed as error:
        return _failed(policy, error)
    if value is True:
        return []
    return [Violation(_message(validation, evaluation), validation.reason)]


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
