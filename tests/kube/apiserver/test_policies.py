"""ValidatingAdmissionPolicies and their bindings are enforced."""

from __future__ import annotations

from typing import Any

import pytest

from kube.apiserver.callers import CONFIG_MAPS, CRDS, THING, THINGS, Answer, Api, rule_for, thing_crd

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"
NAMESPACES = "/api/v1/namespaces"


Json = dict[str, Any]
CONFIG_MAP_RULE = rule_for("configmaps", "CREATE", "UPDATE")
SMALL = {"expression": "size(object.data) < 2", "message": "too many entries"}


def policy(name: str = "small", **spec: Any) -> Json:
    """A policy for ConfigMaps."""
    full_spec = {"matchConstraints": {"resourceRules": [CONFIG_MAP_RULE]}, "validations": [SMALL], **spec}
    return {"metadata": {"name": name}, "spec": full_spec}


def binding(name: str = "everywhere", of: str = "small", **spec: Any) -> Json:
    """A binding of a policy."""
    return {
        "metadata": {"name": name},
        "spec": {"policyName": of, "validationActions": ["Deny"], **spec},
    }


async def enforce(api: Api, new_policy: Json, *bindings: Json) -> None:
    """Create a policy and its bindings."""
    await api.ok("POST", POLICIES, new_policy)
    for item in bindings or (binding(),):
        answer = await api.call("POST", BINDINGS, item)
        assert answer.status == 201, answer.body


async def write(api: Api, entries: int, *, name: str = "one", path: str = CONFIG_MAPS, **more: Any) -> Answer:
    """Create a ConfigMap with that many entries."""
    metadata = {"name": name, **more}
    return await api.call(
        "POST", path, {"metadata": metadata, "data": {f"k{n}": "v" for n in range(entries)}}
    )


async def test_what_violates_a_policy_is_denied(api: Api) -> None:
    await enforce(api, policy())
    answer = await write(api, 2)
    message = "ValidatingAdmissionPolicy 'small' with binding 'everywhere' denied request: too many entries"
    assert answer.status == 422
    assert answer.message == f'configmaps "one" is forbidden: {message}'
    assert answer.json["reason"] == "Invalid"
    assert answer.json["details"] == {"name": "one", "kind": "configmaps", "causes": [{"message": message}]}
    assert (await write(api, 1)).status == 201


@pytest.mark.parametrize(
    ("variable", "demand"),
    [
        ("object.data.map(k, k)", "size(variables.found) == 1 && variables.found.all(k, k == 'k0')"),
        ("{'a': object.data}", "variables.found.a.k0 == 'v'"),
        ("[1, {'c': [2]}]", "variables.found[1].c == [2]"),
        ("request.userInfo.groups", "'system:masters' in variables.found"),
        ("timestamp('2020-01-01T00:00:00Z')", "variables.found.getFullYear() == 2020"),
        ("[duration('90m'), duration('1h')]", "variables.found[0] > variables.found[1]"),
        ("{'x': b'abc'}", "variables.found.x == b'abc'"),
    ],
)
async def test_variables_have_values_of_any_type(api: Api, variable: str, demand: str) -> None:
    variables = [{"name": "found", "expression": variable}]
    await enforce(api, policy(variables=variables, validations=[{"expression": demand}]))
    answer = await write(api, 1)
    assert answer.status == 201, answer.message


async def test_a_policy_without_a_binding_does_nothing(api: Api) -> None:
    await api.ok("POST", POLICIES, policy())
    assert (await write(api, 2)).status == 201


