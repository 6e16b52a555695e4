"""The Common Expression Language as Kubernetes speaks it; the one module that knows which library runs it.

Import it only when there is a rule to compile: the library and its messages take 12 MB.

A rule is compiled twice. Once with the types of the schema, when a CustomResourceDefinition is checked: the
texts of what is wrong are those of Kubernetes. And once with dynamic types, to be evaluated on plain dicts.

Known differences from Kubernetes, which uses the Go implementation:
- What a rule costs is estimated (`cel_estimate`), not counted when it runs. It may take 9,999 steps of
  comprehensions (the library's own limit, about a millisecond), which is reported as Kubernetes reports a
  rule that exceeds its cost.
- Two lists of type set or map are the same only when their items are in the same order.

Source: https://github.com/google/cel-spec; Kubernetes documentation, "Common Expression Language in
Kubernetes"; KEP-2876.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

from certwright.apiserver.schemas import cel_ast, cel_functions, cel_literals, cel_words
from certwright.apiserver.schemas.cel_functions import Carried, Function

# Neither library tells its types to mypy.
cel: Any = import_module("cel_expr_python.cel")
descriptor_pb2: Any = import_module("google.protobuf.descriptor_pb2")
descriptor_pool: Any = import_module("google.protobuf.descriptor_pool")
duration_pb2: Any = import_module("google.protobuf.duration_pb2")
message_factory: Any = import_module("google.protobuf.message_factory")
struct_pb2: Any = import_module("google.protobuf.struct_pb2")
timestamp_pb2: Any = import_module("google.protobuf.timestamp_pb2")
wrappers_pb2: Any = import_module("google.protobuf.wrappers_pb2")
FieldDescriptor: Any = import_module("google.protobuf.descriptor").FieldDescriptor

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


def _config(*more: str) -> Any:
    versions = EXTENSIONS | dict.fromkeys(more, "latest")
    names = "".join(f"- name: {name}\n  version: {version}\n" for name, version in versions.items())
    return cel.NewEnvConfigFromYaml(f"name: kubernetes\nextensions:\n{names}")


_BINDINGS = "bindings"  # `cel.bind`, which rules of Kubernetes do not have; ours are wrapped in it
_OLD, _HAS_OLD = "oldSelf__", "hasOldSelf__"


class CompileError(Exception):
    """The expression is wrong; the text says where, with the line and a mark under it."""


class EvaluationError(Exception):
    """The expression could not be evaluated on this object, in the words of Kubernetes."""


class CostExceeded(EvaluationError):
    """The evaluation took more steps than any may take."""


# --- types ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """A field of an object as rules see it: its name, its kind in the terms of `Types.message`."""

    name: str
    kind: str
    repeated: bool = False


class Types:
    """The types that one schema needs, made as messages in a pool of their own."""

    _SCALARS: ClassVar[dict[str, int]] = {
        "string": FieldDescriptor.TYPE_STRING,
        "int": FieldDescriptor.TYPE_INT64,
        "double": FieldDescriptor.TYPE_DOUBLE,
        "bool": FieldDescriptor.TYPE_BOOL,
        "bytes": FieldDescriptor.TYPE_BYTES,
    }
    _KNOWN: ClassVar[dict[str, str]] = {
        "timestamp": TIMESTAMP,
        "duration": DURATION,
        "dyn": "google.protobuf.Value",
        "list": "google.protobuf.ListValue",
        "map": "google.protobuf.Struct",
    }

    def __init__(self) -> None:
        self._file = descriptor_pb2.FileDescriptorProto(name="self.proto", syntax="proto2")
        self._file.dependency.extend(_BASE_FILES)
        self._count = 0

    def message(self, fields: Iterable[Field], maps: Mapping[str, str]) -> str:
        """A new message type with `fields` and, for each of `maps`, a map from strings to that kind."""
        name = f"selfType{self._count}"
        self._count += 1
        made = self._file.message_type.add(name=name)
        # Names that differ in an underscore or in case only would have the same name in JSON.
        made.options.deprecated_legacy_json_field_conflicts = True
        for field in fields:
            self._set_kind(self._new_field(made, field.name), field.kind, repeated=field.repeated)
        for key, kind in maps.items():
            # The library wants the type of a map's entries to be called so.
            entry_name = "".join(word[:1].upper() + word[1:] for word in key.split("_")) + "Entry"
            if any(entry.name == entry_name for entry in made.nested_type):
                self._set_kind(self._new_field(made, key), "dyn")
                continue
            entry = made.nested_type.add(name=entry_name)
            entry.options.map_entry = True
            self._set_kind(entry.field.add(name="key", number=1), "string")
            self._set_kind(entry.field.add(name="value", number=2), kind)
            self._set_kind(self._new_field(made, key), f"{name}.{entry.name}", repeated=True)
        return name

    @staticmethod
    def _new_field(made: Any, name: str) -> Any:
        return made.field.add(name=name, number=len(made.field) + 1)

    def _set_kind(self, field: Any, kind: str, *, repeated: bool = False) -> None:
        field.label = FieldDescriptor.LABEL_REPEATED if repeated else FieldDescriptor.LABEL_OPTIONAL
        if kind in self._SCALARS:
            field.type = self._SCALARS[kind]
        else:
            field.type = FieldDescriptor.TYPE_MESSAGE
            field.type_name = "." + self._KNOWN.get(kind, kind)

    def checker(self, of_self: str, parts: Mapping[str, str]) -> Checker:
        """Checks rules whose `self` is of that type: a message's name, `string`, `list(int)`, …

        `parts` has the types of what is in it, by path (`spec.lists`), where a message cannot say them.
        """
        pool = _new_pool()
        pool.Add(self._file)
        messages = [message.name for message in self._file.message_type]
        return Checker(pool, _type(of_self), {path: _type(kind) for path, kind in parts.items()}, messages)


def _type(name: str) -> Any:
    if name.startswith("list(") and name.endswith(")"):
        return cel.Type.List(_type(name[5:-1]))
    if name.startswith("map(") and name.endswith(")"):
        return cel.Type.Map(cel.Type.STRING, _type(name[4:-1]))
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
    found = known.get(name)
    return found if found is not None else cel.Type(name)


# --- Kubernetes' functions ---------------------------------------------------------------------------------

_PACKAGE = "kubernetes"
_VALUE = "Value"
_BASE = (struct_pb2, timestamp_pb2, duration_pb2, wrappers_pb2)
_BASE_FILES = tuple(module.DESCRIPTOR.name for module in _BASE)


def _new_pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in _BASE:
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(_carriers_file())
    return pool


@cache
def _carriers_file() -> Any:
    """The types that CEL does not have, as messages.

    While a rule is checked each is a type of its own. While it runs all are one, which names its type: the
    library tells overloads apart by kind only there, and all messages are of one kind.
    """
    file = descriptor_pb2.FileDescriptorProto(name="kubernetes.proto", package=_PACKAGE, syntax="proto3")
    for name in cel_functions.CARRIERS:
        file.message_type.add(name=name)
    value = file.message_type.add(name=_VALUE)
    text, optional, repeated = (
        FieldDescriptor.TYPE_STRING,
        FieldDescriptor.LABEL_OPTIONAL,
        FieldDescriptor.LABEL_REPEATED,
    )
    value.field.add(name="type", number=1, type=text, label=optional)
    value.field.add(name="raw", number=2, type=text, label=repeated)
    return file


def _overload(name: str, takes: Sequence[str], gives: str, function: Function, run: Any = None) -> Any:
    return cel.Overload(
        re.sub(r"\W", "_", f"kubernetes_{name}_{'_'.join(takes)}"),
        _type(gives),
        [_type(kind) for kind in takes],
        is_member=function.member,
        impl=run,
    )


_KINDS = ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint")


def _for_checks(messages: Sequence[str]) -> Any:
    """The functions as declared, each overload with its own types; nothing runs."""
    kinds = (*_KINDS, *messages)
    declared = [
        cel.FunctionDecl(name, [made for f in functions for made in _declared(name, f, kinds)])
        for name, functions in cel_functions.FUNCTIONS.items()
    ]
    return cel.CelExtension("kubernetes", [*declared, *_comparisons()])


def _declared(name: str, function: Function, kinds: Sequence[str]) -> Iterator[Any]:
    """A function's overload, or one for each of `kinds` where it takes any."""

    def named(kind: str) -> str:
        return f"{_PACKAGE}.{kind}" if kind in cel_functions.CARRIERS else kind

    takes, gives = [named(kind) for kind in function.takes], named(function.gives)
    if cel_functions.ANY not in takes:
        yield _overload(name, takes, gives, function)
        return
    whole, listed = cel_functions.ANY, f"list({cel_functions.ANY})"
    for any_kind in kinds:
        meant = {whole: any_kind, listed: f"list({any_kind})"}
        yield _overload(name, [meant.get(kind, kind) for kind in takes], gives, function)


