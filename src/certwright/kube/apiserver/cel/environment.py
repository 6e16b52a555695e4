"""CEL environment of Kubernetes, on the library cel-expr-python (`overloads.py` loads it).

A rule is compiled twice: with the types of the schema, when a CustomResourceDefinition is checked, and with
dynamic types, to be evaluated on plain dicts.

Known differences from Kubernetes, which uses the Go implementation:
- What a rule costs is not estimated. It may take 9,999 steps of comprehensions (the library's own limit) and
  the processor time of a `Meter`; more is reported as Kubernetes reports a rule that exceeds its cost.
- An expression that does not compile is described in the library's words.
- Two lists of type set or map are the same only when their items are in the same order.

Source: https://github.com/google/cel-spec; Kubernetes documentation, "Common Expression Language in
Kubernetes"; KEP-2876; cel-go `interpreter` (messages).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from certwright.kube.apiserver.cel import ast as cel_ast
from certwright.kube.apiserver.cel.functions import FUNCTIONS
from certwright.kube.apiserver.cel.limits import RENAMED, REPLACEMENTS, TICK, Meter, metered, rewrite, tick
from certwright.kube.apiserver.cel.overloads import (
    ANY,
    CARRIERS,
    Carried,
    Function,
    cel,
    descriptor,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    plain,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

# --- error messages: the library's for invalid expressions, Kubernetes' for failed evaluations -------------

_POSITION = re.compile(r"<input>:(\d+):")
_OWN_TYPE = re.compile(r"(undefined field '[^']*') not found in struct '[^']*'")
"""Names a type that was made for the check only."""


def of_refusal(text: str, *, wrapped: bool = False) -> str:
    """The library's messages for an expression that does not compile.

    `wrapped`: the expression began on the second line of what was compiled.
    """
    text = text.removeprefix("INVALID_ARGUMENT: ").removesuffix(" [INVALID_ARGUMENT]")
    text = _OWN_TYPE.sub(r"\1", text)
    return _POSITION.sub(lambda m: f"<input>:{int(m[1]) - 1}:", text) if wrapped else text


_STATUS = re.compile(r"^[A-Z_]+: ")
_CODE = re.compile(r" \[[A-Z_]+\]$")
_IN_KUBERNETES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r'Key not found in map : "?(.*?)"?'), r"no such key: \1"),
    (re.compile(r"Index error: index=(-?\d+) size=\d+"), r"index out of bounds: \1"),
    (re.compile(r"divide by zero"), "division by zero"),
    (re.compile(r"No matching overloads found.*", re.DOTALL), "no such overload"),
    (re.compile(r"Applying SELECT to non-message type|Invalid container type.*"), "no such overload"),
    (re.compile(r"Iteration budget exceeded"), "operation cancelled: actual cost limit exceeded"),
)


def of_failure(text: str) -> str:
    """The message for an expression whose evaluation failed."""
    text = _CODE.sub("", _STATUS.sub("", text))
    for pattern, words in _IN_KUBERNETES:
        if match := pattern.fullmatch(text):
            return match.expand(words)
    return text


_QUOTED = re.compile(
    r"//[^\n]*|[rR]?(?:\"\"\"(?:\\.|.)*?\"\"\"|'''(?:\\.|.)*?'''"
    r"|\"[^\"\\\n]*+(?:\\.[^\"\\\n]*+)*+\"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*+')|`",
    re.DOTALL,
)


def unsupported(expression: str) -> list[tuple[int, str]]:
    """Where the expression has names in backquotes, which Kubernetes does not allow."""
    tokens = [(match.start(), match[0]) for match in _QUOTED.finditer(expression)]
    return [(place, "unsupported syntax: '`'") for place, text in tokens if text == "`"][:1]


def at_places(expression: str, problems: Iterable[tuple[int, str]]) -> str:
    """Problems at places of an expression (as offsets in characters), with the line and a mark under it."""
    lines = expression.split("\n")
    texts = []
    for offset, text in problems:
        row, column = _place(lines, offset)
        shown = f"<input>:{row + 1}:{column + 1}: {text}"
        texts.append(f"ERROR: {shown}\n | {lines[row]}\n | {'.' * column}^")
    return "\n".join(texts)


def _place(lines: list[str], offset: int) -> tuple[int, int]:
    for row, line in enumerate(lines):
        if offset <= len(line):
            return row, offset
        offset -= len(line) + 1
    return len(lines) - 1, 0


# --- libraries ----------------------------------------------------------------------------------------------

EXTENSIONS = {
    "optional": "latest",
    "strings": "2",
    "sets": "latest",
    "lists": "latest",
    "two-var-comprehensions": "latest",
}
"""The libraries of CEL, in the versions that Kubernetes has."""

TIMESTAMP = "google.protobuf.Timestamp"
DURATION = "google.protobuf.Duration"


def config(*more: str) -> Any:
    """The libraries of CEL, and more of them."""
    versions = EXTENSIONS | dict.fromkeys(more, "latest")
    names = "".join(f"- name: {name}\n  version: {version}\n" for name, version in versions.items())
    return cel.NewEnvConfigFromYaml(f"name: kubernetes\nextensions:\n{names}")


BINDINGS = "bindings"
"""The library with `cel.bind`, which Kubernetes' rules do not have; our rules are wrapped in it."""
OLD = "oldSelf__"
"""What `oldSelf` is bound to."""
_HAS_OLD = "hasOldSelf__"


