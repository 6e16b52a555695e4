"""What the expressions of policies see, what follows a violation, and what a failed evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]
GROUP: Final = "semantics.test"
ADMISSION: Final = "admissionregistration.k8s.io/v1"
NAMESPACE: Final = "team"
"""Its label `stage` is `test`. It has the ConfigMaps `limit` (3) and, with the label `limits: many`,
`limit-a` (5) and `limit-b` (2)."""
NOTHING_ELSE: Final = "paramless"
"""A namespace with nothing in it."""
DATA: Final = {"apiVersion": "v1", "kind": "ConfigMap"}


@dataclass(frozen=True, slots=True)
class Step:
    """One request about the object of the case."""

    method: str = "POST"
    size: int = 4
    labels: Json = field(default_factory=dict)
    subresource: str = ""
    version: str = "v1"
    query: str = ""
    user: str = ""
    namespace: str = NAMESPACE


CREATE: Final = Step()
UPDATE: Final = Step("PATCH", 6)
DELETE: Final = Step("DELETE")


@dataclass(frozen=True, slots=True)
class Case:
    """A policy, its binding, and requests. `spec` and `binding` are added to those that refuse every object
    of the case; `match` to the constraints. `plural`: `things` are in a namespace, `worlds` are not."""

    sentence: str
    spec: Json
    binding: Json = field(default_factory=dict)
    match: Json = field(default_factory=dict)
    steps: tuple[Step, ...] = (CREATE,)
    plural: str = "things"

    def objects(self, name: str) -> list[Json]:
        """The policy and its binding."""
        every = rule(self.plural, resources=[self.plural, f"{self.plural}/*"])
        match = {"resourceRules": [every], **self.match}
        for rules in ("resourceRules", "excludeResourceRules"):
            match[rules] = [{"resourceNames": [name], **rule_entry} for rule_entry in match.get(rules, ())]
        spec = {"matchConstraints": match, **self.spec}
        binding = {"policyName": name, "validationActions": ["Deny"], **self.binding}
        metadata = {"metadata": {"name": name}}
        version = {"apiVersion": ADMISSION}
        return [
            {**version, "kind": "ValidatingAdmissionPolicy", **metadata, "spec": spec},
            {**version, "kind": "ValidatingAdmissionPolicyBinding", **metadata, "spec": binding},
        ]


def rule(plural: str = "things", **more: Any) -> Json:
    """A rule for all writes of these."""
    return {
        "apiGroups": [GROUP],
        "apiVersions": ["v1"],
        "resources": [plural],
        "operations": ["*"],
        **more,
    }


def shows(expression: str, **more: Any) -> Json:
    """A policy that refuses everything, with the value of the expression as its message."""
    return {"validations": [{"expression": "false", "messageExpression": expression}], **more}


def composes(expression: str) -> Json:
    """A policy that refuses everything, with the value of the expression, or `plain`, as its message."""
    validation = {"expression": "false", "message": "plain", "messageExpression": expression}
    return {"validations": [validation]}


def demands(*expressions: str, **more: Any) -> Json:
    """A policy with these demands."""
    return {"validations": [{"expression": expression} for expression in expressions], **more}


def audits(*expressions: str, **more: Any) -> Json:
    """A policy with audit annotations `a`, `b` and so on."""
    annotations = [
        {"key": key, "valueExpression": expression}
        for key, expression in zip("abcdefgh", expressions, strict=False)
    ]
    return {"auditAnnotations": annotations, **more}


def conditions(*expressions: str, **more: Any) -> Json:
    """A policy that refuses everything under these conditions."""
    named = [
        {"name": f"c{number}", "expression": expression} for number, expression in enumerate(expressions)
    ]
    return {"matchConditions": named, **demands("false"), **more}


def variables(**named: str) -> list[Json]:
    """The variables of a policy."""
    return [{"name": name, "expression": text} for name, text in named.items()]


def params(demand: str, **more: Any) -> Json:
    """A policy with ConfigMaps as its parameters."""
    return {"paramKind": DATA, "validations": [{"expression": demand, "message": "over the limit"}], **more}


def ref(absent: str = "Deny", **more: Any) -> Json:
    """A binding with parameters; `absent`: what follows if there are none."""
    return {"paramRef": {"parameterNotFoundAction": absent, **more}}


ALL = (CREATE, UPDATE, DELETE)
LIMITED = "object.spec.size <= int(params.data.limit)"


VALUES = (
    Case("oldObject is null on create", demands("oldObject == null && object != null")),
    Case(
        "object is null on delete",
        demands("request.operation != 'DELETE' || (object == null && oldObject.spec.size == 4)"),
        steps=(CREATE, DELETE),
    ),
    Case(
        "an update has both",
        demands("oldObject == null || object == null || object.spec.size == oldObject.spec.size"),
        steps=ALL,
    ),
    Case(
        "namespaceObject", shows("namespaceObject.metadata.labels['stage'] + namespaceObject.metadata.name")
    ),
    Case(
        "namespaceObject is null in the scope of the cluster",
        demands("namespaceObject == null"),
        plural="worlds",
    ),
    Case("operation and name", shows("request.operation + request.name"), steps=ALL),
    Case("namespace of the request", shows("request.namespace")),
    Case("no namespace of the request", demands("!has(request.namespace)"), plural="worlds"),
    Case("no subresource", demands("!has(request.subResource)", "!has(request.requestSubResource)")),
    Case(
        "the subresource",
        demands("!has(request.subResource) || request.subResource != 'status'"),
        steps=(CREATE, Step("PATCH", subresource="status")),
    ),
    Case("dryRun", demands("!request.dryRun"), steps=(Step(query="?dryRun=All"), CREATE)),
    Case(
        "user",
        shows("request.userInfo.username + string(request.userInfo.groups)"),
        steps=(Step(user="alice"),),
    ),
    Case(
        "kind and resource",
        shows("request.kind.kind + request.resource.resource + request.requestKind.version"),
    ),
    Case("options", shows("string(request.options.kind)"), steps=ALL),
    Case(
        "metadata of a new object",
        demands(
            "has(object.metadata.uid)",
            "has(object.metadata.creationTimestamp)",
            "has(object.metadata.managedFields)",
            "object.metadata.generation == 1",
            "object.apiVersion == 'semantics.test/v1' && object.kind == 'Thing'",
        ),
    ),
    Case("a default of the schema", demands("object.spec.colour == 'red'")),
)
MESSAGES = (
    Case("the first demand that is not met", demands("true", "1 == 2", "false")),
    Case(
        "message",
        {"validations": [{"expression": "false", "message": "  plain  "}]},
    ),
    Case(
        "messageExpression before message",
        composes("' made '"),
    ),
    Case(
        "messageExpression that fails",
        composes("object.no.such"),
    ),
    Case(
        "messageExpression that is empty",
        composes("'  '"),
    ),
    Case(
        "messageExpression with a line break",
        composes(r"'a\nb'"),
    ),
    Case(
        "messageExpression with a line break at its end",
        composes(r"'ab\n'"),
    ),
    Case(
        "messageExpression that is too long",
        composes("[1,2,3,4,5,6].map(x, '" + "é" * 500 + "').join('')"),
    ),
    Case("messageExpression that fails, without message", shows("object.no.such")),
    *(
        Case(f"reason {reason}", {"validations": [{"expression": "false", "reason": reason}]})
        for reason in ("Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge")
    ),
    Case("an expression with spaces around it", demands("  false  ")),
)
FAILURES = (
    Case("an evaluation that fails", demands("object.spec.none == 1")),
    Case("an evaluation that fails and is ignored", demands("object.spec.none == 1", failurePolicy="Ignore")),
    Case(
        "an evaluation that is ignored does not spare the others",
        demands("object.spec.none == 1", "false", failurePolicy="Ignore"),
    ),
    Case("a condition that holds", conditions("true")),
    Case("a condition that does not hold", conditions("true", "false")),
    Case("a condition that fails", conditions("object.spec.none == 1")),
    Case(
        "a condition that fails and is ignored", conditions("object.spec.none == 1", failurePolicy="Ignore")
    ),
    Case(
        "a condition that fails before one that does not hold", conditions("object.spec.none == 1", "false")
    ),
    Case("two conditions that fail", conditions("object.spec.none == 1", "object.spec.no == 1")),
    Case("conditions do not see the namespace", conditions("namespaceObject != null")),
    Case(
        "a condition on parameters",
        params("false", matchConditions=[{"name": "a", "expression": "params.data.limit == '3'"}]),
        ref(name="limit"),
    ),
    Case(
        "a condition on a parameter that others do not meet",
        params("false", matchConditions=[{"name": "a", "expression": "params.data.limit == '9'"}]),
        ref(name="limit"),
    ),
)
ACTIONS = (
    *(
        Case(f"actions {'+'.join(actions)}", demands("false", "1 == 2"), {"validationActions": actions})
        for actions in (["Deny"], ["Warn"], ["Audit"], ["Warn", "Audit"], ["Deny", "Audit"])
    ),
    Case("a warning of an evaluation that fails", demands("object.no == 1"), {"validationActions": ["Warn"]}),
    Case(
        "a warning of a condition that fails",
        conditions("object.no == 1"),
        {"validationActions": ["Warn"]},
    ),
    Case(
        "an audit annotation that fails",
        audits("string(object.spec.none)"),
    ),
    Case(
        "an audit annotation that fails where violations are only warned of",
        audits("string(object.spec.none)"),
        {"validationActions": ["Warn"]},
    ),
    Case(
        "an audit annotation that fails and is ignored",
        audits("string(object.no)", failurePolicy="Ignore"),
    ),
    Case(
        "audit annotations of text, of nothing and of null",
        audits("'size ' + string(object.spec.size)", "' '", "null"),
    ),
    Case(
        "an audit annotation that fails after a violation",
        audits("string(object.none)", **demands("false")),
    ),
)
COMPOSITION = (
    Case(
        "variables of variables",
        shows("variables.b", variables=variables(a="object.spec.size + 1", b="'b' + string(variables.a)")),
    ),
    Case("a variable that fails and is not used", demands("true", variables=variables(a="object.no == 1"))),
    Case(
        "a variable that fails and is not reached",
        demands("object.spec.size == 4 || variables.a", variables=variables(a="object.no == 1")),
    ),
    Case("a variable that fails", demands("variables.a", variables=variables(a="object.no == 1"))),
    Case(
        "a variable of a variable that fails",
        demands("variables.b", variables=variables(a="object.no == 1", b="variables.a")),
    ),
    Case(
        "a variable with a space before its name",
        demands("variables . a", variables=variables(a="object.spec.size == 4")),
    ),
    Case(
        "a variable on another line",
        demands("variables\n  .a.\n b == 4", variables=variables(a="{'b': object.spec.size}")),
    ),
    Case(
        "a variable in an audit annotation",
        audits("variables.a", variables=variables(a="string(object.no)")),
    ),
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
