"""A definition with rules of all sorts, and what its objects may be like."""

from __future__ import annotations

from typing import Any

from conformance.kinds import INTEGER, STRING, Json, an_object, crd

RULES = "x-kubernetes-validations"


def text(length: int, **more: Any) -> Json:
    """A short string."""
    return {"type": "string", "maxLength": length, **more}


def rules(*given: str | Json) -> Json:
    """The member of a schema that holds these rules."""
    return {RULES: [{"rule": rule} if isinstance(rule, str) else rule for rule in given]}


_LABEL = "format.dns1123Label().validate(self.label)"
_ON_SPEC = rules(
    "self.a != 'bad'",
    {"rule": "self.a != 'm'", "message": "no m"},
    {"rule": "self.a != 'e'", "messageExpression": "'no ' + self.a"},
    {"rule": "self.a != 'f'", "reason": "FieldValueForbidden", "fieldPath": ".a"},
    "!has(self.opt) || self.opt.x.y == 1",
    "!has(self.n) || 10 / self.n > 0",
    "!has(self.l) || self.l[2] == 'c'",
    {"rule": "oldSelf.a != 'once' || self.a == 'once'", "message": "once"},
    "!has(self.im) || self.im == oldSelf.im",
    "!has(self.ts) || self.ts > timestamp('2020-01-01T00:00:00Z')",
    "!has(self.dur) || self.dur > duration('1h')",
    "!has(self.d) || self.d > 1",
    "!has(self.ios) || self.ios > 5",
    "!has(self.by) || size(self.by) == 2",
    "!has(self.q) || quantity(self.q).isGreaterThan(quantity('1Mi'))",
    "!has(self.q) || isQuantity(self.q)",
    "!has(self.url) || url(self.url).getHost() == 'ex.com'",
    "!has(self.ip) || ip(self.ip).family() == 4",
    "!has(self.a__dash__b) || self.a__dash__b == 'x'",
    "!has(self.__namespace__) || self.__namespace__ == 'x'",
    "!has(self.re) || self.re.find('[0-9]+') == '12'",
    "!has(self.big) || self.big + 1 > 0",
    "!has(self.ll) || self.ll.sum() > 3",
    "!has(self.ll) || self.ll.all(i, v, v > i)",
    "!has(self.sv) || semver(self.sv).isGreaterThan(semver('1.0.0'))",
    {
        "rule": f"!has(self.label) || !{_LABEL}.hasValue()",
        "messageExpression": f"'bad: ' + {_LABEL}.value()[0]",
    },
    {"rule": "!has(self.me) || self.me == 'x'", "messageExpression": "'a\\nb'", "message": "fallback"},
    {"rule": "!has(self.me) || self.me == 'x'", "messageExpression": "''"},
    {"rule": "!has(self.me) || self.me == 'x'", "messageExpression": "string(1 / 0)"},
    {"rule": "!has(self.dup) || self.dup == 'x'", "reason": "FieldValueDuplicate"},
    {"rule": "!has(self.req) || has(self.req.k)", "reason": "FieldValueRequired", "fieldPath": ".req.k"},
    "!has(self.tm) || self.tm.transformMap(k, v, v + k) == {'a': 'xa'}",
    "!has(self.tm) || self.tm.transformMapEntry(k, v, {v: k}) == {'x': 'a'}",
    "!has(self.tm) || self.tm.?b.orValue('none') == 'none'",
)
_COUNTED = {"properties": {"k": text(5), "v": INTEGER}, **rules("self.v > 0", "self.v >= oldSelf.v")}
SPEC: Json = {
    **an_object(
        a=text(20),
        opt=an_object(x=an_object(y=INTEGER)),
        n=INTEGER,
        l={"type": "array", "items": STRING, "maxItems": 5},
        im=text(10),
        ts=STRING | {"format": "date-time"},
        dur=STRING | {"format": "duration"},
        d={"type": "number"},
        ios={"x-kubernetes-int-or-string": True, "maxLength": 5},
        by=text(8, format="byte"),
        nn=text(5, nullable=True),
        q=text(20),
        url=text(50),
        ip=text(50),
        namespace=text(5),
        re=text(50),
        big=INTEGER,
        ll={"type": "array", "items": INTEGER, "maxItems": 5},
        sv=text(10),
        label=text(10),
        me=text(10),
        dup=text(10),
        req=an_object(k=STRING),
        tm={"type": "object", "maxProperties": 3, "additionalProperties": text(3)},
        s=text(5) | rules("self.startsWith('x')", "size(self) <= size(oldSelf)"),
        m={"type": "object", "maxProperties": 5, "additionalProperties": {"type": "object", **_COUNTED}},
        lm={
            "type": "array",
            "maxItems": 5,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "required": ["k"], **_COUNTED},
        },
        at={"type": "array", "maxItems": 5, "items": text(5) | rules("self != 'no'")},
        opt2=text(5) | rules({"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": True}),
        num=INTEGER | rules("self < 10", "self >= oldSelf"),
        mx=text(3),
        en={"type": "string", "enum": ["a", "b"]},
        emb={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
            **rules("self.kind == 'Pod'", "self.metadata.name == 'x'"),
        },
        sub=an_object(a=text(3), r=STRING),
    ),
    "required": ["a"],
    **_ON_SPEC,
}
SPEC["properties"]["a-b"] = text(5)
ON_ROOT = rules(
    "self.metadata.name.size() < 20",
    "self.kind == 'Ruled'",
    {"rule": "!has(self.spec.im) || self.spec.im != self.metadata.name", "message": "im is the name"},
)