class CompileError(Exception):
    """The expression is invalid; the text shows where, with the line and a mark under it."""


class EvaluationError(Exception):
    """The expression could not be evaluated on this object, in the words of Kubernetes."""


class CostExceeded(EvaluationError):
    """The evaluation exceeded the limit of steps."""


# --- types ------------------------------------------------------------------------------------------------


def type_named(name: str) -> Any:
    """A type by its name: `string`, `list(int)`, `map(dyn)` (keys are strings), a message's."""
    if name.startswith("list(") and name.endswith(")"):
        return cel.Type.List(type_named(name[5:-1]))
    if name.startswith("map(") and name.endswith(")"):
        return cel.Type.Map(cel.Type.STRING, type_named(name[4:-1]))
    known = {
        "string": cel.Type.STRING,
        "int": cel.Type.INT,
        "double": cel.Type.DOUBLE,
        "bool": cel.Type.BOOL,
        "bytes": cel.Type.BYTES,
        "dyn": cel.Type.DYN,
        "timestamp": cel.Type.TIMESTAMP,
        "duration": cel.Type.DURATION,
    }
    cel_type = known.get(name)
    return cel_type if cel_type is not None else cel.Type(name)


# --- Kubernetes' functions ---------------------------------------------------------------------------------

PACKAGE = "kubernetes"
"""Of the types that CEL does not have."""
_VALUE = "Value"
_BASE = (struct_pb2, timestamp_pb2, duration_pb2, wrappers_pb2)


def base_files() -> list[str]:
    """The files of messages that every pool has."""
    return [module.DESCRIPTOR.name for module in _BASE]


def new_pool() -> Any:
    """Where message types are, with those of CEL and of Kubernetes."""
    pool = descriptor_pool.DescriptorPool()
    for module in _BASE:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(_carriers_file())
    return pool


@cache
def _carriers_file() -> Any:
    """The types that CEL lacks, as messages.

    In a check, each is a type of its own. At run time all are one message with the name of its type, because
    the library distinguishes overloads by kind only, and all messages are of one kind.
    """
    file = descriptor_pb2.FileDescriptorProto(name="kubernetes.proto", package=PACKAGE, syntax="proto3")
    for name in CARRIERS:
        file.message_type.add(name=name)
    value = file.message_type.add(name=_VALUE)
    types = descriptor.FieldDescriptor
    text, optional, repeated = types.TYPE_STRING, types.LABEL_OPTIONAL, types.LABEL_REPEATED
    value.field.add(name="type", number=1, type=text, label=optional)
    value.field.add(name="raw", number=2, type=text, label=repeated)
    return file


