"""CEL rules in schemas: what they refuse, and in which words.

The expected texts are the answers of k8s.io/apiextensions-apiserver 0.35.0 to the same objects.
"""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from certwright.kube.apiserver.cel import environment as cel
from certwright.kube.apiserver.cel import rules as cel_rules
from certwright.kube.apiserver.cel.limits import Meter
from certwright.kube.apiserver.cel.overloads import cel as library
from certwright.kube.apiserver.schemas.structural import Schema

Json = dict[str, Any]
RULES = "x-kubernetes-validations"


def text(limit: int = 20, given: list[Json] | None = None) -> Json:
    schema: Json = {"type": "string", "maxLength": limit}
    return schema | {RULES: given} if given else schema


INTEGER: Json = {"type": "integer"}


def rules(*given: str | Json) -> list[Json]:
    return [{"rule": rule} if isinstance(rule, str) else rule for rule in given]


FIELDS: Json = {
    "a": text(),
    "opt": {"type": "object", "properties": {"x": {"type": "object", "properties": {"y": INTEGER}}}},
    "n": INTEGER,
    "l": {"type": "array", "maxItems": 5, "items": text()},
    "ts": {"type": "string", "format": "date-time"},
    "dur": {"type": "string", "format": "duration"},
    "by": {"type": "string", "format": "byte"},
    "d": {"type": "number"},
    "ios": {"x-kubernetes-int-or-string": True},
    "q": text(),
    "url": text(50),
    "ip": text(50),
    "a-b": text(),
    "namespace": text(),
    "re": text(),
    "big": INTEGER,
    "ll": {"type": "array", "maxItems": 5, "items": INTEGER},
    "sv": text(),
    "fmt": text(),
    "dup": text(),
    "req": {"type": "object", "properties": {"k": text()}},
    "grow": text(given=rules("self.startsWith('x')", "size(self) <= size(oldSelf)")),
    "m": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"v": INTEGER},
            RULES: rules("self.v > 0", "self.v >= oldSelf.v"),
        },
    },
    "lm": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"],
        "items": {
            "type": "object",
            "properties": {"k": text(), "v": INTEGER},
            RULES: rules("self.v > 0", "self.v >= oldSelf.v"),
        },
    },
    "at": {"type": "array", "items": text(given=rules("self != 'no'"))},
    "new": text(given=[{"rule": "oldSelf.hasValue() || self == 'new'", "optionalOldSelf": True}]),
    "mx": text(3),
    "emb": {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
        RULES: rules("self.kind == 'Pod'", "self.metadata.name == 'x'"),
    },
}
SPEC: Json = {
    "type": "object",
    "properties": FIELDS,
    RULES: rules(
        "self.a != 'bad'",
        {"rule": "self.a != 'm'", "message": "no m"},
        {"rule": "self.a != 'e'", "messageExpression": "'no ' + self.a"},
        {"rule": "self.a != 'nl'", "messageExpression": "'a\\nb'", "message": "fallback"},
        {"rule": "self.a != 'f'", "reason": "FieldValueForbidden", "fieldPath": ".a"},
        {"rule": "self.a != 'r'", "reason": "FieldValueRequired", "fieldPath": ".req['k']"},
        {"rule": "self.a != 'd'", "reason": "FieldValueDuplicate"},
        "!has(self.opt) || self.opt.x.y == 1",
        "!has(self.n) || 10 / self.n > 0",
        "!has(self.l) || self.l[2] == 'c'",
        {"rule": "oldSelf.a != 'once' || self.a == 'once'", "message": "once"},
        "!has(self.ts) || self.ts > timestamp('2020-01-01T00:00:00Z')",
        "!has(self.dur) || self.dur > duration('1h')",
        "!has(self.d) || self.d > 1",
        "!has(self.ios) || self.ios > 5",
        "!has(self.by) || size(self.by) == 2",
        "!has(self.q) || quantity(self.q).isGreaterThan(quantity('1Mi'))",
        "!has(self.url) || url(self.url).getHost() == 'ex.com'",
        "!has(self.ip) || ip(self.ip).family() == 4",
        "!has(self.a__dash__b) || self.a__dash__b == 'x'",
        "!has(self.__namespace__) || self.namespace == 'x'",
        "!has(self.re) || self.re.find('([0-9])+') == '12'",
        "!has(self.big) || self.big + 1 > 0",
        "!has(self.ll) || self.ll.all(i, v, v > i)",
        "!has(self.sv) || semver(self.sv).isGreaterThan(semver('1.0.0'))",
        {
            "rule": "!has(self.fmt) || !format.dns1123Label().validate(self.fmt).hasValue()",
            "messageExpression": "format.dns1123Label().validate(self.fmt).value()[0].substring(0, 26)",
        },
    ),
}
SCHEMA = Schema(
    {
        "type": "object",
        "properties": {"spec": SPEC},
        RULES: rules("self.metadata.name.size() < 9", "self.kind == 'Bar'"),
    }
)
A = {"a": "x"}


