"""Conflicts of an apply: the fields that other managers own with other values, and their 409."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from certwright.kube.api.errors import Cause, Conflict, Details
from certwright.kube.apiserver.fieldmanager.entries import UPDATE, Entry
from certwright.kube.apiserver.fieldmanager.fields_set import Node, paths
from certwright.kube.apiserver.model.objects import encode_json


class Clash(NamedTuple):
    """Fields to which the configuration gives other values than their owners."""

    owner: Entry
    fields: Node


def conflict(clashes: list[Clash]) -> Conflict:
    """The 409 that names each field and its owner."""
    ordered = sorted(clashes, key=lambda clash: clash.owner.identity)
    single = [(owner, path) for owner, fields in ordered for path in paths(fields)]
    causes = tuple(
        Cause(reason="FieldManagerConflict", message=f"conflict with {_called(owner)}", field=path)
        for owner, path in single
    )
    return Conflict(_sentence(ordered, single), details=Details(causes=causes))


def _sentence(clashes: list[Clash], single: list[tuple[Entry, str]]) -> str:
    if len(single) == 1:
        owner, path = single[0]
        return f"Apply failed with 1 conflict: conflict with {_called(owner)}: {path}"
    return f"Apply failed with {len(single)} conflicts: " + "\n".join(_lines(clashes))


def _lines(clashes: list[Clash]) -> Iterator[str]:
    for owner, fields in clashes:
        yield f"conflicts with {_called(owner)}:"
        for path in paths(fields):
            yield f"- {path}"


def _called(owner: Entry) -> str:
    text = encode_json(owner.manager).decode()
    if owner.subresource:
        text += f" with subresource {encode_json(owner.subresource).decode()}"
    return f"{text} using {owner.api_version}" if owner.operation == UPDATE else text
