"""Which ValidatingAdmissionPolicies and bindings are accepted."""

from __future__ import annotations

from typing import Any

import pytest

from kube.apiserver.callers import Api
from kube.apiserver.policy_objects import BINDINGS, CONFIG_MAP_RULE, POLICIES, SMALL, binding, policy

Json = dict[str, Any]


@pytest.mark.parametrize(
    ("change", "field", "text"),
    [
        ({"matchConstraints": None}, "spec.matchConstraints", "Required value"),
        ({"matchConstraints": {}}, "spec.matchConstraints.resourceRules", "Required value"),
        ({"validations": []}, "spec.validations", "must contain at least one item"),
        ({"failurePolicy": "Maybe"}, "spec.failurePolicy", "Unsupported value"),
        (
            {"validations": [{"expression": "object.x +"}]},
            "spec.validations[0].expression",
            "compilation failed",
        ),
        ({"validations": [{"expression": "params.x == 1"}]}, "spec.validations[0].expression", "params"),
        ({"validations": [{**SMALL, "reason": "Odd"}]}, "spec.validations[0].reason", "Unsupported value"),
        ({"validations": [{**SMALL, "message": "a\nb"}]}, "spec.validations[0].message", "line breaks"),
        ({"variables": [{"name": "a-b", "expression": "1"}]}, "spec.variables[0].name", "CEL identifier"),
        (
            {"matchConditions": [{"name": "a", "expression": "1 +"}]},
            "spec.matchConditions[0].expression",
            "comp",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "variables.a"}]},
            "spec.matchConditions[0].expression",
            "undeclared reference to 'variables",
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "'a'"}]},
            "spec.matchConditions[0].expression",
            "must evaluate to bool but got string",
        ),
        (
            {"variables": [{"name": "a", "expression": "variables.b"}, {"name": "b", "expression": "1"}]},
            "spec.variables[0].expression",
            "undefined field 'b'",
        ),
        (
            {"validations": [{"expression": "variables.none == 1"}]},
            "spec.validations[0].expression",
            "undefined field 'none'",
        ),
        (
            {"validations": [{"expression": "1 + 1"}]},
            "spec.validations[0].expression",
            "must evaluate to bool",
        ),
        (
            {"validations": [{**SMALL, "messageExpression": "1"}]},
            "spec.validations[0].messageExpression",
            "must evaluate to string",
        ),
        (
            {"validations": [{**SMALL, "messageExpression": "string(authorizer == null)"}]},
            "spec.validations[0].messageExpression",
            "undeclared reference to 'authorizer'",
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "1"}]},
            "spec.auditAnnotations[0].valueExpression",
            "must evaluate to one of [string null]",
        ),
        (
            {"auditAnnotations": [{"key": "a b", "valueExpression": "'a'"}]},
            "spec.auditAnnotations[0].key",
            "name part must consist of",
        ),
        (
            {"paramKind": {"apiVersion": "v1", "kind": "Config Map"}},
            "spec.paramKind.kind",
            "may have mixed case",
        ),
        (
            {"matchConstraints": {"resourceRules": [{**CONFIG_MAP_RULE, "resourceNames": ["a", "a"]}]}},
            "spec.matchConstraints.resourceRules[0].resourceNames[1]",
            "Duplicate value",
        ),
        *(
            (
                {"matchConstraints": {"resourceRules": [CONFIG_MAP_RULE], "namespaceSelector": selector}},
                f"spec.matchConstraints.namespaceSelector.{field}",
                text,
            )
            for selector, field, text in (
                (
                    {"matchExpressions": [{"key": "a", "operator": "Is"}]},
                    "matchExpressions[0].operator",
                    "not a valid selector operator",
                ),
                (
                    {"matchExpressions": [{"key": "a", "operator": "In"}]},
                    "matchExpressions[0].values",
                    "must be specified",
                ),
                (
                    {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
                    "matchExpressions[0].values",
                    "may not be specified",
                ),
                ({"matchLabels": {"a": "b c"}}, "matchLabels", "a valid label"),
            )
        ),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused(api: Api, change: Json, field: str, text: str) -> None:
    answer = await api.call("POST", POLICIES, policy(**change))
    assert answer.status == 422
    causes = {cause["field"]: cause["message"] for cause in answer.json["details"]["causes"]}
    assert text in causes[field]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"policyName": ""}, "spec.policyName"),
        ({"validationActions": []}, "spec.validationActions"),
        ({"validationActions": ["Deny", "Warn"]}, "spec.validationActions"),
        ({"validationActions": ["Refuse"]}, "spec.validationActions[0]"),
        ({"paramRef": {"parameterNotFoundAction": "Deny"}}, "spec.paramRef"),
        ({"paramRef": {"name": "a"}}, "spec.paramRef.parameterNotFoundAction"),
        (
            {
                "paramRef": {
                    "selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]},
                    "parameterNotFoundAction": "Deny",
                }
            },
            "spec.paramRef.selector.matchExpressions[0].operator",
        ),
    ],
)
async def test_a_binding_that_makes_no_sense_is_refused(api: Api, change: Json, field: str) -> None:
    answer = await api.call("POST", BINDINGS, binding(**change))
    assert answer.status == 422
    assert field in {cause["field"] for cause in answer.json["details"]["causes"]}


async def test_a_demand_over_several_lines_needs_no_message(api: Api) -> None:
    check = {"expression": "has(object.data) &&\nsize(object.data) < 2"}
    answer = await api.call("POST", POLICIES, policy(validations=[check]))
    assert answer.status == 201, answer.message