def found(new: Json, old: Json | None = None, name: str = "x") -> list[str]:
    def bar(spec: Json) -> Json:
        obj = {"kind": "Bar", "metadata": {"name": name, "labels": {"a": "b"}}, "spec": copy.deepcopy(spec)}
        SCHEMA.process(obj)
        return obj

    return [str(error) for error in SCHEMA.validate(bar(new), bar(old) if old is not None else None)]


def failed(rule: str, where: str = "spec") -> list[str]:
    return [f"{where}: Invalid value: failed rule: {rule}"]


def test_what_fulfils_the_rules_is_accepted() -> None:
    spec = {
        "a": "x",
        "opt": {"x": {"y": 1}},
        "n": 3,
        "l": ["a", "b", "c"],
        "ts": "2021-01-01T00:00:00.5Z",
        "dur": "2h",
        "by": "aGk=",
        "d": 2,
        "ios": 6,
        "q": "1Gi",
        "url": "https://ex.com/x",
        "ip": "1.2.3.4",
        "a-b": "x",
        "namespace": "x",
        "re": "ab12",
        "ll": [3, 4],
        "sv": "1.0.1",
        "fmt": "fine",
        "emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}},
    }
    assert found(spec) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"a": "bad"}, failed("self.a != 'bad'")),
        ({"a": "m"}, ["spec: Invalid value: no m"]),
        ({"a": "e"}, ["spec: Invalid value: no e"]),
        ({"a": "nl"}, ["spec: Invalid value: fallback"]),
        ({"a": "f"}, ["spec.a: Forbidden: failed rule: self.a != 'f'"]),
        ({"a": "r"}, ["spec.req.k: Required value: failed rule: self.a != 'r'"]),
        ({"a": "d"}, ["spec: Duplicate value"]),
        (
            {**A, "ts": "2019-01-01T00:00:00Z"},
            failed("!has(self.ts) || self.ts > timestamp('2020-01-01T00:00:00Z')"),
        ),
        ({**A, "dur": "5m"}, failed("!has(self.dur) || self.dur > duration('1h')")),
        ({**A, "d": 1}, failed("!has(self.d) || self.d > 1")),
        ({**A, "by": "aGkx"}, failed("!has(self.by) || size(self.by) == 2")),
        ({**A, "q": "5"}, failed("!has(self.q) || quantity(self.q).isGreaterThan(quantity('1Mi'))")),
        ({**A, "url": "https://other"}, failed("!has(self.url) || url(self.url).getHost() == 'ex.com'")),
        ({**A, "ip": "::1"}, failed("!has(self.ip) || ip(self.ip).family() == 4")),
        ({**A, "a-b": "y"}, failed("!has(self.a__dash__b) || self.a__dash__b == 'x'")),
        ({**A, "namespace": "y"}, failed("!has(self.__namespace__) || self.namespace == 'x'")),
        ({**A, "re": "ab"}, failed("!has(self.re) || self.re.find('([0-9])+') == '12'")),
        ({**A, "ll": [1, 0]}, failed("!has(self.ll) || self.ll.all(i, v, v > i)")),
        ({**A, "sv": "0.9.0"}, failed("!has(self.sv) || semver(self.sv).isGreaterThan(semver('1.0.0'))")),
        ({**A, "fmt": "UP"}, ["spec: Invalid value: a lowercase RFC 1123 label"]),
        ({**A, "grow": "y"}, ["spec.grow: Invalid value: \"y\": failed rule: self.startsWith('x')"]),
        ({**A, "at": ["no", "yes"]}, ["spec.at[0]: Invalid value: \"no\": failed rule: self != 'no'"]),
        ({**A, "m": {"k": {"v": 0}}}, failed("self.v > 0", "spec.m[k]")),
        ({**A, "lm": [{"k": "a", "v": 1}, {"k": "b", "v": 0}]}, failed("self.v > 0", "spec.lm[1]")),
    ],
)
def test_a_rule_refuses(spec: Json, expected: list[str]) -> None:
    assert found(spec) == expected


