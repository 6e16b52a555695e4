"""Stories about rules in the Common Expression Language."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from conformance import cel_objects, cel_rules
from conformance.kinds import CRDS, INTEGER, STRING, Json, an_object, crd, in_namespace
from conformance.peers import Caller
from conformance.servers import until_judged
from conformance.stories import story

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


# --- costs ------------------------------------------------------------------------------------------------

_WORDS: Json = {"type": "array", "items": STRING}
_NESTED: Json = {"type": "array", "items": _WORDS}
_MAP: Json = {"type": "object", "additionalProperties": an_object(v=STRING)}
_SHORT: Json = {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}}


def _dear(bounds: Json) -> Json:
    """A schema without bounds, but for these properties."""
    properties: Json = {
        "t": STRING,
        "w": _WORDS,
        "ww": _NESTED,
        "m": _MAP,
        "s": _SHORT,
        "i": {"type": "array", "items": INTEGER},
        "e": {"type": "string", "enum": ["one", "three"]},
        "ts": STRING | {"format": "date-time"},
        "big": {"type": "string", "maxLength": 250_000},
    }
    return an_object(**{**properties, **bounds})


_DEAR_RULES = (
    "self.t == 'x'",
    "self.t.startsWith('x')",
    "self.t.contains('xyz')",
    "self.t.contains(self.t)",
    "self.t.matches('[a-z]+[0-9]*')",
    "self.big.matches('[a-z]+')",
    "self.t.split(',').all(x, x == 'a')",
    "self.t.replace('a', 'bb').size() == 3",
    "self.t.lowerAscii() + self.t == 'x'",
    "self.t.find('[a-z]+') == 'x'",
    "self.w.all(x, x == 'a')",
    "self.w.all(x, self.w.all(y, x == y))",
    "self.w.all(x, x.startsWith('a'))",
    "self.w.exists(x, x.contains('b'))",
    "self.w.map(x, x + 'b').size() == 1",
    "self.w.filter(x, x == 'b').all(x, x == 'c')",
    "self.w.isSorted()",
    "self.i.sum() == 1",
    "self.w.indexOf('x') == 1",
    "self.w.join(',') == 'x'",
    "self.t in self.w",
    "self.ww.all(x, x.all(y, y == 'a'))",
    "self.m.all(k, self.m[k].v == 'a')",
    "self.m.all(k, v, v.v == k)",
    "self.s.all(x, x == 'a')",
    "self.s.all(x, self.s.all(y, self.s.all(z, x + y == z)))",
    "sets.contains(self.w, self.s)",
    "sets.equivalent(self.w, self.w)",
    "self.w.sort() == self.w",
    "self.w.distinct().size() == 1",
    "self.ww.flatten().size() == 1",
    "self.i.all(x, self.i.all(y, x == y))",
    "self.i.all(x, lists.range(100).all(y, x == y))",
    "self.e == 'x' && self.ts > timestamp('2020-01-01T00:00:00Z')",
    "['a', 'b'].all(x, self.w.all(y, x == y))",
    "{'a': self.w}.all(k, self.w.all(x, x == k))",
    "self.m.map(k, self.m[k].v).join(',').contains('abc')",
    "self.m.transformList(k, v, v.v + k).exists(x, x.matches('a+'))",
    "self.m.transformMap(k, v, v.v + k).exists(x, x.matches('a+'))",
    "isURL(self.t) && url(self.t).getHost() == self.t",
    "quantity(self.t).isGreaterThan(quantity('1'))",
    "self.w.all(x, isQuantity(x))",
    "ip(self.t).family() == 4 && cidr(self.t).containsIP(self.t)",
    "self.w.all(x, !format.dns1123Label().validate(x).hasValue())",
    "self.w.all(x, semver(x).major() == 1)",
    "self.w.size() == 0 || (self.t == 'x' ? self.w.all(x, x == 'a') : self.s.all(x, x == 'a'))",
    "'%s'.format([self.t]) == 'x' && string(bytes(self.t)) == self.t",
    "has(self.t) && self.?m['x'].v.orValue('') == 'x'",
    "dyn(self.w).all(x, dyn(x) == 'a')",
    "self.w[0].contains(self.w[1]) && self.m['a'].v.contains(self.w[2])",
)


@story
async def rules_that_may_cost_too_much_are_refused(c: Caller) -> None:
    for rule in _DEAR_RULES:
        await _define(c, _with(_dear({}), rule))


@story
async def rules_may_cost_a_little_too_much(c: Caller) -> None:
    for words, length in ((40, 60), (300, 300), (2500, 80), (3, 40_000)):
        text: Json = {"type": "string", "maxLength": length}
        some: Json = {"type": "array", "maxItems": words, "items": text}
        bounds: Json = {
            "t": text,
            "w": some,
            "ww": {"type": "array", "maxItems": words, "items": some},
            "m": {"type": "object", "maxProperties": words, "additionalProperties": an_object(v=text)},
            "i": {"type": "array", "maxItems": words * 5, "items": INTEGER},
        }
        for rule in _DEAR_RULES:
            place: Json = {"type": "array", "maxItems": 5, "items": _with(_dear(bounds), rule)}
            await _define(c, an_object(place=place))


@story
async def messages_of_rules_may_cost_too_much(c: Caller) -> None:
    for words in (
        "self.t + self.t",
        "self.w.map(x, x + x).join(',')",
        "'x'",
        "self.w.all(x, x == 'a') ? 'a' : 'b'",
    ):
        await _define(c, _with(_dear({}), {"rule": "self.e == 'x'", "messageExpression": words}))
    old = "oldSelf.optMap(o, o.w.all(x, self.w.all(y, x == y))).orValue(true)"
    await _define(c, _with(_dear({}), {"rule": old, "optionalOldSelf": True}))
    await _define(c, _with(_dear({}), "self.w.all(x, oldSelf.w.all(y, x == y))"))


@story
async def the_place_of_a_rule_multiplies_its_cost(c: Caller) -> None:
    item = _with(an_object(t=STRING, s={"type": "string", "maxLength": 10}), "self.t == 'x'", "self.s == 'x'")
    text = _with(STRING, "self == 'x'")
    number = _with(INTEGER, "self > 0")
    needed = _with(an_object(t=STRING, n=INTEGER) | {"required": ["t", "n"]}, "self.t != string(self.n)")
    for inner in (item, text, number, needed):
        a_list: Json = {"type": "array", "items": inner}
        a_map: Json = {"type": "object", "additionalProperties": inner}
        for place in (
            inner,
            a_list,
            {**a_list, "maxItems": 10},
            a_map,
            {**a_map, "maxProperties": 10},
            {"type": "array", "maxItems": 10, "items": a_list},
            {"type": "array", "maxItems": 1000, "items": {**a_map, "maxProperties": 1000}},
            {"type": "array", "items": {**a_list, "maxItems": 3}},
        ):
            await _define(c, an_object(place=place))


@story
async def all_rules_together_may_cost_too_much(c: Caller) -> None:
    some = _with(_WORDS, *[f"self.all(x, x == 'a{number}')" for number in range(2)])
    await _define(c, an_object(some=some))
    bounded: Json = {"type": "array", "maxItems": 3000, "items": {"type": "string", "maxLength": 800}}
    many = _with(bounded, *[f"self.all(x, x.contains(string({number})))" for number in range(12)])
    await _define(c, an_object(many=many))
    # No two of them cost the same: which of equals are named is by chance.
    rule = "self.all(x, x.matches('[a-z]+[0-9]+'))"
    each = {f"f{number}": _with({**bounded, "maxItems": 3000 + number}, rule) for number in range(40)}
    await _define(c, an_object(**each))
    await _define(c, an_object(a=_with(_WORDS, "self.all(x, x == self[0])", "self.zz"), b=some))


# --- objects ----------------------------------------------------------------------------------------------


async def _replace(c: Caller, definition: Json) -> None:
    """Put a definition in the place of the one that is there, or there first."""
    path = f"{CRDS}/{definition['metadata']['name']}"
    found = await c.call("GET", path, quiet=True)
    if found.status == 404:
        await c.call("POST", CRDS, definition, quiet=True)
        return
    body = {**found.json, "spec": {**found.json["spec"], "versions": definition["spec"]["versions"]}}
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
    await _replace(c, cel_objects.LOOSE)
    await until_judged(c, path, _ruled("loose", {"a": "bad"}), 201)
    for number, (before, _) in enumerate(cel_objects.KEPT):
        await c.call("POST", path, _ruled(f"kept{number}", before), quiet=True)
    await _replace(c, cel_objects.STRICT)
    await until_judged(c, path, _ruled("strict", {"a": "bad"}), 422)
    for number, spec in enumerate(cel_objects.NEW):
        await c.post(f"{path}?dryRun=All", _ruled(f"new{number}", spec))
    await c.post(f"{path}?dryRun=All", _ruled("a-name-that-is-too-long", {}))
    for number, (before, after) in enumerate(cel_objects.CHANGED):
        await c.call("POST", path, _ruled(f"changed{number}", before), quiet=True)
        await _change(c, path, f"changed{number}", after)
    for number, (_, after) in enumerate(cel_objects.KEPT):
        await _change(c, path, f"kept{number}", after)
    await c.call("DELETE", f"{CRDS}/{cel_objects.STRICT['metadata']['name']}", quiet=True)
