"""How stored objects are read when their definition has changed since, or in another version.

What was stored is pruned and defaulted by the schema of the version that objects are stored in, as it is now,
and then pruned by the schema of the version that is asked for. With one version whose schema never changed
nothing is to be done, and with one that did only for rows that are older.

Source: Kubernetes documentation, "Versions in CustomResourceDefinitions"; apiextensions-apiserver
`pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.model.definitions import Json
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.kube.store.contract import Row

ReadBody = Callable[[Row], bytes]
"""The body of a row as the version that is asked for shows it."""
WriteBody = Callable[[bytes], bytes]
"""The body of an object in that version as it is stored."""
STORED_VERSION = "x-stored-version"
"""The member of a stored body that says its version, where a webhook converts (see `conversion`)."""


def readers(
    crd: Json, schemas: Mapping[str, Schema], wanted: str
) -> tuple[ReadBody | None, WriteBody | None]:
    """How rows are read and written in the version `wanted`; None where they are what they are stored as."""
    versions = crd["spec"]["versions"]
    stored = next(version["name"] for version in versions if version["storage"])
    if all(schema.says_the_same(schemas[stored]) for schema in schemas.values()):
        if crd["metadata"].get("generation", 1) == 1:
            return None, None
        return _unless_newer(schemas[stored], int(crd["metadata"].get("resourceVersion") or 0)), None
    if wanted == stored:
        return _through(schemas[stored], None), None
    return _through(schemas[stored], schemas[wanted]), lambda body: _pruned(body, schemas[stored])


def _unless_newer(stored: Schema, since: int) -> ReadBody:
    read = _through(stored, None)
    return lambda row: row.body if row.revision > since else read(row)


def _through(stored: Schema, wanted: Schema | None) -> ReadBody:
    def read(row: Row) -> bytes:
        content: Json = decode_json(b"{" + row.body + b"}")
        content.pop(STORED_VERSION, None)
        try:
            stored.process(content)
            if wanted is not None:
                wanted.prune(content)
        except BadRequest:
            # It was well formed when it was written, by a schema that said less.
            return row.body
        return encode_json(content)[1:-1]

    return read


def _pruned(body: bytes, stored: Schema) -> bytes:
    content: Json = decode_json(b"{" + body + b"}")
    stored.prune(content)
    return encode_json(content)[1:-1]
