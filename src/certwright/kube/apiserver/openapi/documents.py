"""OpenAPI documents of the served resources.

`kubectl explain` reads its texts here, and kubectl checks here whether a resource supports `fieldValidation`.

A document is built on first request, and cached compressed until the registry changes.

Source: OpenAPI 3.0.3; KEP-2896 (OpenAPI v3: an index with hashes, one document per group and version);
Kubernetes documentation, "OpenAPI V3".
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Callable
from email.utils import formatdate
from urllib.parse import parse_qs

import msgspec

from certwright import __version__
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model import offload
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.registry import Registry
from certwright.kube.apiserver.openapi import proto, v2, v3
from certwright.kube.apiserver.representations.discovery import NO_CACHE
from certwright.kube.util.http_messages import Response

Make = Callable[[], Json]

_A_YEAR_S = 365 * 24 * 3600
_JSON = "application/json"
_PREFIX = "/openapi/v3"
_V2 = "/openapi/v2"


class OpenApi:
    """Serves OpenAPI documents from a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def respond(
        self, path: str, accept: str = "", if_none_match: str = "", query: str = ""
    ) -> Response | None:
        """The response to a request for `path`, or None where it names no document.

        The index is JSON, whatever the client accepts; v2 has a protobuf form too.
        """
        path = path.rstrip("/")
        made = self._maker(path)
        if made is None:
            return None
        make, etag = made
        headers = (
            {"cache-control": NO_CACHE} if path == _PREFIX else {"cache-control": NO_CACHE, "vary": "Accept"}
        )
        form = _form(path, accept)
        if form is None:
            return Response(406, headers)
        headers["etag"] = f'"{etag}"'
        requested_hash = parse_qs(query).get("hash", [""])[0]
        if requested_hash and path not in (_PREFIX, _V2):
            if requested_hash != etag:
                return Response(301, {**headers, "content-type": form, "location": f"{path}?hash={etag}"})
            # The URL identifies the content, so clients may cache it forever.
            expires = formatdate(time.time() + _A_YEAR_S, usegmt=True)
            headers |= {"cache-control": "public, immutable", "expires": expires}
        if _is_known(if_none_match, etag):
            return Response(304, headers)
        body = zlib.decompress(await self._packed(path, form, make))
        return Response(200, {**headers, "content-type": form}, body)

    def _maker(self, path: str) -> tuple[Make, str] | None:
        """The function that builds the document, and the key of its state."""
        if path == _V2:
            return (lambda: v2.document(self._registry)), self._hash_of_all()
        return (self._index, self._hash_of_all()) if path == _PREFIX else self._group_version(path)

    def _hash_of_all(self) -> str:
        return _digest(msgspec.json.encode(self._index()))

    async def _packed(self, path: str, form: str, make: Make) -> bytes:
        key, registry = (path, f"zlib:{form}"), self._registry
        if (made := registry.made.get(key)) is not None:
            return made[0]
        before = registry.generation
        packed = await offload.run(None, _pack, make, form)
        if registry.generation == before:
            registry.made[key] = (packed, "")
        return packed

    def _index(self) -> Json:
        paths: Json = {}
        for group in self._registry.groups():
            for version in group.versions:
                name = f"apis/{group.name}/{version}" if group.name else f"api/{version}"
                key = self._hash(group.name, version)
                paths[name] = {"serverRelativeURL": f"{_PREFIX}/{name}?hash={key}"}
        return {"paths": paths}

    def _hash(self, group: str, version: str) -> str:
        # A hash of the document's inputs, not of the document: the index is requested far more often.
        key = (f"{group}/{version}", "openapi hash")
        made = self._registry.made.get(key)
        if made is None:
            content = [_essence(definition) for definition in self._registry.in_version(group, version)]
            made = (b"", _digest(msgspec.json.encode([__version__, content])))
            self._registry.made[key] = made
        return made[1]

    def _group_version(self, path: str) -> tuple[Make, str] | None:
        match path.removeprefix(_PREFIX).split("/")[1:]:
            case ["api", version]:
                group = ""
            case ["apis", group, version]:
                pass
            case _:
                return None
        definitions = self._registry.in_version(group, version) if path.startswith(_PREFIX) else ()
        if not definitions:
            return None
        return (lambda: v3.document(definitions)), self._hash(group, version)


def _essence(definition: ResourceDefinition) -> tuple[object, ...]:
    """The part of a document for a resource."""
    names = (definition.plural, definition.kind, definition.list_kind, definition.namespaced)
    parts = [part.name for part in definition.subresources]
    more = (definition.verbs, definition.status_subresource, parts, definition.selectable_fields)
    return *names, *more, definition.schema.fingerprint if definition.custom else ""


def _pack(make: Make, form: str) -> bytes:
    content = make()
    return zlib.compress(msgspec.json.encode(content) if form == _JSON else proto.encode(content), 6)


def _digest(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


def _form(path: str, accept: str) -> str | None:
    """The media type of the response; None where the client accepts none of ours."""
    if path == _PREFIX or not accept or _accepts_any(accept, (_JSON, "application/*", "*/*")):
        return _JSON
    return proto.MEDIA_TYPES[1] if path == _V2 and _accepts_any(accept, proto.MEDIA_TYPES) else None


def _accepts_any(accept: str, media_types: tuple[str, ...]) -> bool:
    return any(item.partition(";")[0].strip() in media_types for item in accept.split(","))


def _is_known(if_none_match: str, etag: str) -> bool:
    """Whether the client has this state (RFC 9110 §13.1.2: weak comparison)."""
    known = [item.strip().removeprefix("W/") for item in if_none_match.split(",")]
    return "*" in known or f'"{etag}"' in known
