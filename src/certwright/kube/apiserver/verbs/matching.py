"""Selector matching: which rows a request selects, with as little decoding as possible."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Call
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, labels_of
from certwright.kube.apiserver.requests.selectors import (
    FieldTerm,
    Requirement,
    labels_match,
    parse_fields,
    parse_labels,
)
from certwright.kube.store.contract import Choice, Row

_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


def _stored_body(row: Row) -> bytes:
    return row.body


class Matcher(msgspec.Struct, frozen=True):
    """The selectors of one request. `trivial`: everything matches."""

    labels: tuple[Requirement, ...]
    of_key: tuple[FieldTerm, ...]
    of_body: tuple[FieldTerm, ...]
    readers: Mapping[str, str | Callable[[dict[str, Any]], str]] = msgspec.field(default_factory=dict)
    body: Callable[[Row], bytes] = _stored_body

    @classmethod
    def of(cls, call: Call) -> Matcher:
        """Read the selectors of a request. Raises `BadRequest`."""
        if not call.query and not call.route.name:
            return _EVERYTHING
        labels = parse_labels(call.query.get("labelSelector", ""))
        fields = parse_fields(call.query.get("fieldSelector", ""))
        _check_paths(call.definition, fields)
        if call.route.name:  # a watch on one object's own path
            fields = _only(call.route.name, fields)
        of_key = tuple(term for term in fields if term.path in (_NAME, _NAMESPACE))
        of_body = tuple(term for term in fields if term.path not in (_NAME, _NAMESPACE))
        readers = call.definition.field_readers
        if not labels and not fields:
            return _EVERYTHING
        # Paths are those of the requested version; other views have readers of the stored form.
        body = partial(objects.body, call.definition) if call.definition.custom else _stored_body
        return cls(labels, of_key, of_body, readers, body)

    @property
    def trivial(self) -> bool:
        """Whether there are no selectors."""
        return not (self.labels or self.of_key or self.of_body)

    @property
    def single_name(self) -> str:
        """The only name that can match; empty where there may be several."""
        return next((term.value for term in self.of_key if term.path == _NAME and not term.negated), "")

    def matches(self, row: Row) -> bool:
        """Whether the row is selected."""
        return self._meta_matches(row) and self.matches_body(row)

    @property
    def of_meta(self) -> Choice | None:
        """Selects rows by key and metadata; None where these do not matter."""
        return self._meta_matches if self.labels or self.of_key else None

    def _meta_matches(self, row: Row) -> bool:
        for term in self.of_key:
            if not term.matches(row.key.name if term.path == _NAME else row.key.namespace):
                return False
        return not self.labels or labels_match(self.labels, labels_of(row.meta))

    def matches_body(self, row: Row) -> bool:
        """Whether the row is selected, as far as its body matters."""
        if not self.of_body:
            return True
        content: dict[str, Any] = decode_json(b"{%b}" % self.body(row))
        return all(term.matches(self._value(content, term.path)) for term in self.of_body)

    def _value(self, content: dict[str, Any], path: str) -> str:
        reader = self.readers.get(path, path)
        return _text_at(content, reader) if isinstance(reader, str) else reader(content)


_EVERYTHING = Matcher((), (), ())


def _only(name: str, fields: tuple[FieldTerm, ...]) -> tuple[FieldTerm, ...]:
    """The terms with that of the object's name, which must not contradict them. Raises `BadRequest`."""
    term = FieldTerm(_NAME, name)
    if fields and term not in fields:
        raise BadRequest("fieldSelector metadata.name doesn't match requested name")
    return fields or (term,)


def _check_paths(definition: ResourceDefinition, fields: tuple[FieldTerm, ...]) -> None:
    """Raise `BadRequest` for the first term whose path is not a selectable field."""
    known = {_NAME, *definition.selectable_fields}
    if definition.namespaced or not definition.custom:
        known.add(_NAMESPACE)
    for term in fields:
        if term.path not in known:
            if definition.custom or definition.selectable_fields:
                raise BadRequest(f"field label not supported: {term.path}")
            raise BadRequest(f'"{term.path}" is not a known field selector: only "{_NAME}", "{_NAMESPACE}"')


def _text_at(content: Any, path: str) -> str:
    """The field as text; a missing one is empty, as Kubernetes has it."""
    for name in path.split("."):
        if type(content) is not dict:
            return ""
        content = content.get(name)
    if content is None:
        return ""
    if isinstance(content, bool):
        return "true" if content else "false"
    return str(content)