@pytest.mark.parametrize(
    ("spec", "problem", "rule"),
    [
        ({"opt": {}}, "no such key: x", "!has(self.opt) || self.opt.x.y == 1"),
        ({"n": 0}, "division by zero", "!has(self.n) || 10 / self.n > 0"),
        ({"l": ["a"]}, "index out of bounds: 2", "!has(self.l) || self.l[2] == 'c'"),
        (
            {"ios": "x"},
            "'no such overload': call arguments did not match a supported operator, function or macro "
            "signature for rule: !has(self.ios) || self.ios > 5",
            "",
        ),
        ({"big": 2**63 - 1}, "integer overflow", "!has(self.big) || self.big + 1 > 0"),
        (
            {"q": "x"},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            "!has(self.q) || quantity(self.q).isGreaterThan(quantity('1Mi'))",
        ),
        (
            {"sv": "x"},
            "No Major.Minor.Patch elements found",
            "!has(self.sv) || semver(self.sv).isGreaterThan(semver('1.0.0'))",
        ),
    ],
)
def test_a_rule_that_cannot_be_evaluated_refuses(spec: Json, problem: str, rule: str) -> None:
    text_ = f"{problem} evaluating rule: {rule}" if rule else problem
    assert found({**A, **spec}) == [f'spec: Invalid value: "object": {text_}']


def test_rules_wait_until_the_types_are_right() -> None:
    errors = found({"a": "bad", "mx": "long"})
    assert errors[0] == "spec.mx: Too long: may not be more than 3 bytes"
    assert errors[1].startswith("<nil>: Invalid value: null: some validation rules were not checked")


def test_rules_at_the_root_see_the_name() -> None:
    assert found(A, name="waytoolong") == failed("self.metadata.name.size() < 9", "<nil>")


def test_an_embedded_resource_shows_its_kind_and_name() -> None:
    emb = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "y"}}
    assert found({**A, "emb": emb}) == [
        "spec.emb: Invalid value: failed rule: self.kind == 'Pod'",
        "spec.emb: Invalid value: failed rule: self.metadata.name == 'x'",
    ]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (
            {"grow": "xabc"},
            {"grow": "xa"},
            ['spec.grow: Invalid value: "xabc": failed rule: size(self) <= size(oldSelf)'],
        ),
        ({"grow": "xa"}, {"grow": "xabc"}, []),
        ({"a": "y"}, {"a": "once"}, ["spec: Invalid value: once"]),
        (
            {"m": {"k": {"v": 1}, "n": {"v": 1}}},
            {"m": {"k": {"v": 2}}},
            failed("self.v >= oldSelf.v", "spec.m[k]"),
        ),
        (
            {"lm": [{"k": "b", "v": 1}, {"k": "a", "v": 1}]},
            {"lm": [{"k": "a", "v": 2}]},
            failed("self.v >= oldSelf.v", "spec.lm[1]"),
        ),
        ({"new": "z"}, {"new": "new"}, []),
    ],
)
def test_a_rule_compares_with_what_was_before(new: Json, old: Json, expected: list[str]) -> None:
    assert found({**A, **new}, {**A, **old}) == expected


