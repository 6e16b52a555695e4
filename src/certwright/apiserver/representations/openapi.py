"""The OpenAPI documents of what is served.

`kubectl explain` reads its texts here, and kubectl looks here whether a resource takes `fieldValidation`.

A document is made when it is first asked for, and kept compressed until the registry changes.

Source: OpenAPI 3.0.3; KEP-2896 (OpenAPI v3: an index with hashes, one document per group and version);
Kubernetes documentation, "OpenAPI V3".
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from certwright import __version__
from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.kinds import core_schemas as meta
from certwright.apiserver.registry import Registry
from certwright.apiserver.representations import openapi_proto, openapi_v2
from certwright.apiserver.representations.discovery import parts
from certwright.apiserver.representations.openapi_names import (
    DELETE_OPTIONS,
    LIST_META,
    OBJECT_META,
    PATCH,
    STATUS,
    group_version_kind,
    own_schemas,
    schema_name,
)
from certwright.kit.exchange import Response
from certwright.resources.errors import NotAcceptable

Json = dict[str, Any]

_JSON = "application/json"
_PREFIX = "/openapi/v3"
_V2 = "/openapi/v2"


class OpenApi:
    """Answers requests for OpenAPI documents from a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def respond(
        self, path: str, accept: str = "", if_none_match: str = "", query: str = ""
    ) -> Response | None:
        """The answer to a GET of `path`, or None where it names no document.

        Raises `NotAcceptable` for a client that takes no JSON; of v2 there is a protobuf form too.
        """
        path = path.rstrip("/")
        make = self._maker(path)
        if make is None:
            return None
        if not accept or _takes(accept, (_JSON, "application/*", "*/*")):
            return self._answer(path, _json(make), _JSON, if_none_match, query)
        if path == _V2 and _takes(accept, openapi_proto.MEDIA_TYPES):
            return self._answer(path, _protobuf(make), openapi_proto.MEDIA_TYPES[1], if_none_match, query)
        raise NotAcceptable(f"only the following media types are accepted: {_JSON}")

    def _maker(self, path: str) -> Callable[[], Json] | None:
        if path == _V2:
            return lambda: openapi_v2.document(self._registry)
        return self._index if path == _PREFIX else self._group_version(path)

    def _answer(
        self, path: str, make: Callable[[], bytes], form: str, if_none_match: str, query: str
    ) -> Response:
        packed, etag = self._packed(path, make, form)
        headers = {"content-type": form, "etag": etag, "vary": "Accept"}
        if query.startswith("hash="):
            # The address names the content, so it can be kept for ever.
            headers["cache-control"] = "public, immutable"
        if etag in if_none_match:
            return Response(304, headers)
        return Response(200, headers, zlib.decompress(packed))

    def _packed(self, path: str, make: Callable[[], bytes], form: str) -> tuple[bytes, str]:
        key = (path, f"zlib:{form}")
        made = self._registry.made.get(key)
        if made is None:
            body = make()
            made = (zlib.compress(body, 6), f'"{_digest(body)}"')
            self._registry.made[key] = made
        return made

    def _index(self) -> Json:
        paths: Json = {}
        for group in self._registry.groups():
            for version in group.versions:
                name = f"apis/{group.name}/{version}" if group.name else f"api/{version}"
                key = self._hash(group.name, version)
                paths[name] = {"serverRelativeURL": f"{_PREFIX}/{name}?hash={key}"}
        return {"paths": paths}

    def _hash(self, group: str, version: str) -> str:
        # Of what the document is made of, not of the document: the index is asked for far more often.
        content = [
            (
                d.plural,
                d.kind,
                d.namespaced,
                d.status_subresource,
                d.verbs,
                d.schema.openapi if d.custom else "",
            )
            for d in self._registry.in_version(group, version)
        ]
        return _digest(msgspec.json.encode([__version__, content]))

    def _group_version(self, path: str) -> Callable[[], Json] | None:
        match path.removeprefix(_PREFIX).split("/")[1:]:
            case ["api", version]:
                group = ""
            case ["apis", group, version]:
                pass
            case _:
                return None
        definitions = self._registry.in_version(group, version) if path.startswith(_PREFIX) else ()
        return (lambda: document(definitions)) if definitions else None


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:32].upper()


