"""Schemas of built-in kinds: objects are decoded as Kubernetes' Go types decode them.

Unlike a custom resource, whose fields are checked against a schema (422), a built-in kind is decoded: a wrong
type makes the body unreadable (400), an unknown field is dropped, an empty one is left out or written as
zero, a time is converted to UTC.

Source: Kubernetes API conventions, "Optional vs. Required"; `k8s.io/api` field tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property
from typing import Any

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base.json_values import Json, NotOfKind
from certwright.kube.apiserver.base.schema_common import Path, show_path
from certwright.kube.apiserver.kinds import native_openapi, native_scalars
from certwright.kube.apiserver.kinds.native_scalars import Mismatch, Unreadable
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.protobuf.fields import (
    Field,
    json_fields_of,
    keywords,
    message_of,
    wrapped_list,
)
from certwright.kube.apiserver.schemas.structural import Schema

Read = Callable[[Any, Path, list[str]], Any]
"""The value to store. Appends the paths of unknown fields; raises `Mismatch` and `Unreadable`."""

_HEADERS = frozenset({"apiVersion", "kind", "metadata"})


class NativeSchema(Schema):
    """The schema of a built-in kind."""

    def __init__(self, api_version: str, kind: str) -> None:
        self._api_version = api_version
        self._kind, self._version = kind, api_version.rpartition("/")[2]

    @cached_property
    def message(self) -> str:
        """The name of the kind's message. The tables are loaded on first use."""
        message = message_of(self._api_version, self._kind)
        assert message is not None, "the kind is built in"
        return message

    @property
    def openapi(self) -> Json:
        """The schema with everything in place; for documents with references see `native_openapi`."""
        return native_openapi.inlined(self.message)

    @property
    def has_rules(self) -> bool:
        """No built-in kind has CEL rules."""
        return False

    @property
    def is_expensive(self) -> bool:
        """The tables of Go's types are read part by part."""
        return False

    def process(self, obj: Json) -> list[str]:
        """Read `obj` in place; returns the paths of the fields dropped, sorted.

        Raises `NotOfKind` for a value of a wrong type.
        """
        unknown: list[str] = []
        try:
            _message(self.message, _HEADERS)(obj, None, unknown)
        except (Mismatch, Unreadable) as error:
            raise NotOfKind(self._kind, self._version, str(error)) from None
        return sorted(unknown)

    def validate(self, obj: Json, old: Json | None = None) -> list[FieldError]:
        """Nothing: `process` has reported type errors."""
        del obj, old
        return []