def test_a_rule_may_say_what_holds_for_new_values_only() -> None:
    expected = "spec.new: Invalid value: \"z\": failed rule: oldSelf.hasValue() || self == 'new'"
    assert found({**A, "new": "z"}) == [expected]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({"a": "bad"}, {"a": "bad"}, []),
        ({"a": "bad", "mx": "ok"}, {"a": "bad"}, failed("self.a != 'bad'")),
        ({"grow": "y", "mx": "ab"}, {"grow": "y"}, []),
        ({"mx": "toolong", "n": 1}, {"mx": "toolong"}, []),
        ({"mx": "toolong2"}, {"mx": "toolong"}, ["spec.mx: Too long: may not be more than 3 bytes"]),
        ({"at": ["no"], "n": 1}, {"at": ["no"]}, []),
        (
            {"at": ["no", "x"]},
            {"at": ["no"]},
            ["spec.at[0]: Invalid value: \"no\": failed rule: self != 'no'"],
        ),
        (
            {"lm": [{"k": "b", "v": 0}, {"k": "a", "v": 0}]},
            {"lm": [{"k": "a", "v": 0}]},
            failed("self.v > 0", "spec.lm[0]"),
        ),
        ({"m": {"k": {"v": 0}, "z": {"v": 0}}}, {"m": {"k": {"v": 0}}}, failed("self.v > 0", "spec.m[z]")),
        (
            {"lm": [{"k": "a", "v": 1}, {"k": "a", "v": 1}], "n": 2},
            {"lm": [{"k": "a", "v": 1}, {"k": "a", "v": 1}]},
            [],
        ),
    ],
)
def test_what_has_not_changed_is_not_judged_again(new: Json, old: Json, expected: list[str]) -> None:
    errors = found({**A, **new}, {**A, **old})
    assert [error for error in errors if not error.startswith("<nil>")] == expected


def test_a_rule_that_runs_too_long_stops_all() -> None:
    spec = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": INTEGER}},
        RULES: rules("self.l.all(x, self.l.all(y, x == y))", "false"),
    }
    errors = Schema({"type": "object", "properties": {"spec": spec}}).validate({"spec": {"l": [1] * 500}})
    assert [str(error) for error in errors] == [
        "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no further "
        "validation rules will be run due to call cost exceeds limit for rule: "
        "self.l.all(x, self.l.all(y, x == y))"
    ]


@pytest.mark.parametrize(
    ("embedded", "expected"),
    [
        ({}, ["spec.e.apiVersion: Required value", "spec.e.kind: Required value"]),
        (
            {"apiVersion": "a/b/c", "kind": "Pod"},
            ['spec.e.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
        ),
        ({"apiVersion": "v1", "kind": 5}, ["spec.e.kind: Invalid value: 5: must be a string"]),
        (
            {"apiVersion": "v1", "kind": "Pod", "metadata": "x"},
            ['spec.e.metadata: Invalid value: "x": must be an object'],
        ),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "more": 1}, []),
    ],
)
def test_an_embedded_resource_says_what_it_is(embedded: Json, expected: list[str]) -> None:
    inner = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    schema = Schema(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"e": inner}}}}
    )
    assert [str(error) for error in schema.validate({"spec": {"e": embedded}})] == expected


def test_the_labels_of_an_embedded_resource_are_checked() -> None:
    emb = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a b": "c"}}}
    (error,) = [error for error in found({**A, "emb": emb}) if not error.startswith("<nil>")]
    assert error.startswith('spec.emb.metadata.labels: Invalid value: "a b": name part must consist of')


QUADRATIC = "self.map(x, x + 1).size() >= 0"