def ruled(schema: Json) -> Json:
    """The definition, with that schema."""
    return crd("ruleds", schema, kind="Ruled", group="objects.rules.test.dev")


STRICT = ruled({**an_object(spec=SPEC), **ON_ROOT})
LOOSE = ruled(an_object(spec={"type": "object", "x-kubernetes-preserve-unknown-fields": True}))

_EMBEDDED = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
NEW: tuple[Json, ...] = (
    {},
    {"a": "bad"},
    {"a": "m"},
    {"a": "e"},
    {"a": "f"},
    {"a": None},
    {"a": 5},
    {"a": "bad", "mx": "long"},
    {"a": "bad", "en": "c"},
    {"opt": {}},
    {"opt": {"x": {}}},
    {"n": 0},
    {"l": ["a"]},
    {"im": "x"},
    {"ts": "2019-01-01T00:00:00Z"},
    {"ts": "2021-01-01T00:00:00.5Z"},
    {"dur": "5m"},
    {"dur": "2h"},
    {"d": 1},
    {"d": 2},
    {"d": 0.5},
    {"ios": 1},
    {"ios": "x"},
    {"ios": 6},
    {"by": "aGk="},
    {"by": "aGkx"},
    {"nn": None},
    {"q": "5"},
    {"q": "x"},
    {"q": "1Gi"},
    {"url": "https://ex.com/x"},
    {"url": "https://other"},
    {"url": "x y"},
    {"ip": "1.2.3.4"},
    {"ip": "::1"},
    {"ip": "x"},
    {"a-b": "y"},
    {"namespace": "y"},
    {"re": "ab12"},
    {"re": "ab"},
    {"big": 2**63 - 1},
    {"ll": [1, 2]},
    {"ll": [3, 4]},
    {"ll": [1, 0, 5]},
    {"sv": "1.0.1"},
    {"sv": "0.9.0"},
    {"sv": "x"},
    {"label": "UP"},
    {"me": "y"},
    {"dup": "y"},
    {"req": {}},
    {"tm": {"a": "x"}},
    {"tm": {"a": "x", "b": "x"}},
    {"tm": {"b": "y"}},
    {"s": "y"},
    {"m": {"k": {"v": 0}, "j": {}}},
    {"lm": [{"k": "a", "v": 0}, {"k": "b"}]},
    {"at": ["no", "yes", "no"]},
    {"opt2": "x"},
    {"opt2": "new"},
    {"num": 20},
    {"emb": _EMBEDDED},
    {"emb": {**_EMBEDDED, "kind": "X", "metadata": {"name": "y"}}},
    {"emb": {"apiVersion": "v1", "kind": "X"}},
)
"""Specs of new objects, beside `a`."""

CHANGED: tuple[tuple[Json, Json], ...] = (
    ({"s": "xa"}, {"s": "xabc"}),
    ({"s": "xabc"}, {"s": "xa"}),
    ({"m": {"k": {"v": 2}}}, {"m": {"k": {"v": 1}, "n": {"v": 1}}}),
    ({"lm": [{"k": "a", "v": 2}]}, {"lm": [{"k": "b", "v": 1}, {"k": "a", "v": 1}]}),
    ({"a": "once"}, {"a": "y"}),
    ({"im": "x"}, {"im": "y"}),
    ({"opt2": "new"}, {"opt2": "z"}),
    ({"num": 5}, {"num": 3}),
    ({"num": 5}, {"num": 5}),
    ({"num": 5}, {}),
)
"""Specs before and after."""

KEPT: tuple[tuple[Json, Json], ...] = (
    ({"a": "bad"}, {"a": "bad", "mx": "ok"}),
    ({"a": "bad"}, {"a": "bad"}),
    ({"s": "y"}, {"s": "y", "mx": "ab"}),
    ({"mx": "toolong"}, {"mx": "toolong", "n": 1}),
    ({"mx": "toolong"}, {"mx": "toolong2"}),
    ({"en": "q"}, {"en": "q", "n": 1}),
    ({"at": ["no"]}, {"at": ["no", "x"]}),
    ({"at": ["no"]}, {"at": ["no"], "n": 1}),
    ({"lm": [{"k": "a", "v": 0}]}, {"lm": [{"k": "b", "v": 0}, {"k": "a", "v": 0}]}),
    ({"sub": {"a": "toolong"}}, {"sub": {"a": "toolong", "r": "x"}}),
    ({"m": {"k": {"v": 0}}}, {"m": {"k": {"v": 0}, "z": {"v": 0}}}),
    (
        {"lm": [{"k": "a", "v": 1}, {"k": "a", "v": 1}]},
        {"lm": [{"k": "a", "v": 1}, {"k": "a", "v": 1}], "n": 2},
    ),
)
"""Specs that were stored before there were rules, and what becomes of them."""
