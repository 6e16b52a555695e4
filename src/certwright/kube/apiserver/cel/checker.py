"""CEL type checker: checks expressions, and their literals, against the types of a schema.

Source: Kubernetes documentation, "Common Expression Language in Kubernetes", type checking; cel-go `checker`,
`cel/validator.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from certwright.kube.apiserver.cel import ast, environment
from certwright.kube.apiserver.cel.environment import (
    BINDINGS,
    DURATION,
    OLD,
    PACKAGE,
    TIMESTAMP,
    CompileError,
    EvaluationError,
    Expression,
    base_files,
    bound,
    config,
    new_pool,
    overload,
    type_named,
)
from certwright.kube.apiserver.cel.functions import FUNCTIONS
from certwright.kube.apiserver.cel.overloads import (
    ANY,
    CARRIERS,
    Function,
    cel,
    descriptor,
    descriptor_pb2,
)

_LITERALS = {"duration": "duration(value)", "timestamp": "timestamp(value)", "matches": "''.matches(value)"}
"""Functions whose first argument is checked where it is a literal, and how."""
_ANY_ITEMS = "format"  # its list of arguments may contain any types


def literal_problems(tree: ast.Tree) -> list[tuple[int, str]]:
    """The invalid literals, each with its offset in the text and a message."""
    parts = list(ast.parts(tree.root))
    errors: list[tuple[Any, str]] = [
        (part.call.args[0], f"invalid {function} argument")
        for function in _LITERALS
        for part in parts
        if part.call.function == function
        and part.call.args
        and part.call.args[0].constant.HasField("text")
        and not _accepts_argument(function, part.call.args[0].constant.text)
    ]
    calls = [part for part in parts if part.call.function == _ANY_ITEMS]
    exempt = {inner.id for call in calls for inner in ast.parts(call)}
    for part in parts:
        if part.id not in exempt:
            entries = part.struct.entries if not part.struct.name else ()
            errors += _unlike(tree, part.list.elements)[:1]
            errors += _unlike(tree, [entry.key for entry in entries])
            errors += _unlike(tree, [entry.value for entry in entries])
    return [(tree.places.get(part.id, 0), text) for part, text in errors]


def _accepts_argument(function: str, value: str) -> bool:
    try:
        Expression(_LITERALS[function], ("value",)).run({"value": value})
    except EvaluationError:
        return False
    return True


def _unlike(tree: ast.Tree, items: Sequence[Any]) -> list[tuple[Any, str]]:
    """The items of a list or map with another type than the first."""
    types = [tree.types.get(item.id, "dyn") for item in items]
    return [
        (item, f"expected type '{types[0]}' but found '{kind}'")
        for item, kind in zip(items, types, strict=True)
        if kind != types[0]
    ]


class Field(msgspec.Struct, frozen=True):
    """A field of an object as rules see it: its name, its kind in the terms of `Types.message`."""

    name: str
    kind: str
    repeated: bool = False


class Types:
    """The types that one schema needs, made as messages in a separate pool."""

    _SCALARS: ClassVar[dict[str, str]] = {
        "string": "TYPE_STRING",
        "int": "TYPE_INT64",
        "double": "TYPE_DOUBLE",
        "bool": "TYPE_BOOL",
        "bytes": "TYPE_BYTES",
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
        self._file.dependency.extend(base_files())
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
            # The library requires this name for the type of a map's entries.
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
        types = descriptor.FieldDescriptor
        field.label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
        if kind in self._SCALARS:
            field.type = getattr(types, self._SCALARS[kind])
        else:
            field.type = types.TYPE_MESSAGE
            field.type_name = "." + self._KNOWN.get(kind, kind)

    def checker(self, of_self: str, parts: Mapping[str, str]) -> Checker:
        """Checks rules whose `self` is of that type: a message's name, `string`, `list(int)`, …

        `parts` has the types of nested values, by path (`spec.lists`), where a message cannot express them.
        """
        pool = new_pool()
        try:
            pool.Add(self._file)
        except TypeError:
            # The library allocates a message in 64 KiB, some bytes for each field.
            raise CompileError("rules cannot process an object with thousands of fields") from None
        messages = [message.name for message in self._file.message_type]
        return Checker(
            pool, type_named(of_self), {path: type_named(kind) for path, kind in parts.items()}, messages
        )


_KINDS = ("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint")


def _declared(name: str, function: Function, kinds: Sequence[str]) -> Iterator[Any]:
    """A function's overload, or one for each of `kinds` where it takes any."""

    def named(kind: str) -> str:
        return f"{PACKAGE}.{kind}" if kind in CARRIERS else kind

    takes, gives = [named(kind) for kind in function.takes], named(function.gives)
    if ANY not in takes:
        yield overload(name, takes, gives, function)
        return
    any_type, listed = ANY, f"list({ANY})"
    for any_kind in kinds:
        meant = {any_type: any_kind, listed: f"list({any_kind})"}
        yield overload(name, [meant.get(kind, kind) for kind in takes], gives, function)