def _for_runs(pool: Any) -> Any:
    """The functions as they run: overloads that look the same then are one."""
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{_VALUE}"))
    return cel.CelExtension(
        "kubernetes",
        [
            cel.FunctionDecl(name, _merged_overloads(name, functions, made))
            for name, functions in cel_functions.FUNCTIONS.items()
        ]
        + [_inserts()],
    )


def _run_kind(kind: str) -> str:
    if kind in cel_functions.CARRIERS:
        return f"{_PACKAGE}.{_VALUE}"
    if kind == cel_functions.ANY:
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
        overloads.append(_overload(name, takes, result, group[0], _dispatcher(group, made)))
    return overloads


def _dispatcher(group: Sequence[Function], made: Any) -> Callable[..., Any]:
    carriers = frozenset(cel_functions.CARRIERS)
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


def _comparisons() -> list[Any]:
    """Numbers of different types may be compared: the library does it, but its check does not know."""
    numbers = ("int", "uint", "double")
    kinds = {"int": cel.Type.INT, "uint": cel.Type.UINT, "double": cel.Type.DOUBLE}
    return [
        cel.FunctionDecl(
            operator,
            [
                cel.Overload(f"mixed_{operator}_{one}_{other}", cel.Type.BOOL, [kinds[one], kinds[other]])
                for one in numbers
                for other in numbers
                if one != other
            ],
        )
        for operator in ("_<_", "_<=_", "_>_", "_>=_")
    ]


