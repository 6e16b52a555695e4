"""Which rows a request selects, decided with as little decoding as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from certwright.apiserver.backend import Call
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.objects import decode_json, labels_of
from certwright.apiserver.selectors import (
    FieldTerm,
    Requirement,
    check_supported,
    labels_match,
    parse_fields,
    parse_labels,
)
from certwright.store.contract import Row

_NAME, _NAMESPACE = "metadata.name", "metadata.namespace"


@dataclass(frozen=True, slots=True)
class Matcher:
    """The selectors of one request. `trivial`: everything matches."""

    labels: tuple[Requirement, ...]
    of_key: tuple[FieldTerm, ...]
    of_body: tuple[FieldTerm, ...]

    @classmethod
    def of(cls, call: Call) -> Matcher:
        """Read the selectors of a request. Raises `BadRequest`."""
        if not call.query and not call.route.name:
            return _EVERYTHING
        fields = parse_fields(call.query.get("fieldSelector", ""))
        check_supported(fields, _supported(call.definition))
        if call.route.name:  # a watch on one object's own path
            fields = (*fields, FieldTerm(_NAME, call.route.name))
        of_key = tuple(term for term in fields if term.path in (_NAME, _NAMESPACE))
        of_body = tuple(term for term in fields if term.path not in (_NAME, _NAMESPACE))
        labels = parse_labels(call.query.get("labelSelector", ""))
        return cls(labels, of_key, of_body) if labels or fields else _EVERYTHING

    @property
    def trivial(self) -> bool:
        """Whether there is nothing to look at."""
        return not (self.labels or self.of_key or self.of_body)

    @property
    def single_name(self) -> str:
        """The only name that can match; empty where there may be several."""
        return next((term.value for term in self.of_key if term.path == _NAME and not term.negated), "")

    def matches(self, row: Row) -> bool:
        """Whether the row is selected."""
        for term in self.of_key:
            if not term.matches(row.key.name if term.path == _NAME else row.key.namespace):
                return False
        if self.labels and not labels_match(self.labels, labels_of(row.meta)):
            return False
        return not self.of_body or self._body_matches(row.body)

    def _body_matches(self, body: bytes) -> bool:
        content: dict[str, Any] = decode_json(b"{" + body + b"}")
        return all(term.matches(_text_at(content, term.path)) for term in self.of_body)


_EVERYTHING = Matcher((), (), ())


def _supported(definition: ResourceDefinition) -> Callable[[str], bool]:
    def supported(path: str) -> bool:
        if path == _NAMESPACE:
            return definition.namespaced
        return path == _NAME or path in definition.selectable_fields

    return supported


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