async def test_warn_and_audit_let_it_pass(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await enforce(api, policy(), binding(validationActions=["Warn", "Audit"]))
    answer = await write(api, 2)
    assert answer.status == 201
    warning = (
        "Validation failed for ValidatingAdmissionPolicy 'small' with binding 'everywhere': too many entries"
    )
    assert warning in answer.headers["warning"]
    assert "configmaps one violates ValidatingAdmissionPolicy small" in caplog.text


def limit(name: str, value: str, **metadata: Any) -> Json:
    """The parameter of a policy."""
    return {"metadata": {"name": name, **metadata}, "data": {"limit": value}}


async def test_policies_themselves_are_exempt(api: Api) -> None:
    constraints = {"resourceRules": [rule_for("*", group="*")]}
    await enforce(api, policy(matchConstraints=constraints, validations=[{"expression": "false"}]))
    assert (await write(api, 1)).status == 422
    await api.ok("DELETE", f"{BINDINGS}/everywhere")
    assert (await write(api, 1)).status == 201


async def test_webhook_configurations_are_not_exempt(api: Api) -> None:
    constraints = {"resourceRules": [rule_for("*", group="admissionregistration.k8s.io")]}
    await enforce(api, policy(matchConstraints=constraints, validations=[{"expression": "false"}]))
    configuration = {"metadata": {"name": "hooks"}, "webhooks": []}
    assert (await api.call("POST", f"{GROUP}/validatingwebhookconfigurations", configuration)).status == 422


async def test_a_namespace_is_selected_by_its_labels_but_is_in_no_namespace(api: Api) -> None:
    constraints = {
        "resourceRules": [rule_for("namespaces")],
        "namespaceSelector": {"matchLabels": {"strict": "yes"}},
    }
    checks = [{"expression": "namespaceObject != null", "message": "it is in none"}]
    await enforce(api, policy(matchConstraints=constraints, validations=checks))
    await api.ok("POST", NAMESPACES, {"metadata": {"name": "free"}})
    strict = {"metadata": {"name": "strict", "labels": {"strict": "yes"}}}
    assert (await api.call("POST", NAMESPACES, strict)).message.endswith("it is in none")


async def test_the_warnings_of_other_policies_come_with_a_refusal(api: Api) -> None:
    await enforce(api, policy("a"), binding("a", "a"))
    await enforce(
        api,
        policy("b", validations=[{"expression": "false", "message": "think again"}]),
        binding("b", "b", validationActions=["Warn"]),
    )
    answer = await write(api, 2)
    assert answer.status == 422
    assert "think again" in answer.headers["warning"]


async def test_tokens_are_subject_to_policies(api: Api) -> None:
    check = {
        "expression": "object.kind == 'TokenRequest' && object.spec.expirationSeconds <= 3600",
        "message": "an hour at most",
    }
    await enforce(
        api,
        policy(matchConstraints={"resourceRules": [rule_for("serviceaccounts/token")]}, validations=[check]),
    )
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    await api.ok("POST", accounts, {"metadata": {"name": "robot"}})
    version = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    short = await api.call("POST", f"{accounts}/robot/token", {**version, "spec": {}})
    assert (short.status, bool(short.json["status"]["token"])) == (201, True)
    long = await api.call("POST", f"{accounts}/robot/token", {**version, "spec": {"expirationSeconds": 7200}})
    assert long.message.endswith("an hour at most")


async def test_parameters_are_read_in_the_version_of_their_kind(api: Api) -> None:
    crd = thing_crd()
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [version, {**version, "name": "v2", "storage": False}]
    await api.ok("POST", CRDS, crd)
    await api.ok("POST", THINGS, {**THING, "metadata": {"name": "limit"}, "spec": {"size": 1}})
    checks = [{"expression": "false", "messageExpression": "string(params.apiVersion)"}]
    await enforce(
        api,
        policy(paramKind={"apiVersion": "test.dev/v1", "kind": "Thing"}, validations=checks),
        binding(paramRef={"name": "limit", "parameterNotFoundAction": "Deny"}),
    )
    assert (await write(api, 1)).message.endswith("denied request: test.dev/v1")


async def test_policies_are_enforced_after_a_restart(start_api: Any) -> None:
    api = await start_api()
    await enforce(api, policy())
    again = await start_api(store=api.server._backend.store)
    assert (await write(again, 2)).status == 422


async def test_an_expression_that_takes_too_long_is_stopped(api: Api) -> None:
    squares = "object.data.all(a, object.data.all(b, object.data.all(c, a != b + c)))"
    await enforce(api, policy(validations=[{"expression": squares}]))
    answer = await write(api, 400)
    assert answer.status == 422
    assert "resulted in error" in answer.message


def thing_rule(version: str, **more: Any) -> Json:
    """A rule for one version of Things."""
    return rule_for("things", group="test.dev", version=version, **more)


@pytest.mark.parametrize(
    ("policy_version", "binding_match", "denied"),
    [
        ("v1", {"resourceRules": [thing_rule("v1")]}, True),
        ("v1", {"resourceRules": [thing_rule("v3")]}, True),
        ("v2", {"resourceRules": [thing_rule("v3")]}, True),
        ("v1", {"resourceRules": [thing_rule("v3")], "matchPolicy": "Exact"}, False),
        ("v1", {"resourceRules": [thing_rule("v1", resourceNames=["b"]), thing_rule("v3")]}, True),
        ("v1", {"resourceRules": [thing_rule("v1", resourceNames=["b"])]}, False),
        ("v1", {"resourceRules": [thing_rule("*")], "excludeResourceRules": [thing_rule("v3")]}, False),
        (
            "v1",
            {
                "resourceRules": [thing_rule("*")],
                "excludeResourceRules": [thing_rule("v3", resourceNames=["b"])],
            },
            True,
        ),
    ],
)
async def test_policy_and_binding_may_match_by_different_versions(
    api: Api, policy_version: str, binding_match: Json, *, denied: bool
) -> None:
    crd = thing_crd()
    (version,) = crd["spec"]["versions"]
    others = [{**version, "name": name, "storage": False} for name in ("v2", "v3")]
    crd["spec"]["versions"] = [version, *others]
    await api.ok("POST", CRDS, crd)
    constraints = {"resourceRules": [thing_rule(policy_version)]}
    check = {"expression": f"object.apiVersion != 'test.dev/{policy_version}'"}
    await enforce(
        api,
        policy(matchConstraints=constraints, validations=[check]),
        binding(matchResources=binding_match),
    )
    thing = {"apiVersion": "test.dev/v2", "kind": "Thing", "metadata": {"name": "a"}, "spec": {"size": 1}}
    answer = await api.call("POST", THINGS.replace("v1", "v2"), thing)
    assert answer.status == (422 if denied else 201), answer.message


ITEMS: dict[str, Json] = {
    "validations": SMALL,
    "variables": {"name": "a", "expression": "1"},
    "matchConditions": {"name": "a", "expression": "true"},
    "auditAnnotations": {"key": "a", "valueExpression": "'a'"},
}


def only(path: str, value: Any) -> Json:
    """A part of a spec: `validations[0].reason` of an item that is valid otherwise."""
    name, _, field = path.partition("[0].")
    return {name: [{**ITEMS[name], field: value}]} if field else {name: value}


VALIDATION, CONDITION, MESSAGE = (
    "validations[0].expression",
    "matchConditions[0].expression",
    "validations[0].messageExpression",
)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("matchConstraints", None, "Required value"),
        ("validations", [], "must contain at least one item"),
        ("failurePolicy", "Maybe", "Unsupported value"),
        (VALIDATION, "object.x +", "compilation failed"),
        (VALIDATION, "params.x == 1", "params"),
        (VALIDATION, "variables.none == 1", "undefined field 'none'"),
        (VALIDATION, "1 + 1", "must evaluate to bool"),
        ("validations[0].reason", "Odd", "Unsupported value"),
        ("validations[0].message", "a\nb", "line breaks"),
        (MESSAGE, "1", "must evaluate to string"),
        (MESSAGE, "string(authorizer == null)", "undeclared reference to 'authorizer'"),
        ("variables[0].name", "a-b", "CEL identifier"),
        ("variables[0].expression", "variables.a", "undefined field 'a'"),
        (CONDITION, "1 +", "compilation failed"),
        (CONDITION, "variables.a", "undeclared reference to 'variables"),
        (CONDITION, "'a'", "must evaluate to bool but got string"),
        ("auditAnnotations[0].valueExpression", "1", "must evaluate to one of [string null]"),
        ("auditAnnotations[0].key", "a b", "name part must consist of"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused(api: Api, path: str, value: Any, text: str) -> None:
    assert text in await refusal(api, policy(**only(path, value)), f"spec.{path}")


async def refusal(api: Api, body: Json, field: str) -> str:
    """Why a policy is refused because of that field."""
    answer = await api.call("POST", POLICIES, body)
    assert answer.status == 422
    return str({cause["field"]: cause["message"] for cause in answer.json["details"]["causes"]}[field])


def required_label(**requirement: Any) -> Json:
    """A match by that requirement of a label."""
    selector = {"matchExpressions": [{"key": "a", **requirement}]}
    return {"resourceRules": [CONFIG_MAP_RULE], "namespaceSelector": selector}


REQUIREMENT = "namespaceSelector.matchExpressions[0]"


@pytest.mark.parametrize(
    ("match", "field", "text"),
    [
        ({}, "resourceRules", "Required value"),
        (
            {"resourceRules": [{**CONFIG_MAP_RULE, "resourceNames": ["a", "a"]}]},
            "resourceRules[0].resourceNames[1]",
            "Duplicate value",
        ),
        (required_label(operator="Is"), f"{REQUIREMENT}.operator", "not a valid selector operator"),
        (required_label(operator="In"), f"{REQUIREMENT}.values", "must be specified"),
        (required_label(operator="Exists", values=["b"]), f"{REQUIREMENT}.values", "may not be specified"),
        ({"objectSelector": {"matchLabels": {"a": "b c"}}}, "objectSelector.matchLabels", "a valid label"),
    ],
)
async def test_a_policy_that_can_match_nothing_is_refused(
    api: Api, match: Json, field: str, text: str
) -> None:
    assert text in await refusal(api, policy(matchConstraints=match), f"spec.matchConstraints.{field}")


async def test_a_policys_kind_of_parameters_has_a_name_that_a_kind_can_have(api: Api) -> None:
    body = policy(paramKind={"apiVersion": "v1", "kind": "Config Map"})
    assert "may have mixed case" in await refusal(api, body, "spec.paramKind.kind")


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
            {"paramRef": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}},
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
