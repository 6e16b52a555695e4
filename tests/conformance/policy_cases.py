"""What the expressions of policies see, what follows a violation, and what a failed evaluation."""

from __future__ import annotations

from conformance.policy_case import (
    ALL,
    CREATE,
    DELETE,
    Case,
    Step,
    conditions,
    demands,
    params,
    ref,
    shows,
    variables,
)

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
        {"validations": [{"expression": "false", "message": "plain", "messageExpression": "' made '"}]},
    ),
    Case(
        "messageExpression that fails",
        {"validations": [{"expression": "false", "message": "plain", "messageExpression": "object.no.such"}]},
    ),
    Case(
        "messageExpression that is empty",
        {"validations": [{"expression": "false", "message": "plain", "messageExpression": "'  '"}]},
    ),
    Case(
        "messageExpression with a line break",
        {"validations": [{"expression": "false", "message": "plain", "messageExpression": r"'a\nb'"}]},
    ),
    Case(
        "messageExpression with a line break at its end",
        {"validations": [{"expression": "false", "message": "plain", "messageExpression": r"'ab\n'"}]},
    ),
    Case(
        "messageExpression that is too long",
        {
            "validations": [
                {
                    "expression": "false",
                    "message": "plain",
                    "messageExpression": "[1,2,3,4,5,6].map(x, '" + "é" * 500 + "').join('')",
                }
            ]
        },
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
        {"auditAnnotations": [{"key": "a", "valueExpression": "string(object.spec.none)"}]},
    ),
    Case(
        "an audit annotation that fails where violations are only warned of",
        {"auditAnnotations": [{"key": "a", "valueExpression": "string(object.spec.none)"}]},
        {"validationActions": ["Warn"]},
    ),
    Case(
        "an audit annotation that fails and is ignored",
        {
            "auditAnnotations": [{"key": "a", "valueExpression": "string(object.no)"}],
            "failurePolicy": "Ignore",
        },
    ),
    Case(
        "audit annotations of text, of nothing and of null",
        {
            "auditAnnotations": [
                {"key": "a", "valueExpression": "'size ' + string(object.spec.size)"},
                {"key": "b", "valueExpression": "' '"},
                {"key": "c", "valueExpression": "null"},
            ]
        },
    ),
    Case(
        "an audit annotation that fails after a violation",
        {
            **demands("false"),
            "auditAnnotations": [{"key": "a", "valueExpression": "string(object.none)"}],
        },
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
        {
            "auditAnnotations": [{"key": "a", "valueExpression": "variables.a"}],
            "variables": variables(a="string(object.no)"),
        },
    ),
)
