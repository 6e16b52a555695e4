"""Outlines of CustomResourceDefinitions: decoded, but with the schemas left as JSON.

Schemas are most of a definition, sometimes megabytes, and serving it or writing its status does not need
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.definitions import Json, ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json
from certwright.kube.store.contract import Row
from certwright.kube.util.decoders import json_decoder

_members = json_decoder(dict[str, msgspec.Raw]).decode
_versions = json_decoder(list[dict[str, msgspec.Raw]]).decode


def outline(definition: ResourceDefinition, row: Row) -> Json:
    """A row as a new object that may be changed, each `openAPIV3Schema` in it a `msgspec.Raw`."""
    crd = objects.to_object(definition, row._replace(body=b""))
    return crd | _read(_members(b"{%b}" % row.body), "spec", _spec)


def lightly(definition: ResourceDefinition, row: Row) -> Json:
    """A row as a new object whose schemas are not needed: the outline of a definition."""
    return (outline if definition.is_crd else objects.to_object)(definition, row)


def _read(members: Mapping[str, msgspec.Raw], name: str, read: Callable[[msgspec.Raw], object]) -> Json:
    """All members decoded, the one with that name by `read`."""
    return {key: read(raw) if key == name else decode_json(raw) for key, raw in members.items()}


def _spec(raw: msgspec.Raw) -> Json:
    return _read(_members(raw), "versions", _all_versions)


def _all_versions(raw: msgspec.Raw) -> list[Json]:
    return [_read(version, "schema", _members) for version in _versions(raw)]
