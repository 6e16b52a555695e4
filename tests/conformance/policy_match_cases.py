"""Which requests policies match, with which parameters, and what they may ask the authorizer."""

from __future__ import annotations

from conformance.policy_case import (
    ALL,
    CREATE,
    DELETE,
    LIMITED,
    NAMESPACE,
    NOTHING_ELSE,
    UPDATE,
    Case,
    Step,
    conditions,
    demands,
    params,
    ref,
    rule,
    shows,
    variables,
)

PARAMETERS = (
    Case("by name", params(LIMITED), ref(name="limit")),
    Case("by name, met", params(LIMITED), ref(name="limit"), steps=(Step(size=3),)),
    Case("by name in a namespace", params(LIMITED), ref(name="limit", namespace=NAMESPACE)),
    Case(
        "by name in a namespace of another",
        params(LIMITED),
        ref(name="limit", namespace=NAMESPACE),
        steps=(Step(namespace=NOTHING_ELSE),),
    ),
    Case("by name, missing", params(LIMITED), ref(name="none")),
    Case("by name, missing and allowed", params(LIMITED), ref("Allow", name="none")),
    Case("missing and ignored", params(LIMITED, failurePolicy="Ignore"), ref(name="none")),
    Case(
        "missing where violations are only warned of",
        params(LIMITED),
        {**ref(name="none"), "validationActions": ["Warn"]},
    ),
    Case(
        "in the namespace of the object",
        params(LIMITED),
        ref(name="limit"),
        steps=(Step(namespace=NOTHING_ELSE),),
    ),
    Case(
        "by a selector: each counts",
        params(LIMITED),
        ref(selector={"matchLabels": {"limits": "many"}}),
    ),
    Case(
        "by a selector: one warning for each",
        params("object.spec.size < 0"),
        {**ref(selector={"matchLabels": {"limits": "many"}}), "validationActions": ["Warn"]},
    ),
    Case(
        "by a selector with expressions",
        params("params.metadata.name == 'limit-a'"),
        ref(selector={"matchExpressions": [{"key": "limits", "operator": "NotIn", "values": ["one"]}]}),
    ),
    Case("by a selector, none", params(LIMITED), ref(selector={"matchLabels": {"limits": "none"}})),
    Case("by the empty selector", params("params.metadata.name != 'limit-b'"), ref(selector={})),
    Case("a policy with parameters, a binding without", params("params == null")),
    Case("a policy without parameters, a binding with", demands("false"), ref(name="limit")),
    Case(
        "kind of the parameter",
        params("params.kind == 'ConfigMap' && params.apiVersion == 'v1'"),
        ref(name="limit"),
    ),
    Case(
        "parameters in namespaces for an object in none",
        params(LIMITED),
        ref(name="limit"),
        plural="worlds",
    ),
    Case(
        "parameters in one namespace for an object in none",
        params(LIMITED),
        ref(name="limit", namespace=NAMESPACE),
        plural="worlds",
    ),
    Case(
        "parameters in no namespace",
        params("params.metadata.name == 'paramless'", paramKind={"apiVersion": "v1", "kind": "Namespace"}),
        ref(name=NAMESPACE),
    ),
    Case(
        "parameters in no namespace, with one",
        params("true", paramKind={"apiVersion": "v1", "kind": "Namespace"}),
        ref(name=NAMESPACE, namespace=NAMESPACE),
    ),
    Case(
        "parameters of a kind that does not exist",
        params("true", paramKind={"apiVersion": "example.org/v1", "kind": "Limit"}),
        ref("Allow", name="limit"),
    ),
    Case(
        "parameters of a version that does not exist",
        params("true", paramKind={"apiVersion": "v9", "kind": "ConfigMap"}),
        ref("Allow", name="limit"),
    ),
    Case(
        "parameters of a kind that does not exist, ignored",
        params("true", paramKind={"apiVersion": "example.org/v1", "kind": "Limit"}, failurePolicy="Ignore"),
        ref(name="limit"),
    ),
)
V2 = Step(version="v2")
MATCHES = (
    Case(
        "another version, equivalent",
        shows("object.apiVersion + request.kind.version + request.requestKind.version"),
        steps=(V2,),
    ),
    Case("another version, exact", demands("false"), match={"matchPolicy": "Exact"}, steps=(V2,)),
    Case("the same version, exact", demands("false"), match={"matchPolicy": "Exact"}),
    Case(
        "a version excluded, equivalent",
        demands("false"),
        match={"excludeResourceRules": [rule()]},
        steps=(V2,),
    ),
    Case(
        "a version excluded, exact",
        demands("false"),
        match={
            "resourceRules": [rule(apiVersions=["*"])],
            "excludeResourceRules": [rule()],
            "matchPolicy": "Exact",
        },
        steps=(V2, UPDATE),
    ),
    Case("only updates", demands("false"), match={"resourceRules": [rule(operations=["UPDATE"])]}, steps=ALL),
    Case(
        "only deletions",
        demands("false"),
        match={"resourceRules": [rule(operations=["DELETE"])]},
        steps=ALL,
    ),
    Case("scope Cluster", demands("false"), match={"resourceRules": [rule(scope="Cluster")]}),
    Case("scope Namespaced", demands("false"), match={"resourceRules": [rule(scope="Namespaced")]}),
    Case(
        "scope Namespaced, in none",
        demands("false"),
        match={"resourceRules": [rule("worlds", scope="Namespaced")]},
        plural="worlds",
    ),
    Case(
        "scope Cluster, in none",
        demands("false"),
        match={"resourceRules": [rule("worlds", scope="Cluster")]},
        plural="worlds",
    ),
    Case("every resource, no subresource", demands("false"), match={"resourceRules": [rule("*")]}),
    Case(
        "every resource is without subresources",
        demands("false"),
        match={"resourceRules": [rule("*", operations=["UPDATE"])]},
        steps=(CREATE, Step("PATCH", subresource="status")),
    ),
    Case(
        "every subresource",
        demands("false"),
        match={"resourceRules": [rule("things/*", operations=["UPDATE"])]},
        steps=(CREATE, Step("PATCH", subresource="status"), UPDATE),
    ),
    Case(
        "one subresource",
        demands("false"),
        match={"resourceRules": [rule("things/status")]},
        steps=(CREATE, Step("PATCH", subresource="status")),
    ),
    Case("another name", demands("false"), match={"resourceRules": [rule(resourceNames=["other"])]}),
    Case(
        "a binding narrows",
        demands("false"),
        {"matchResources": {"resourceRules": [rule(operations=["UPDATE"])]}},
        steps=ALL,
    ),
    Case("a binding excludes", demands("false"), {"matchResources": {"excludeResourceRules": [rule()]}}),
    Case(
        "a namespace is selected",
        demands("false"),
        match={
            "namespaceSelector": {
                "matchExpressions": [{"key": "stage", "operator": "In", "values": ["test"]}]
            }
        },
    ),
    Case(
        "a namespace is not selected",
        demands("false"),
        match={"namespaceSelector": {"matchExpressions": [{"key": "stage", "operator": "DoesNotExist"}]}},
    ),
    Case(
        "a binding selects no such namespace",
        demands("false"),
        {"matchResources": {"namespaceSelector": {"matchLabels": {"stage": "live"}}}},
    ),
    Case(
        "no namespace is selected in the scope of the cluster",
        demands("false"),
        match={"namespaceSelector": {"matchLabels": {"stage": "live"}}},
        plural="worlds",
    ),
    Case(
        "labels before and after",
        demands("request.operation == 'CREATE'"),
        match={"objectSelector": {"matchLabels": {"checked": "yes"}}},
        steps=(Step(labels={"checked": "yes"}), Step("PATCH", labels={"checked": None}), DELETE),
    ),
    Case(
        "labels that are missing",
        demands("false"),
        match={"objectSelector": {"matchLabels": {"checked": "yes"}}},
        steps=ALL,
    ),
    Case(
        "a deletion of several",
        demands("request.operation != 'DELETE'"),
        match={"resourceRules": [rule()]},
        steps=(Step(labels={"several": "yes"}), Step("DELETE-ALL")),
    ),
    Case(
        "an apply that creates",
        shows("request.operation + string(request.options.fieldManager)"),
        steps=(Step("APPLY"),),
    ),
    Case(
        "a scale is seen as one",
        shows(
            "request.kind.kind + request.resource.resource + request.subResource + object.apiVersion + "
            "string(oldObject.spec.replicas) + ' to ' + string(object.spec.replicas)"
        ),
        match={"resourceRules": [rule("things/scale")]},
        steps=(CREATE, Step("PATCH", 7, subresource="scale")),
    ),
    Case(
        "a scale of another version has no labels",
        demands("false"),
        match={
            "resourceRules": [rule("things/scale")],
            "objectSelector": {"matchLabels": {"checked": "yes"}},
        },
        steps=(Step(labels={"checked": "yes"}), Step("PATCH", 7, subresource="scale", version="v2")),
    ),
    Case(
        "a scale of another version",
        shows("request.kind.kind + request.resource.version + request.requestResource.version"),
        match={"resourceRules": [rule("things/scale")]},
        steps=(CREATE, Step("PATCH", 7, subresource="scale", version="v2")),
    ),
    Case("a replacement", demands("oldObject == null"), steps=(CREATE, Step("PUT"))),
)
_SECRETS = "group('').resource('secrets').namespace('team').check('get')"
_CHECKS = (
    ("alice", "group('').resource('configmaps').namespace('team').check('get')"),
    ("alice", "group('').resource('configmaps').namespace('team').name('limit').check('get')"),
    ("alice", _SECRETS),
    ("bob", _SECRETS),
    ("alice", "requestResource.check('create')"),
    ("alice", "requestResource.check('delete')"),
    ("alice", "path('/metrics').check('get')"),
    ("bob", "path('/metrics').check('get')"),
    ("alice", f"serviceAccount('team', 'robot').{_SECRETS}"),
    ("alice", f"serviceAccount('team', 'other').{_SECRETS}"),
    ("alice", "group('semantics.test').resource('things').subresource('status').check('update')"),
)
AUTHORIZER = (
    *(
        Case(f"{user}: {check}", demands(f"authorizer.{check}.allowed()"), steps=(Step(user=user),))
        for user, check in _CHECKS
    ),
    Case(
        "a condition asks for permission",
        conditions("authorizer.requestResource.check('approve').allowed()"),
        steps=(Step(user="alice"),),
    ),
    Case(
        "a variable asks for permission",
        demands(
            "!variables.may",
            variables=variables(may="authorizer.requestResource.check('create').allowed()"),
        ),
        steps=(Step(user="alice"),),
    ),
)
