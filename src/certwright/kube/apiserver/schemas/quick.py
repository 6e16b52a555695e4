"""Fast path of schemas, which most objects pass: nothing to prune, no default to fill in, no error.

A schema is compiled to a msgspec type, which converts a complete object in one call. Where a schema has
constraints beyond such a type (a pattern, a set, nulls, …) the type lacks the field: an object that has it
does not pass, and takes the slow path through `walk.py` and `check.py`. So this check may refuse a valid
object, and never accepts an invalid one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from certwright.kube.apiserver.base.schema_common import META_FIELDS, PRESERVE
from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.util.decoders import Converter

Schema = Mapping[str, Any]
FastCheck = Callable[[Any], bool]
"""Whether a value satisfies its schema."""

_DEEPEST: Final = 4
_MOST: Final = 64
"""Nesting limit of objects, and limit of the classes in a type."""
_ANYWHERE: Final = frozenset(
    {
        "type", "description", "title", "example", "externalDocs", "default", "nullable",
        "x-kubernetes-map-type", "x-kubernetes-validations",
    }
)  # fmt: skip
"""Keywords that do not constrain a present value that is not null; rules are checked separately."""
_KEYWORDS: Final[Mapping[str, frozenset[str]]] = {
    "string": _ANYWHERE | {"enum", "format", "minLength", "maxLength"},
    "boolean": _ANYWHERE,
    "integer": _ANYWHERE | {"format", "minimum", "maximum"},
    "array": _ANYWHERE
    | {"items", "minItems", "maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"},
    "object": _ANYWHERE | {"properties", "additionalProperties", "required", PRESERVE},
}
# Types built at run time, which a type checker cannot follow.
_LIST: Final[Any] = list
_MAP: Final[Any] = dict
_ONE_OF: Final[Any] = Literal


class _Unsaid(Exception):
    """No type can express the schema."""


def compile_fast_check(schema: Schema, *, root: bool = False) -> FastCheck | None:
    """The fast check for values of `schema`; None where no value would pass.

    `root`: it is for a complete object, whose metadata is checked elsewhere.
    """
    try:
        converter = Converter(_Types().of({"type": "object", **schema} if root else schema, 0, root=root))
    except _Unsaid:
        return None

    def fast_check(value: Any) -> bool:
        try:
            converter.convert(value)
        except msgspec.ValidationError:
            return False
        return True

    return fast_check


class _Types:
    """Builds the types of one schema."""

    def __init__(self) -> None:
        self._left = _MOST

    def of(self, schema: Schema, depth: int, *, root: bool = False, is_member: bool = False) -> Any:
        """The type of the values that pass. Raises `_Unsaid`.

        `is_member`: the object that contains the value checks `_more` of it.
        """
        kind = schema.get("type", "")
        if kind not in _KEYWORDS or not schema.keys() <= _KEYWORDS[kind]:
            raise _Unsaid
        if not is_member and _more(schema) is not None:
            raise _Unsaid
        if kind == "object":
            return self._of_object(schema, depth, root=root)
        if kind == "array":
            return self._of_list(schema, depth)
        return _text(schema) if kind == "string" else _integer(schema) if kind == "integer" else bool

    def _of_list(self, schema: Schema, depth: int) -> Any:
        items, kind = schema.get("items"), schema.get("x-kubernetes-list-type", "atomic")
        if not isinstance(items, Mapping) or kind not in ("atomic", "map"):
            raise _Unsaid
        list_type = _LIST[self.of(items, depth)]
        return _bounded(list_type, schema.get("minItems"), schema.get("maxItems"))

    def _of_object(self, schema: Schema, depth: int, *, root: bool) -> Any:
        properties, extra = schema.get("properties"), schema.get("additionalProperties")
        if schema.get(PRESERVE) or extra is not None:
            if properties or schema.get("required") or root or (schema.get(PRESERVE) and extra is not None):
                raise _Unsaid
            return dict if extra is None else self._of_map(extra, depth)
        self._left -= 1
        if depth > _DEEPEST or self._left < 0:
            raise _Unsaid
        return self._struct(properties or {}, frozenset(schema.get("required") or ()), depth, root=root)

    def _of_map(self, extra: Any, depth: int) -> Any:
        if not isinstance(extra, Mapping):
            raise _Unsaid
        return _MAP[str, self.of(extra, depth + 1)]

    def _struct(
        self, properties: Mapping[str, Schema], required: frozenset[str], depth: int, *, root: bool
    ) -> Any:
        types: dict[str, Any] = {"apiVersion": str, "kind": str, "metadata": dict} if root else {}
        asked: list[tuple[str, FastCheck]] = []
        needed = required | {name for name, prop in properties.items() if prop.get("default") is not None}
        for name, prop in properties.items():
            if root and name in META_FIELDS:
                if name == "metadata" and not prop.keys() <= _ANYWHERE:
                    raise _Unsaid
                continue
            try:
                types[name] = self.of(prop, depth + 1, is_member=True)
            except _Unsaid:
                continue
            if (more := _more(prop)) is not None:
                asked.append((name, more))
        if not needed <= types.keys():
            raise _Unsaid
        return _class(types, needed, asked)


def _text(schema: Schema) -> Any:
    form, allowed = schema.get("format"), schema.get("enum")
    low, high = schema.get("minLength"), schema.get("maxLength")
    if not allowed and form != "byte":
        return _bounded(str, low, high)
    if low is not None or high is not None or (allowed and form == "byte"):
        raise _Unsaid
    if not allowed:
        return Annotated[bytes, msgspec.Meta(min_length=1)]  # base64 is what msgspec takes for bytes
    if not all(type(item) is str for item in allowed):
        raise _Unsaid
    return _ONE_OF[tuple(allowed)]


def _integer(schema: Schema) -> Any:
    low, high = schema.get("minimum"), schema.get("maximum")
    if not all(bound is None or type(bound) is int for bound in (low, high)):
        raise _Unsaid
    return int if low is None and high is None else Annotated[int, msgspec.Meta(ge=low, le=high)]


def _bounded(kind: Any, low: Any, high: Any) -> Any:
    if low is None and high is None:
        return kind
    if not all(bound is None or (type(bound) is int and bound >= 0) for bound in (low, high)):
        raise _Unsaid
    return Annotated[kind, msgspec.Meta(min_length=low, max_length=high)]


def _more(schema: Schema) -> FastCheck | None:
    """The constraints of a schema beside the type. Raises `_Unsaid`."""
    if schema.get("x-kubernetes-list-type") == "map":
        return _own_keys(schema)
    form = str(schema.get("format", ""))
    return check_for(form) if schema.get("type") == "string" and form != "byte" else None


def _own_keys(schema: Schema) -> FastCheck:
    keys: list[str] = schema.get("x-kubernetes-list-map-keys") or []
    items: Mapping[str, Schema] = (schema.get("items") or {}).get("properties") or {}
    if len(keys) != 1 or items.get(keys[0], {}).get("type") != "string":
        raise _Unsaid

    def fast_check(value: list[Any]) -> bool:
        if len(value) < 2:
            return True
        key = f"m{value[0].__struct_encode_fields__.index(keys[0])}"
        return len({getattr(item, key) for item in value}) == len(value)

    return fast_check


def _class(types: Mapping[str, Any], needed: frozenset[str], asked: list[tuple[str, FastCheck]]) -> Any:
    """A class whose members are named by their position: names of fields need not be valid attribute
    names."""
    places = {name: f"m{place}" for place, name in enumerate(types)}
    fields = [
        (places[name], kind) if name in needed else (places[name], kind, None) for name, kind in types.items()
    ]
    try:
        return msgspec.defstruct(
            "Object",
            fields,
            rename={place: name for name, place in places.items()},
            forbid_unknown_fields=True,
            kw_only=True,
            gc=False,
            namespace=_post_init_checks([(places[name], more) for name, more in asked]) if asked else None,
        )
    except (TypeError, ValueError):
        # A name that msgspec refuses.
        raise _Unsaid from None


def _post_init_checks(asked: list[tuple[str, FastCheck]]) -> dict[str, Any]:
    """What msgspec calls on every object of a class."""

    def __post_init__(self: Any) -> None:  # noqa: N807 - the name is msgspec's
        for place, fast_check in asked:
            value = getattr(self, place)
            if value is not None and not fast_check(value):
                raise ValueError("it does not pass")

    return {"__post_init__": __post_init__}