@cache
def _message(message: str, untouched: frozenset[str] = frozenset()) -> Read:
    """`untouched`: fields that are decoded elsewhere."""
    if inner := wrapped_list(message):
        return _listed(_value(inner), inner)
    own = [field for field in json_fields_of(message) if field.name not in untouched]
    by_name = {field.name: field for field in own}
    # Made on first use: few objects have all that a Pod may have.
    checks: dict[str, Read] = {}
    zeros = tuple((field.name, make) for field in own if (make := _zero(field)) is not None)

    def read(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise Mismatch(value, path, "an object")
        for name, item in list(value.items()):
            if name in untouched:
                continue
            if name not in by_name:
                unknown.append(show_path((path, name)))
                del value[name]
                continue
            if item is not None:
                if name not in checks:
                    checks[name] = _field(by_name[name])
                item = checks[name](item, (path, name), unknown)
            if item is None:
                del value[name]
            else:
                value[name] = item
        for name, make in zeros:
            if name not in value:
                value[name] = make()
        return value

    return read


def _field(field: Field) -> Read:
    """The decoder of a field; None: the field is left out."""
    read = _value(field)
    if field.is_map:
        read = _mapped(read, field)
    elif field.repeated:
        read = _listed(read, field)
    if field.omits_zero and not field.pointer and not (field.single and field.is_message):
        # Not written where it is empty.
        return lambda value, path, unknown: read(value, path, unknown) or None
    return read


def _value(field: Field) -> Read:
    if field.type in _SCHEMA_OR:
        return _SCHEMA_OR[field.type]
    if not field.is_message:
        scalar = native_scalars.READERS[field.type]
        return lambda value, path, _: scalar(value, path)
    # Messages may contain each other, so they are looked up on first use.
    kind = field.type
    return lambda value, path, unknown: _message(kind)(value, path, unknown)


_SCHEMA = "apiextensions.v1.JSONSchemaProps"


def _schema_or_bool(value: Any, path: Path, unknown: list[str]) -> Any:
    if type(value) is dict:
        return _message(_SCHEMA)(value, path, unknown)
    if type(value) is not bool:
        raise Unreadable("boolean or JSON schema expected")
    return value


def _schema_or_list(value: Any, path: Path, unknown: list[str]) -> Any:
    """A schema, or a list; like Go's types, it decodes anything else as empty."""
    if type(value) is dict:
        return _message(_SCHEMA)(value, path, unknown)
    return value if type(value) is list and value else None


_SCHEMA_OR: Mapping[str, Read] = {
    "SchemaOrBool": _schema_or_bool,
    "SchemaOrArray": _schema_or_list,
    "SchemaOrStrings": _schema_or_list,
}
"""Where the schemas of CustomResourceDefinitions may have something else instead of a schema."""


def _listed(read: Read, field: Field) -> Read:
    zero = _zero_item(field)

    def listed(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise Mismatch(value, path, "a list")
        for index, item in enumerate(value):
            value[index] = zero() if item is None else read(item, (path, index), unknown)
        return value

    return listed


def _mapped(read: Read, field: Field) -> Read:
    zero = _zero_item(field)

    def mapped(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise Mismatch(value, path, "an object")
        for key, item in value.items():
            value[key] = zero() if item is None else read(item, (path, key), unknown)
        return value

    return mapped


# --- zero values ------------------------------------------------------------------------------------------

Make = Callable[[], Any]

_ZEROS: Mapping[str, Any] = {
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "float64": 0,
    "Quantity": "0",
    "IntOrString": 0,
}


def _zero(field: Field) -> Make | None:
    """The zero value of an absent field; None where it is left out."""
    if field.omits_zero:
        return None
    return _zero_item(field) if field.single else _null


def _zero_item(field: Field) -> Make:
    if field.is_message:
        kind = field.type
        return _null if wrapped_list(kind) else lambda: _message(kind)({}, None, [])
    if field.is_map and field.type == "bytes":
        return str
    value = _ZEROS.get(field.type)
    return lambda: value


def _null() -> None:
    return None


_CREATED_BY_PUT = frozenset(
    {
        "clusterrolebindings", "clusterroles", "endpoints", "events", "leases", "limitranges", "rolebindings",
        "roles", "services",
    }
)  # fmt: skip


def native_kind(api_version: str, kind: str, plural: str, **more: Any) -> ResourceDefinition:
    """A built-in kind, stored as Go's types would decode it."""
    group, _, version = api_version.rpartition("/")
    schema = NativeSchema(api_version, kind)
    settings: dict[str, Any] = {
        "namespaced": True,
        "unconditional_update": True,
        "create_on_update": plural in _CREATED_BY_PUT,
        "schema": schema,
        "strategic": lambda: merge_keys_of(schema.message),
        **more,
    }
    return ResourceDefinition(
        group=group, version=version, kind=kind, plural=plural, singular=kind.lower(), **settings
    )


@cache
def merge_keys_of(message: str) -> Mapping[tuple[str, ...], str]:
    """The merge keys of strategic merge patches by path. An empty key: the values are the keys."""
    return dict(_collect(message, (), frozenset()))


def _collect(
    message: str, path: tuple[str, ...], above: frozenset[str]
) -> Iterator[tuple[tuple[str, ...], str]]:
    properties = keywords(message).get("properties", {})
    for field in json_fields_of(message):
        here, words = (*path, field.name), properties.get(field.name, {})
        if field.repeated and "merge" in words.get("x-kubernetes-patch-strategy", "").split(","):
            yield here, words.get("x-kubernetes-patch-merge-key", "")
        if field.is_message and field.type not in above:
            yield from _collect(field.type, here, above | {message})
