"""Stories about rules in the Common Expression Language."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from conformance import cel_rules
from conformance.compare import story
from conformance.kinds import CRDS, Json, an_object, crd, in_namespace
from conformance.peers import Caller
from conformance.servers import until_judged

RULES = "x-kubernetes-validations"


def _with(schema: Json, *rules: str | Json) -> Json:
    """The schema with these rules on top."""
    return {**schema, RULES: [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]}


async def _define(c: Caller, spec: Json, *root: str | Json) -> None:
    """Ask whether a definition with this schema of its spec would be accepted."""
    schema = an_object(spec=spec)
    body = crd("rulers", _with(schema, *root) if root else schema, group="rules.test.dev")
    await c.post(f"{CRDS}?dryRun=All&fieldValidation=Strict", body)


async def _each(c: Caller, rules: Iterable[str | Json]) -> None:
    for rule in rules:
        await _define(c, _with(cel_rules.SCHEMA, rule))


@story
async def rules_name_fields(c: Caller) -> None:
    await _each(c, cel_rules.FIELDS)


@story
async def rules_have_operators(c: Caller) -> None:
    await _each(c, cel_rules.OPERATORS)


@story
async def rules_call_functions(c: Caller) -> None:
    await _each(c, cel_rules.FUNCTIONS)


@story
async def rules_work_on_lists(c: Caller) -> None:
    await _each(c, cel_rules.LISTS)


@story
async def rules_have_messages_and_reasons(c: Caller) -> None:
    right = "self.a == 'x'"
    for more in (
        {"messageExpression": "self.n"},
        {"messageExpression": "self.zzz"},
        {"messageExpression": "'it is ' + self.a"},
        {"messageExpression": " "},
        {"message": " "},
        {"message": "a\nb"},
        {"message": "m", "messageExpression": "self.a"},
        {"reason": "Foo"},
        {"reason": "FieldValueForbidden"},
        {"fieldPath": ".zz"},
        {"fieldPath": ".a"},
        {"fieldPath": ".m['k']"},
        {"fieldPath": ".m[k]"},
        {"fieldPath": "['a-b']"},
        {"fieldPath": "a"},
        {"fieldPath": " "},
        {"optionalOldSelf": True},
        {"optionalOldSelf": False},
    ):
        await _define(c, _with(cel_rules.SCHEMA, {"rule": right, **more}))
    await _define(c, _with(cel_rules.SCHEMA, {"rule": "self.zz == 'x'", "messageExpression": "self.zzz"}))
    await _define(c, _with(cel_rules.SCHEMA, " ", {"rule": "self.zz == 1", "message": " "}))
    await _define(c, _with(cel_rules.SCHEMA, "self.a\n== 'x'"))
    await _define(c, _with(cel_rules.SCHEMA, {"rule": "self.a\n== 1", "message": "m"}))


@story
async def rules_may_have_an_optional_old_self(c: Caller) -> None:
    for rule in (
        "self.a == oldSelf.a",
        "oldSelf.hasValue()",
        "oldSelf.hasValu()",
        "oldSelf.value().a == self.a",
        "oldSelf.?a.orValue('x') == self.a",
        "oldSelf.optMap(o, o.a == self.a).orValue(true)",
        "oldSelf.?a.orValue(1) == self.a",
        "oldSelf.orValue(self).a.matches('(')",
    ):
        await _define(c, _with(cel_rules.SCHEMA, {"rule": rule, "optionalOldSelf": True}))


@story
async def rules_stand_anywhere(c: Caller) -> None:
    for name, rule in (("l", "self == oldSelf"), ("l", "self == 'x'"), ("li", "self.x == 1")):
        schema = copy.deepcopy(cel_rules.SCHEMA)
        schema["properties"][name]["items"][RULES] = [{"rule": rule}]
        await _define(c, schema)
    for rule in ("self.metadata.name == 'x'", "self.metadata.namespace == 'x'", "self.kind == 1"):
        await _define(c, cel_rules.SCHEMA, rule)
    await _define(c, _with(cel_rules.SCHEMA, "self.zz == 1"), "self.spec.a == 1")
    unknown: Json = {"x-kubernetes-preserve-unknown-fields": True}
    for place in (
        _with(unknown, "self == 1"),
        _with(
            {"type": "object", "x-kubernetes-embedded-resource": True, **unknown},
            "self.metadata.name == 'x' && self.metadata.labels == 'y'",
        ),
        {"type": "string", "allOf": [_with({}, "self == 'x'")]},
    ):
        await _define(c, an_object(z=place))


# --- objects ----------------------------------------------------------------------------------------------


async def _replace(c: Caller, definition: Json) -> None:
    """Put a definition in the place of the one that is there, or there first."""
    path = f"{CRDS}/{definition['metadata']['name']}"
    response = await c.call("GET", path, quiet=True)
    if response.status == 404:
        await c.call("POST", CRDS, definition, quiet=True)
        return
    body = {**response.json, "spec": {**response.json["spec"], "versions": definition["spec"]["versions"]}}
    answer = await c.call("PUT", path, body, quiet=True)
    assert answer.status == 200, answer.body


def _ruled(name: str, spec: Json) -> Json:
    spec = {"a": "x", **spec}
    kept = {key: value for key, value in spec.items() if not (key == "a" and value is None)}
    return {
        "apiVersion": "objects.rules.test.dev/v1",
        "kind": "Ruled",
        "metadata": {"name": name},
        "spec": kept,
    }


async def _change(c: Caller, path: str, name: str, spec: Json) -> None:
    stored = (await c.call("GET", f"{path}/{name}", quiet=True)).json
    await c.put(f"{path}/{name}?dryRun=All", {**_ruled(name, spec), "metadata": stored["metadata"]})


@story
async def rules_judge_objects(c: Caller) -> None:
    path = in_namespace(c.namespace, "ruleds", group="objects.rules.test.dev")
    await _replace(c, cel_rules.LOOSE)
    await until_judged(c, path, _ruled("loose", {"a": "bad"}), 201)
    for number, (before, _) in enumerate(cel_rules.KEPT):
        await c.call("POST", path, _ruled(f"kept{number}", before), quiet=True)
    await _replace(c, cel_rules.STRICT)
    await until_judged(c, path, _ruled("strict", {"a": "bad"}), 422)
    for number, spec in enumerate(cel_rules.NEW):
        await c.post(f"{path}?dryRun=All", _ruled(f"new{number}", spec))
    await c.post(f"{path}?dryRun=All", _ruled("a-name-that-is-too-long", {}))
    for number, (before, after) in enumerate(cel_rules.CHANGED):
        await c.call("POST", path, _ruled(f"changed{number}", before), quiet=True)
        await _change(c, path, f"changed{number}", after)
    for number, (_, after) in enumerate(cel_rules.KEPT):
        await _change(c, path, f"kept{number}", after)
    await c.call("DELETE", f"{CRDS}/{cel_rules.STRICT['metadata']['name']}", quiet=True)