def _json(make: Callable[[], Json]) -> Callable[[], bytes]:
    return lambda: msgspec.json.encode(make())


def _protobuf(make: Callable[[], Json]) -> Callable[[], bytes]:
    return lambda: openapi_proto.encode(make())


def _takes(accept: str, wanted: tuple[str, ...]) -> bool:
    return any(item.partition(";")[0].strip() in wanted for item in accept.split(","))


# --- one document -----------------------------------------------------------------------------------------


def document(definitions: tuple[ResourceDefinition, ...]) -> Json:
    """The OpenAPI document of the resources of one group and version."""
    paths: Json = {}
    schemas: Json = dict(_shared_schemas())
    for definition in definitions:
        paths.update((path, item) for path, item in _paths(definition) if item.keys() - {"parameters"})
        schemas.update(_schemas(definition))
    return {
        "openapi": "3.0.0",
        "info": {"title": "certwright", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _all_of(name: str) -> Json:
    # In OpenAPI 3.0 nothing may stand beside a reference, such as a description.
    return {"allOf": [_ref(name)]}


def _shared_schemas() -> Iterator[tuple[str, Json]]:
    yield OBJECT_META, meta.OBJECT_META
    yield LIST_META, meta.LIST_META
    yield DELETE_OPTIONS, meta.DELETE_OPTIONS
    yield STATUS, meta.STATUS
    yield PATCH, {"type": "object", "description": "A patch, in the form that its content type names."}


def _schemas(definition: ResourceDefinition) -> Iterator[tuple[str, Json]]:
    name = schema_name(definition, definition.kind)
    yield from own_schemas(definition, _all_of(OBJECT_META), _all_of)
    if definition.virtual:
        return
    yield (
        schema_name(definition, definition.list_kind),
        {
            "type": "object",
            "description": f"A list of objects of kind {definition.kind}.",
            "required": ["items"],
            "properties": {
                "apiVersion": meta.API_VERSION,
                "kind": meta.KIND,
                "metadata": {"description": "Metadata of the list.", "allOf": [_ref(LIST_META)]},
                "items": {"type": "array", "description": "The objects.", "items": {"allOf": [_ref(name)]}},
            },
            "x-kubernetes-group-version-kind": [group_version_kind(definition, definition.list_kind)],
        },
    )


# --- paths ------------------------------------------------------------------------------------------------


def _paths(definition: ResourceDefinition) -> Iterator[tuple[str, Json]]:
    root = f"/apis/{definition.group}/{definition.version}" if definition.group else "/api/v1"
    shared: list[Json] = []
    collection = f"{root}/{definition.plural}"
    if definition.namespaced:
        yield collection, _item(definition, (("get", "list"),), [])
        shared = [_parameter("namespace", "The namespace.", where="path")]
        collection = f"{root}/namespaces/{{namespace}}/{definition.plural}"
    named = [*shared, _parameter("name", f"The name of the {definition.kind}.", where="path")]
    yield collection, _item(definition, _ON_COLLECTION, shared)
    yield f"{collection}/{{name}}", _item(definition, _ON_OBJECT, named)
    for part in parts(definition):
        methods = tuple((method, verb) for method, verb in _ON_PART if verb in part.verbs)
        if part.kind is None:
            yield f"{collection}/{{name}}/{part.name}", _item(definition, methods, named)


_ON_COLLECTION = (("get", "list"), ("post", "create"), ("delete", "deletecollection"))
_ON_PART = (("get", "get"), ("put", "update"), ("patch", "patch"))
_ON_OBJECT = (*_ON_PART, ("delete", "delete"))

# What the API reference calls the verbs.
_ACTIONS = {"create": "post", "update": "put"}


def _item(definition: ResourceDefinition, verbs: tuple[tuple[str, str], ...], shared: list[Json]) -> Json:
    item = {method: _operation(definition, verb) for method, verb in verbs if verb in definition.verbs}
    return {**item, "parameters": shared} if shared else item


def _operation(definition: ResourceDefinition, verb: str) -> Json:
    answer = STATUS if verb == "deletecollection" else schema_name(definition, _answered(definition, verb))
    operation: Json = {
        "description": f"{verb} {definition.kind}",
        "parameters": [_PARAMETERS[name] for name in _PARAMETERS_OF[verb]],
        "responses": {"200": {"description": "OK", "content": {_JSON: {"schema": _ref(answer)}}}},
        "x-kubernetes-action": _ACTIONS.get(verb, verb),
        "x-kubernetes-group-version-kind": group_version_kind(definition),
    }
    if content := _body(definition, verb):
        operation["requestBody"] = {"content": content, "required": verb in ("create", "update", "patch")}
    return operation


def _answered(definition: ResourceDefinition, verb: str) -> str:
    return definition.list_kind if verb == "list" else definition.kind


def _body(definition: ResourceDefinition, verb: str) -> Json:
    if verb in ("create", "update"):
        return {_JSON: {"schema": _ref(schema_name(definition, definition.kind))}}
    if verb in ("delete", "deletecollection"):
        return {_JSON: {"schema": _ref(DELETE_OPTIONS)}}
    if verb != "patch":
        return {}
    forms = ["application/json-patch+json", "application/merge-patch+json"]
    if definition.strategic is not None:
        forms.append("application/strategic-merge-patch+json")
    return {form: {"schema": _ref(PATCH)} for form in forms}


def _parameter(name: str, description: str, kind: str = "string", *, where: str = "query") -> Json:
    made: Json = {"name": name, "in": where, "description": description, "schema": {"type": kind}}
    return {**made, "required": True} if where == "path" else made


_PARAMETERS: dict[str, Json] = {
    name: _parameter(name, description, kind)
    for name, kind, description in (
        ("allowWatchBookmarks", "boolean", "Send bookmarks now and then in a watch."),
        ("continue", "string", "Go on with the list where the last page ended."),
        ("dryRun", "string", "All: do everything but store."),
        ("fieldManager", "string", "Who changes the object."),
        ("fieldSelector", "string", "Only objects whose fields have these values."),
        ("fieldValidation", "string", "Ignore, Warn about or refuse (Strict) unknown and duplicate fields."),
        ("force", "boolean", "Take over fields that others manage (apply patches only)."),
        ("gracePeriodSeconds", "integer", "Seconds to leave before the object is removed."),
        ("labelSelector", "string", "Only objects with these labels."),
        ("limit", "integer", "The most objects to give in one page."),
        ("propagationPolicy", "string", "Orphan, Background or Foreground."),
        ("resourceVersion", "string", "The state to read, or to watch from."),
        ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
        ("sendInitialEvents", "boolean", "Begin a watch with all that is there."),
        ("timeoutSeconds", "integer", "End a list or a watch after this time."),
        ("watch", "boolean", "Send changes as they happen."),
    )
}
_LISTING = (
    "allowWatchBookmarks",
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
)
_WRITING = ("dryRun", "fieldManager", "fieldValidation")
_DELETING = ("dryRun", "gracePeriodSeconds", "propagationPolicy")
_PARAMETERS_OF: dict[str, tuple[str, ...]] = {
    "get": (),
    "list": _LISTING,
    "create": _WRITING,
    "update": _WRITING,
    "patch": (*_WRITING, "force"),
    "delete": _DELETING,
    "deletecollection": (*_DELETING, "fieldSelector", "labelSelector"),
}