# --- compiling --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check of an expression tells: the type of its value, and the expression as a tree."""

    gives: str
    tree: cel_ast.Tree

    @property
    def uses_old(self) -> bool:
        """Whether it looks at `oldSelf`."""
        names = (part.name for part in self.tree.parts if isinstance(part, cel_ast.Name))
        return any(name.partition(".")[0] == "oldSelf" for name in names)


class Checker:
    """Checks expressions against the type of `self`."""

    def __init__(self, pool: Any, of_self: Any, parts: Mapping[str, Any], messages: Sequence[str]) -> None:
        extension = _for_checks(messages)
        # The longest name that is known wins, so these hide the fields of the same name.
        own, old = ({f"{name}.{path}": kind for path, kind in parts.items()} for name in ("self", "oldSelf"))

        def env(*libraries: str, **variables: Any) -> Any:
            return cel.NewEnv(
                descriptor_pool=pool, config=_config(*libraries), variables=variables, extensions=[extension]
            )

        plain = {"self": of_self, "oldSelf": of_self}
        self._plain = env(**plain)
        self._with_parts = env(**plain, **own, **old) if parts else self._plain
        self._optional = env(_BINDINGS, **{"self": of_self, _OLD: of_self})

    def check(self, expression: str, *, optional_old: bool = False) -> Checked:
        """The type of an expression's value. Raises `CompileError`."""
        if problems := cel_words.unsupported(expression):
            raise CompileError(cel_words.at_places(expression, problems))
        try:
            if optional_old:
                text = _bound(expression, f"optional.of({_OLD})")
                compiled = self._optional.compile(text)
            else:
                # `has` takes a field, not a name.
                compiled = (self._plain if "has(" in expression else self._with_parts).compile(expression)
        except RuntimeError as error:
            raise CompileError(cel_words.of_refusal(str(error), wrapped=optional_old)) from None
        tree = cel_ast.read(compiled.serialize())
        if optional_old:
            tree = cel_ast.inside(tree, text.index("\n") + 1)
        if problems := cel_literals.problems(tree, _holds):
            raise CompileError(cel_words.at_places(expression, problems))
        return Checked(compiled.return_type().name().lower(), tree)


_LITERALS = {"matches": "''.matches(value)", "duration": "duration(value)", "timestamp": "timestamp(value)"}


def _holds(function: str, value: object) -> bool:
    """Whether a function can do with that argument."""
    try:
        Expression(_LITERALS[function], ("value",)).run({"value": value})
    except EvaluationError:
        return False
    return True


def _uses_old(env: Any, expression: str) -> bool:
    if "oldSelf" not in expression:
        return False
    try:
        env.compile(expression)
    except RuntimeError:
        return True
    return False