class SteppingClock:
    """Processor time that goes on by a millisecond with each look."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.looks / 1000


def errors_of(rules: list[str], value: Any, old: Any = None, clock: Any = None) -> list[str]:
    """What rules on a list say of it."""
    schema = {"type": "array", "items": {"type": "integer"}, RULES: [{"rule": rule} for rule in rules]}
    node = cel_rules.compile_rules(schema)
    assert node is not None
    return [str(error) for error in cel_rules.run_rules(node, value, old, clock=clock or SteppingClock())]


def test_a_loop_is_stopped_when_the_processor_time_is_used_up() -> None:
    clock = SteppingClock()
    (error,) = errors_of([QUADRATIC, "false"], list(range(9000)), clock=clock)
    assert error.startswith('<nil>: Invalid value: "array": ')
    assert error.endswith(
        "'operation cancelled: actual cost limit exceeded (1 s of processor time)': no further validation "
        f"rules will be run due to call cost exceeds limit for rule: {QUADRATIC}"
    )
    assert clock.looks < 1020


def test_a_stopped_loop_is_an_error_also_where_the_value_does_not_depend_on_it() -> None:
    (error,) = errors_of([f"{QUADRATIC} || true"], list(range(9000)))
    assert "actual cost limit exceeded (1 s of processor time)" in error


def test_rules_without_loops_are_bounded_together() -> None:
    errors = errors_of(["self.size() > 0"] * 1200, [1])
    assert errors == [
        '<nil>: Invalid value: "array": validation failed due to running out of cost budget, no further '
        "validation rules will be run (1 s of processor time for the rules of one object) for rule: "
        "self.size() > 0"
    ]


def test_a_value_with_very_many_items_is_refused_before_a_rule_is_given_it() -> None:
    (error,) = errors_of(["self.size() > 0"], [1] * (cel_rules.MAX_VALUES + 1), clock=lambda: 0.0)
    assert error.endswith(
        "the value has more than 100000 fields and items, no further validation rules will be run due to "
        "this limit for rule: self.size() > 0"
    )
    assert errors_of(["self.size() > 0"], [1] * 90_000, clock=lambda: 0.0) == []


def test_other_threads_go_on_while_a_loop_runs() -> None:
    turns, is_over = itertools.count(), threading.Event()

    def others() -> None:
        while not is_over.wait(0.0001):
            next(turns)

    other = threading.Thread(target=others)
    other.start()
    program = cel.Program("self.map(x, x + 1).size() >= 0")
    before = next(turns)
    assert program.run(list(range(4000))) is True
    during = next(turns) - before
    is_over.set()
    other.join()
    assert during > 10


TEXTS = ("", "a", "ab", "aba", "äöü", "a,b,,c", "ababab")
PARTS = ("", "a", "b", "ab", ",", "ö", "x", "ababababab")


def expressions() -> Iterator[str]:
    """Calls of the functions that are replaced, with arguments at the edges."""
    for text, part in itertools.product(TEXTS, PARTS):
        for name in ("contains", "indexOf", "lastIndexOf", "split"):
            yield f"'{text}'.{name}('{part}')"
        for number in (-1, 0, 1, 2, 9):
            for name in ("indexOf", "lastIndexOf", "split"):
                yield f"'{text}'.{name}('{part}', {number})"
            yield f"'{text}'.replace('{part}', 'xy', {number})"
        yield f"'{text}'.replace('{part}', 'xy')"
    lists = ("[]", "[1]", "[1, 2]", "[2, 1, 1]", "['a', 1]", "[1.0, true]", "[[1], {'a': 1}]", "[{'a': 1}]")
    for one, other in itertools.product(lists, lists):
        for name in ("contains", "intersects", "equivalent"):
            yield f"sets.{name}(dyn({one}), dyn({other}))"


def value_of(expression: Any) -> Any:
    """The value, or that there is none."""
    result = expression.eval(data={})
    return "an error" if result.type() == library.Type.ERROR else str(result.plain_value())


def test_replaced_functions_return_what_those_of_the_library_do() -> None:
    environment = cel._environment(())
    wrong = []
    for text in expressions():
        library = value_of(environment.compile(text))
        try:
            ours = str(cel.Expression(text, ()).run({}, Meter(60.0)))
        except cel.EvaluationError:
            ours = "an error"
        if ours != library:
            wrong.append((text, ours, library))
    assert not wrong, wrong[:10]


@pytest.mark.parametrize(
    "rule",
    [
        "self.s.contains(self.t)",
        "self.s.indexOf(self.t) == 0",
        "self.s.lastIndexOf(self.t) == 0",
        "self.s.replace(self.t, '').size() == 1",
        "self.s.split(self.t).size() == 9",
    ],
)
def test_searching_a_long_text_for_a_long_one_takes_linear_time(rule: str) -> None:
    program, size = cel.Program(rule), 1_500_000
    # The library would take more than ten seconds.
    assert program.run({"s": "a" * size, "t": "a" * (size // 2) + "b"}, None, Meter(3.0)) is False


def test_sets_are_compared_in_linear_time() -> None:
    items = [str(number) for number in range(50_000)]
    assert cel.Program("sets.equivalent(self, self)").run(items, None, Meter(3.0)) is True
