"""CEL rules in schemas: what they refuse, and in which words.

The expected texts are the answers of k8s.io/apiextensions-apiserver 0.35.0 to the same objects.
"""

from __future__ import annotations

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


def failed(rule: str, where: str = "spec") -> list[str]:
    return [f"{where}: Invalid value: failed rule: {rule}"]


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
