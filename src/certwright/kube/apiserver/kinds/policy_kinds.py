"""ValidatingAdmissionPolicies and their bindings: defaults and rules.

Source: Kubernetes documentation, "Validating Admission Policy"; Kubernetes
`pkg/apis/admissionregistration/validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from certwright.kube.api.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from certwright.kube.api.naming import check_label_key
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.registration_kinds import default_match, rule_errors
from certwright.kube.apiserver.model.definitions import Strategy
from certwright.kube.apiserver.policies import expressions
from certwright.kube.apiserver.requests.selectors import selector_errors

_FAILURE = ("Fail", "Ignore")
_MATCH = ("Equivalent", "Exact")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge", "Unauthorized")
_ACTIONS = ("Audit", "Deny", "Warn")
_NOT_FOUND = ("Allow", "Deny")
_RULES = ("resourceRules", "excludeResourceRules")
_MAX_AUDITS = 20
_MAX_AUDIT_EXPRESSION = 5 * 1024
"""Characters; a value may be 10 KiB."""
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def _default_policy(obj: Json) -> None:
    spec = obj["spec"]
    spec.setdefault("failurePolicy", "Fail")
    if spec.get("matchConstraints") is not None:
        default_match(spec["matchConstraints"], *_RULES)


def _default_binding(obj: Json) -> None:
    if obj["spec"].get("matchResources") is not None:
        default_match(obj["spec"]["matchResources"], *_RULES)


def _validate_policy(new: Json, _: Json | None) -> list[FieldError]:
    spec = new["spec"]
    has_params = spec.get("paramKind") is not None
    errors = _param_kind_errors(spec.get("paramKind")) if has_params else []
    if spec["failurePolicy"] not in _FAILURE:
        errors.append(not_supported("spec.failurePolicy", spec["failurePolicy"], _FAILURE))
    constraints = spec.get("matchConstraints")
    if constraints is None:
        errors.append(required("spec.matchConstraints"))
    else:
        if not constraints.get("resourceRules"):
            errors.append(required("spec.matchConstraints.resourceRules"))
        errors += _match_errors(constraints, "spec.matchConstraints")
    conditions = spec.get("matchConditions") or ()
    errors += expressions.condition_errors(conditions, "spec.matchConditions", has_params=has_params)
    errors += _variable_errors(spec.get("variables") or (), has_params=has_params)
    validations, audits = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    names = [variable.get("name") or "" for variable in spec.get("variables") or ()]
    check = partial(expressions.check, has_params=has_params, variables=names)
    if not validations and not audits:
        text = "validations or auditAnnotations must contain at least one item"
        errors += [required("spec.validations", text), required("spec.auditAnnotations", text)]
    for index, validation in enumerate(validations):
        errors += _validation_errors(validation, f"spec.validations[{index}]", check)
    return errors + _audit_errors(new["metadata"]["name"], audits, check)


def _param_kind_errors(kind: Json) -> list[FieldError]:
    path = "spec.paramKind"
    errors = [required(f"{path}.{name}") for name in ("apiVersion", "kind") if not kind.get(name)]
    if errors:
        return errors
    group, _, version = kind["apiVersion"].rpartition("/")
    if group and (text := object_names.dns_subdomain(group)):
        errors.append(invalid(f"{path}.apiVersion", group, text))
    if text := object_names.dns_1035_label(version):
        errors.append(invalid(f"{path}.apiVersion", version, text))
    if text := object_names.dns_1035_label(kind["kind"].lower()):
        text = f"may have mixed case, but should otherwise match: {text}"
        errors.append(invalid(f"{path}.kind", kind["kind"], text))
    return errors


def _match_errors(match: Json, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if match["matchPolicy"] not in _MATCH:
        errors.append(not_supported(f"{path}.matchPolicy", match["matchPolicy"], _MATCH))
    for name in _RULES:
        for index, rule in enumerate(match.get(name) or ()):
            errors += rule_errors(rule, f"{path}.{name}[{index}]")
            seen = set[str]()
            for number, resource_name in enumerate(rule.get("resourceNames") or ()):
                where = f"{path}.{name}[{index}].resourceNames[{number}]"
                if text := object_names.path_segment(resource_name):
                    errors.append(invalid(where, resource_name, text))
                if resource_name in seen:
                    errors.append(duplicate(where, resource_name))
                seen.add(resource_name)
    for name in ("namespaceSelector", "objectSelector"):
        errors += selector_errors(match[name], f"{path}.{name}")
    return errors


def _variable_errors(variables: Sequence[Json], *, has_params: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        path, name = f"spec.variables[{index}]", variable.get("name") or ""
        if not name:
            errors.append(required(f"{path}.name", "name is required"))
        elif not _IDENTIFIER.fullmatch(name):
            errors.append(invalid(f"{path}.name", name, "name is not a valid CEL identifier"))
        elif name in seen:
            errors.append(duplicate(f"{path}.name", name))
        text, at = variable.get("expression") or "", f"{path}.expression"
        # A variable may use earlier variables.
        errors += expressions.check(text, at, expressions.VARIABLE, has_params=has_params, variables=seen)
        seen.add(name)
    return errors


Check = Callable[[str, str, expressions.Role], list[FieldError]]
"""The errors of an expression, for its path and its role."""


def _validation_errors(validation: Json, path: str, check: Check) -> list[FieldError]:
    errors = check(validation.get("expression") or "", f"{path}.expression", expressions.VALIDATION)
    message, reason = validation.get("message"), validation.get("reason")
    if message and not message.strip():
        text = "message must be non-empty if specified"
        errors.append(invalid(f"{path}.message", message, text))
    if message and "\n" in message:
        errors.append(invalid(f"{path}.message", message, "message must not contain line breaks"))
    if of_message := validation.get("messageExpression"):
        at = f"{path}.messageExpression"
        if of_message.strip():
            errors += check(of_message, at, expressions.MESSAGE)
        else:
            errors.append(invalid(at, of_message, "must be non-empty if specified"))
    if reason and reason not in _REASONS:
        errors.append(not_supported(f"{path}.reason", reason, _REASONS))
    return errors


def _audit_errors(policy: str, audits: Sequence[Json], check: Check) -> list[FieldError]:
    path = "spec.auditAnnotations"
    if len(audits) > _MAX_AUDITS:
        return [too_many(path, len(audits), _MAX_AUDITS)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, audit in enumerate(audits):
        key = audit.get("key") or ""
        if not key:
            errors.append(required(f"{path}[{index}].key"))
        elif key in seen:
            errors.append(duplicate(f"{path}[{index}].key", key))
        elif problem := check_label_key(f"{policy}/{key}"):
            errors.append(invalid(f"{path}[{index}].key", key, problem))
        seen.add(key)
        text, at = audit.get("valueExpression") or "", f"{path}[{index}].valueExpression"
        if len(text) > _MAX_AUDIT_EXPRESSION:
            errors.append(too_long(at, _MAX_AUDIT_EXPRESSION))
        else:
            errors += check(text, at, expressions.AUDIT)
    return errors


def _validate_binding(new: Json, _: Json | None) -> list[FieldError]:
    spec = new["spec"]
    errors: list[FieldError] = []
    if not spec.get("policyName"):
        errors.append(required("spec.policyName"))
    elif text := object_names.dns_subdomain(spec["policyName"]):
        errors.append(invalid("spec.policyName", spec["policyName"], text))
    if (ref := spec.get("paramRef")) is not None:
        path, name, selector = "spec.paramRef", ref.get("name"), ref.get("selector")
        if name and selector is not None:
            text = "name and selector are mutually exclusive"
            errors += [forbidden(f"{path}.name", text), forbidden(f"{path}.selector", text)]
        elif not name and selector is None:
            errors.append(required(path, "one of name or selector must be specified"))
        errors += selector_errors(selector or {}, f"{path}.selector")
        action = ref.get("parameterNotFoundAction")
        if not action:
            errors.append(required(f"{path}.parameterNotFoundAction"))
        elif action not in _NOT_FOUND:
            errors.append(not_supported(f"{path}.parameterNotFoundAction", action, _NOT_FOUND))
    if spec.get("matchResources") is not None:
        errors += _match_errors(spec["matchResources"], "spec.matchResources")
    return errors + _action_errors(spec.get("validationActions") or [])


def _action_errors(actions: list[str]) -> list[FieldError]:
    path = "spec.validationActions"
    if not actions:
        return [required(path, "at least one validation action is required")]
    errors, seen = list[FieldError](), set[str]()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.append(not_supported(f"{path}[{index}]", action, _ACTIONS))
        elif action in seen:
            errors.append(duplicate(f"{path}[{index}]", action))
        seen.add(action)
    if {"Deny", "Warn"} <= set(actions):
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the "
        )
        errors.append(invalid(path, actions, f"{text}API response and headers serves no purpose)"))
    return errors


POLICY = Strategy(
    prepare_create=lambda obj: obj.update(status={}), defaults=_default_policy, validate=_validate_policy
)
BINDING = Strategy(defaults=_default_binding, validate=_validate_binding)