def _bound(expression: str, old: str) -> str:
    # The expression has lines of its own, so that columns stay and a comment at its end ends there.
    return f"cel.bind(oldSelf, {old},\n{expression}\n)"


_INSERT = b"@mapInsert"
_OUR_NAME, _OUR_INSERT = b"k8s.mapInserts", b"k8s_insert"  # of the same lengths


def _inserts() -> Any:
    """What `transformMap` and `transformMapEntry` do for each entry."""
    a_map = cel.Type.Map(cel.Type.DYN, cel.Type.DYN)
    name = _OUR_INSERT.decode()
    return cel.FunctionDecl(
        _OUR_NAME.decode(),
        [
            cel.Overload(f"{name}_map_key_value", a_map, [a_map, cel.Type.DYN, cel.Type.DYN], impl=_with_key),
            cel.Overload(f"{name}_map_map", a_map, [a_map, a_map], impl=_with_entries),
        ],
    )


def _with_key(made: Mapping[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    return _with_entries(made, {key: value})


def _with_entries(made: Mapping[Any, Any], more: Mapping[Any, Any]) -> dict[Any, Any]:
    for key in more:
        if key in made:
            raise ValueError(f"insert failed: key {key} already exists")
    return {**made, **more}


@cache
def _environment(names: tuple[str, ...]) -> Any:
    """Where expressions with these variables run."""
    pool = _new_pool()
    return cel.NewEnv(
        descriptor_pool=pool,
        config=_config(_BINDINGS),
        variables=dict.fromkeys(names, cel.Type.DYN),
        extensions=[_for_runs(pool)],
    )


def _carried(value: Carried) -> Any:
    # The messages of one environment are not those of another; by their text they are understood in all.
    pool = _new_pool()
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{_VALUE}"))
    return made(type=value.kind, raw=value.raw)


class Expression:
    """An expression of any variables, ready to run. Raises `CompileError`."""

    def __init__(self, text: str, variables: tuple[str, ...]) -> None:
        environment = _environment(variables)
        try:
            self._compiled = environment.compile(text)
        except RuntimeError as error:
            raise CompileError(cel_words.of_refusal(str(error))) from None
        if "transformMap" in text and _INSERT.decode() not in text:
            # The library has the macro, and nothing that does what it is made of.
            serialized = self._compiled.serialize().replace(b"cel." + _INSERT, _OUR_NAME)
            self._compiled = environment.deserialize(serialized.replace(_INSERT, _OUR_INSERT))

    def run(self, data: Mapping[str, Any]) -> Any:
        """The value, as Python has it. Raises `EvaluationError`, `CostExceeded` among them."""
        data = {name: _carried(value) if type(value) is Carried else value for name, value in data.items()}
        try:
            result = self._compiled.eval(data=data)
        except RuntimeError as error:
            raise _failure(str(error)) from None
        if result.type() == cel.Type.ERROR:
            raise _failure(str(result.value()))
        return result.value()


class Program:
    """A rule on `self` and `oldSelf`, ready to run. Raises `CompileError`."""

    def __init__(self, expression: str, *, optional_old: bool = False) -> None:
        self.uses_old = _uses_old(_environment(("self",)), expression)
        self._optional = optional_old and self.uses_old
        if self._optional:
            expression = _bound(expression, f"{_HAS_OLD} ? optional.of({_OLD}) : optional.none()")
        self._expression = Expression(expression, ("self", "oldSelf", _OLD, _HAS_OLD))

    def run(self, new: Any, old: Any = None) -> Any:
        """The value for `self` = `new`. Raises `EvaluationError`, `CostExceeded` among them."""
        if self._optional:
            return self._expression.run({"self": new, _OLD: old, _HAS_OLD: old is not None})
        return self._expression.run({"self": new, "oldSelf": old} if self.uses_old else {"self": new})


def timestamp(text: str) -> Any:
    """An instant as rules take it, from RFC 3339. Raises `ValueError`."""
    made = timestamp_pb2.Timestamp()
    made.FromJsonString(text)
    return made


def duration(length: timedelta) -> Any:
    """A length of time as rules take it."""
    made = duration_pb2.Duration()
    made.FromTimedelta(length)
    return made


def _failure(text: str) -> EvaluationError:
    text = cel_words.of_failure(text)
    kind = CostExceeded if text.startswith("operation cancelled") else EvaluationError
    return kind(text)
