"""Reading of stored custom objects after a change of their definition, or in another version.

A stored body is pruned and defaulted by the current schema of the storage version, and then pruned by the
schema of the requested version. With one version whose schema never changed nothing needs to be done, and
after a change only rows that are older.

Source: Kubernetes documentation, "Versions in CustomResourceDefinitions"; apiextensions-apiserver
`pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.kube.store.contract import Row

ReadBody = Callable[[Row], bytes]
"""The body of a row in the requested version."""
WriteBody = Callable[[bytes], bytes]
"""The stored body of an object in that version."""
STORED_VERSION = "x-stored-version"
"""The member of a stored body that contains its version, where a webhook converts (see `conversion`)."""


def readers(
    crd: Json, schemas: Mapping[str, Schema], requested: str
) -> tuple[ReadBody | None, WriteBody | None]:
    """How rows are read and written in the version `requested`; None where it equals the stored form."""
    versions = crd["spec"]["versions"]
    stored = next(version["name"] for version in versions if version["storage"])
    if all(schema.is_same_as(schemas[stored]) for schema in schemas.values()):
        if crd["metadata"].get("generation", 1) == 1:
            return None, None
        return _unless_newer(schemas[stored], int(crd["metadata"].get("resourceVersion") or 0)), None
    if requested == stored:
        return _through(schemas[stored], None), None
    return _through(schemas[stored], schemas[requested]), lambda body: _pruned(body, schemas[stored])


def _unless_newer(stored: Schema, since: int) -> ReadBody:
    read = _through(stored, None)
    return lambda row: row.body if row.revision > since else read(row)


def _through(stored: Schema, target: Schema | None) -> ReadBody:
    def read(row: Row) -> bytes:
        content: Json = decode_json(b"{" + row.body + b"}")
        content.pop(STORED_VERSION, None)
        try:
            stored.process(content)
            if target is not None:
                target.prune(content)
        except BadRequest:
            # It was valid when it was written, under a less strict schema.
            return row.body
        return encode_json(content)[1:-1]

    return read


def _pruned(body: bytes, stored: Schema) -> bytes:
    content: Json = decode_json(b"{" + body + b"}")
    stored.prune(content)
    return encode_json(content)[1:-1]
