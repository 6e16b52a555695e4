"""Requests that ValidatingAdmissionPolicies decide, one policy for each case."""

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


def demands(*expressions: str, **more: Any) -> Json:
    """A policy with these demands."""
    return {"validations": [{"expression": expression} for expression in expressions], **more}


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