def overload(name: str, takes: Sequence[str], gives: str, function: Function, run: Any = None) -> Any:
    """One overload in the library's form; without `run` it is only declared."""
    return cel.Overload(
        re.sub(r"\W", "_", f"kubernetes_{name}_{'_'.join(takes)}"),
        type_named(gives),
        [type_named(kind) for kind in takes],
        is_member=function.member,
        impl=run,
    )


def _for_runs(pool: Any) -> Any:
    """The functions at run time, where overloads that become indistinguishable are merged; `limits.py` tells
    about those of ours."""
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{_VALUE}"))
    ours: dict[str, Sequence[Function]] = {TICK: [plain("bool", gives="bool", run=tick)]}
    ours |= {RENAMED[name]: functions for name, functions in REPLACEMENTS.items()}
    return cel.CelExtension(
        "kubernetes",
        [
            *(
                cel.FunctionDecl(name, _merged_overloads(name, functions, made))
                for name, functions in FUNCTIONS.items()
            ),
            *(
                cel.FunctionDecl(name, [overload(name, f.takes, f.gives, f, f.run) for f in functions])
                for name, functions in ours.items()
            ),
        ],
    )


def _run_kind(kind: str) -> str:
    if kind in CARRIERS:
        return f"{PACKAGE}.{_VALUE}"
    if kind == ANY:
        return "dyn"
    return "list(dyn)" if kind.startswith("list(") else "map(dyn)" if kind.startswith("map(") else kind


def _merged_overloads(name: str, functions: Sequence[Function], made: Any) -> list[Any]:
    groups: dict[tuple[str, ...], list[Function]] = {}
    for function in functions:
        groups.setdefault(tuple(_run_kind(kind) for kind in function.takes), []).append(function)
    overloads = []
    for takes, group in groups.items():
        gives = {_run_kind(function.gives) for function in group}
        result = gives.pop() if len(gives) == 1 else "dyn"
        overloads.append(overload(name, takes, result, group[0], _dispatcher(group, made)))
    return overloads


def _dispatcher(group: Sequence[Function], made: Any) -> Callable[..., Any]:
    carriers = frozenset(CARRIERS)
    table = {
        tuple(kind if kind in carriers else "" for kind in function.takes): function
        for function in reversed(group)
    }

    def run(*args: Any) -> Any:
        function = table.get(tuple(arg.type if isinstance(arg, made) else "" for arg in args))
        if function is None:
            raise ValueError("no such overload")
        result = function.run(*(tuple(arg.raw) if isinstance(arg, made) else arg for arg in args))
        return made(type=function.gives, raw=result) if function.gives in carriers else result

    return run


# --- compiling --------------------------------------------------------------------------------------------


def bound(expression: str, old: str) -> str:
    """The expression with `oldSelf` bound to another value."""
    # The expression is on separate lines, so that columns stay and a comment at its end ends there.
    return f"cel.bind(oldSelf, {old},\n{expression}\n)"


@cache
def _environment(names: tuple[str, ...]) -> Any:
    pool = new_pool()
    return cel.NewEnv(
        descriptor_pool=pool,
        config=config(BINDINGS),
        variables=dict.fromkeys(names, cel.Type.DYN),
        extensions=[_for_runs(pool)],
    )


def _carried(value: Carried) -> Any:
    # An environment accepts another environment's messages only as text.
    pool = new_pool()
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{_VALUE}"))
    return made(type=value.kind, raw=value.raw)


def _selected(part: Any) -> str:
    """The variable, or the field of a variable, that a part of an expression is; empty for any other part."""
    if part.HasField("select") and part.select.operand.HasField("name"):
        return f"{part.select.operand.name.name}.{part.select.field}"
    return str(part.name.name)