def _comparisons() -> list[Any]:
    """Comparisons of numbers of different types: the library evaluates them, but its checker lacks them."""
    numbers = ("int", "uint", "double")
    kinds = {"int": cel.Type.INT, "uint": cel.Type.UINT, "double": cel.Type.DOUBLE}
    return [
        cel.FunctionDecl(
            operator,
            [
                cel.Overload(f"mixed_{operator}_{left}_{right}", cel.Type.BOOL, [kinds[left], kinds[right]])
                for left in numbers
                for right in numbers
                if left != right
            ],
        )
        for operator in ("_<_", "_<=_", "_>_", "_>=_")
    ]


class Checked(msgspec.Struct, frozen=True):
    """The result of a check: the type of the expression's value, and the AST."""

    gives: str
    tree: ast.Tree

    @property
    def uses_old(self) -> bool:
        """Whether the expression uses `oldSelf`."""
        return ast.uses(self.tree.root, "oldSelf")


class Checker:
    """Checks expressions against the type of `self`."""

    def __init__(self, pool: Any, of_self: Any, parts: Mapping[str, Any], messages: Sequence[str]) -> None:
        # The functions as declared, each overload with its own types, without implementations.
        kinds = (*_KINDS, *messages)
        declared = [
            cel.FunctionDecl(name, [made for f in functions for made in _declared(name, f, kinds)])
            for name, functions in FUNCTIONS.items()
        ]
        extension = cel.CelExtension("kubernetes", [*declared, *_comparisons()])
        # The longest known name wins, so these hide the fields of the same name.
        own, old = ({f"{name}.{path}": kind for path, kind in parts.items()} for name in ("self", "oldSelf"))

        def env(*libraries: str, **variables: Any) -> Any:
            return cel.NewEnv(
                descriptor_pool=pool, config=config(*libraries), variables=variables, extensions=[extension]
            )

        plain = {"self": of_self, "oldSelf": of_self}
        self._plain = env(**plain)
        self._with_parts = env(**plain, **own, **old) if parts else self._plain
        self._optional = env(BINDINGS, **{"self": of_self, OLD: of_self})

    def check(self, expression: str, *, optional_old: bool = False) -> Checked:
        """The type of an expression's value. Raises `CompileError`."""
        if problems := environment.unsupported(expression):
            raise CompileError(environment.at_places(expression, problems))
        try:
            if optional_old:
                text = bound(expression, f"optional.of({OLD})")
                compiled = self._optional.compile(text)
            else:
                # `has` takes a field, not a name.
                compiled = (self._plain if "has(" in expression else self._with_parts).compile(expression)
        except RuntimeError as error:
            raise CompileError(environment.of_refusal(str(error), wrapped=optional_old)) from None
        tree = ast.read(compiled.serialize())
        if optional_old:
            tree = ast.inside(tree, text.index("\n") + 1)
        if problems := literal_problems(tree):
            raise CompileError(environment.at_places(expression, problems))
        return Checked(compiled.return_type().name().lower(), tree)