class Expression:
    """A compiled expression of any variables. Raises `CompileError`."""

    def __init__(self, text: str, variables: tuple[str, ...]) -> None:
        environment = _environment(variables)
        try:
            self._compiled = environment.compile(text)
        except RuntimeError as error:
            raise CompileError(of_refusal(str(error))) from None
        self.gives: str = self._compiled.return_type().name().lower()
        """The type of the value, without the types of its items; `dyn` where it is unknown."""
        rewritten = rewrite(self._compiled.serialize())
        if rewritten is not None:
            self._compiled = environment.deserialize(rewritten)

    def fields_of(self, variable: str) -> frozenset[str]:
        """The fields that the expression selects of a variable, or of its field, such as `request.kind`."""
        return frozenset(
            part.select.field
            for part in cel_ast.parts(cel_ast.read(self._compiled.serialize()).root)
            if part.HasField("select") and _selected(part.select.operand) == variable
        )

    def uses(self, variable: str) -> bool:
        """Whether the expression uses a variable."""
        return cel_ast.uses(cel_ast.read(self._compiled.serialize()).root, variable)

    def run(self, data: Mapping[str, Any], meter: Meter | None = None) -> Any:
        """The value as a Python object. Raises `EvaluationError`, `CostExceeded` among them.

        `meter`: the processor time that is left; None: no bound.
        """
        data = {name: _carried(value) if type(value) is Carried else value for name, value in data.items()}
        try:
            with metered(meter):
                result = self._compiled.eval(data=data)
        except RuntimeError as error:
            _check(meter)
            raise _failure(str(error)) from None
        # First: an expression may have a value even where a part of it was stopped.
        _check(meter)
        if result.type() == cel.Type.ERROR:
            raise _failure(str(result.value()))
        value = result.value()
        # The items of a list or map are accessors, which no other expression accepts.
        return result.plain_value() if isinstance(value, list | dict) else value


class Program:
    """A compiled rule on `self` and `oldSelf`. Raises `CompileError`."""

    def __init__(self, expression: str, *, optional_old: bool = False) -> None:
        variables = ("self", "oldSelf", OLD, _HAS_OLD)
        self._expression = Expression(expression, variables)
        self.uses_old = "oldSelf" in expression and self._expression.uses("oldSelf")
        self._optional = optional_old and self.uses_old
        if self._optional:
            text = bound(expression, f"{_HAS_OLD} ? optional.of({OLD}) : optional.none()")
            self._expression = Expression(text, variables)

    def run(self, new: Any, old: Any = None, meter: Meter | None = None) -> Any:
        """The value for `self` = `new`. Raises `EvaluationError`, `CostExceeded` among them."""
        if self._optional:
            return self._expression.run({"self": new, OLD: old, _HAS_OLD: old is not None}, meter)
        data = {"self": new, "oldSelf": old} if self.uses_old else {"self": new}
        return self._expression.run(data, meter)


def timestamp(text: str) -> Any:
    """A timestamp for rules, from RFC 3339. Raises `ValueError`."""
    made = timestamp_pb2.Timestamp()
    made.FromJsonString(text)
    return made


def duration(length: timedelta) -> Any:
    """A duration for rules."""
    made = duration_pb2.Duration()
    made.FromTimedelta(length)
    return made


def reusable(value: Any) -> Any:
    """The value of one expression, converted to the value of another expression's variable."""
    if isinstance(value, list):
        return [reusable(item) for item in value]
    if isinstance(value, dict):
        return {name: reusable(item) for name, item in value.items()}
    if isinstance(value, datetime):
        made = timestamp_pb2.Timestamp()
        made.FromDatetime(value)
        return made
    if isinstance(value, timedelta):
        return duration(value)
    return bytes(value) if isinstance(value, bytearray) else value


def _check(meter: Meter | None) -> None:
    if meter is not None and meter.is_exhausted:
        raise CostExceeded(
            f"operation cancelled: actual cost limit exceeded ({meter.shown} of processor time)"
        )


def _failure(text: str) -> EvaluationError:
    text = of_failure(text)
    kind = CostExceeded if text.startswith("operation cancelled") else EvaluationError
    return kind(text)
