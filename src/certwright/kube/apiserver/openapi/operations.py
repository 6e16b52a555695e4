"""Operations at each path, in terms that both versions of OpenAPI are written from.

Source: Kubernetes API reference; kube-openapi `pkg/builder3`, apiextensions-apiserver
`pkg/controller/openapi/builder`, apiserver `pkg/endpoints/openapi` (operation ids and tags).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.kinds.native_openapi import component_name
from certwright.kube.apiserver.model.definitions import ResourceDefinition, Subresource
from certwright.kube.apiserver.protobuf import fields as protobuf_fields
from certwright.kube.apiserver.representations.discovery import parts

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
OBJECT_META = f"{META}.ObjectMeta"
LIST_META = f"{META}.ListMeta"
DELETE_OPTIONS = f"{META}.DeleteOptions"
STATUS = f"{META}.Status"
PATCH = f"{META}.Patch"


def schema_name(definition: ResourceDefinition, kind: str) -> str:
    """`io.k8s.api.core.v1.Secret`; for custom resources the group backwards, `io.cert-manager.v1.Issuer`."""
    if isinstance(definition.schema, NativeSchema):
        return f"{component_name(definition.schema.message).rpartition('.')[0]}.{kind}"
    return f"{'.'.join(reversed(definition.group.split('.')))}.{definition.version}.{kind}"


def group_version_kind(definition: ResourceDefinition, kind: str = "") -> Json:
    """The value of `x-kubernetes-group-version-kind`."""
    return {"group": definition.group, "version": definition.version, "kind": kind or definition.kind}


_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_STRATEGIC, _APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
_JSON, _YAML, _PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


class Parameter(NamedTuple):
    """A parameter of the query, or of the path."""

    name: str
    type: str
    description: str
    where: str = "query"


_LISTING = (
    ("allowWatchBookmarks", "boolean", "Send bookmarks now and then in a watch."),
    ("continue", "string", "Continue the list where the last page ended."),
    ("fieldSelector", "string", "Only objects whose fields have these values."),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "The most objects to give in one page."),
    ("resourceVersion", "string", "The state to read, or to watch from."),
    ("resourceVersionMatch", "string", "How resourceVersion is meant: Exact or NotOlderThan."),
    ("sendInitialEvents", "boolean", "Begin a watch with all existing objects."),
    ("timeoutSeconds", "integer", "End a list or a watch after this time."),
    ("watch", "boolean", "Send changes as they happen."),
)
_WRITING = (
    ("dryRun", "string", "All: do everything but store."),
    ("fieldManager", "string", "Name of the field manager."),
    ("fieldValidation", "string", "Ignore, Warn about or refuse (Strict) unknown and duplicate fields."),
)
_DELETING = (
    ("dryRun", "string", "All: do everything but delete."),
    ("gracePeriodSeconds", "integer", "Seconds to leave before the object is removed."),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
        "Delete even an object that cannot be read any more.",
    ),
    ("orphanDependents", "boolean", "An older way to say Orphan."),
    ("propagationPolicy", "string", "What becomes of dependents: Orphan, Background or Foreground."),
)
_FORCE = ("force", "boolean", "Take over fields that others manage (apply patches only).")
_QUERY: dict[str, tuple[tuple[str, str, str], ...]] = {
    "get": (("resourceVersion", "string", "The state to read."),),
    "list": _LISTING,
    "create": _WRITING,
    "update": _WRITING,
    "patch": (*_WRITING, _FORCE),
    "delete": _DELETING,
    "deletecollection": _LISTING,
}
_PRETTY = Parameter("pretty", "string", "true: lay the answer out for people.")
_NAMESPACE = Parameter("namespace", "string", "The namespace.", "path")


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One method at a path. `takes` and `gives` are names of schemas; `takes` is empty without a body."""

    method: str
    id: str
    tag: str
    action: str
    description: str
    kind: Json
    parameters: tuple[Parameter, ...]
    takes: str
    takes_as: tuple[str, ...]
    needs_body: bool
    gives: str
    gives_as: tuple[str, ...]
    codes: tuple[tuple[str, str], ...]


class Path(msgspec.Struct, frozen=True):
    """A path, the common parameters of its operations, and the operations."""

    path: str
    parameters: tuple[Parameter, ...]
    operations: tuple[Operation, ...]


def paths(definition: ResourceDefinition) -> Iterator[Path]:
    """All paths of a resource, without those that have no operations."""
    for path, named, verbs, part in _places(definition):
        operations = tuple(
            _operation(definition, method, verb, path, part)
            for method, verb in verbs
            if verb in (part.verbs if part is not None else definition.verbs)
        )
        if not operations:
            continue
        # Parameters common to all operations are listed once, for the path.
        common = set(operations[0].parameters).intersection(*(other.parameters for other in operations[1:]))
        shared = sorted((*named, *common, _PRETTY), key=lambda parameter: parameter.name)
        own = (
            replace(each, parameters=tuple(p for p in each.parameters if p not in common))
            for each in operations
        )
        yield Path(path, tuple(shared), tuple(own))


_Place = tuple[str, tuple[Parameter, ...], tuple[tuple[str, str], ...], Subresource | None]
_ON_COLLECTION = (("get", "list"), ("post", "create"), ("delete", "deletecollection"))
_ON_PART = (("get", "get"), ("put", "update"), ("patch", "patch"), ("post", "create"))
_ON_OBJECT = (*_ON_PART[:3], ("delete", "delete"))


def _places(definition: ResourceDefinition) -> Iterator[_Place]:
    root = f"/apis/{definition.group}/{definition.version}" if definition.group else "/api/v1"
    named: tuple[Parameter, ...] = ()
    collection = f"{root}/{definition.plural}"
    if definition.namespaced:
        yield collection, named, (("get", "list"),), None
        named = (_NAMESPACE,)
        collection = f"{root}/namespaces/{{namespace}}/{definition.plural}"
    yield collection, named, _ON_COLLECTION, None
    named = (Parameter("name", "string", f"The name of the {definition.kind}.", "path"), *named)
    yield f"{collection}/{{name}}", named, _ON_OBJECT, None
    for part in parts(definition):
        yield f"{collection}/{{name}}/{part.name}", named, _ON_PART, part


def _operation(
    definition: ResourceDefinition, method: str, verb: str, path: str, part: Subresource | None
) -> Operation:
    takes, takes_as = _body(definition, verb, part)
    # The group and version as in operation ids, and the tag: `TestDevV1`, `testDev_v1`.
    words = re.split(r"[^A-Za-z0-9]", definition.group.removesuffix(".k8s.io") or "core")
    group = "".join(word[:1].upper() + word[1:] for word in words)
    version = definition.version
    prefix, tag = f"{group}{version[:1].upper()}{version[1:]}", f"{group[:1].lower()}{group[1:]}_{version}"
    gives = STATUS if verb in ("delete", "deletecollection") else kind_of(definition, part)
    if verb == "list":
        gives = schema_name(definition, definition.list_kind)
    rest = path.rpartition("/namespaces/")[1] and "Namespaced"
    everywhere = definition.namespaced and not rest
    subject = f"{'Collection' if verb == 'deletecollection' else ''}{rest}{definition.kind}"
    subject += (part.name.title() if part is not None else "") + ("ForAllNamespaces" if everywhere else "")
    return Operation(
        method=method,
        id=f"{_WORDS[verb]}{prefix}{subject}",
        tag=tag,
        action=_ACTIONS.get(verb, verb),
        description=f"{verb} {f'{part.name} of ' if part is not None else ''}{definition.kind}",
        kind=group_version_kind(definition),
        parameters=tuple(Parameter(*parameter) for parameter in _QUERY[verb]),
        takes=takes,
        takes_as=takes_as,
        needs_body=verb != "delete",
        gives=gives,
        gives_as=(_JSON, _YAML) if definition.custom else (_JSON, _PROTOBUF, _YAML),
        codes=(("200", "OK"), *_MORE_CODES.get(verb, ())),
    )


_WORDS = {
    "get": "read",
    "list": "list",
    "create": "create",
    "update": "replace",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
# The verbs in the API reference's terms.
_ACTIONS = {"create": "post", "update": "put"}
_ACCEPTED, _CREATED = ("202", "Accepted"), ("201", "Created")
_MORE_CODES = {"create": (_CREATED, _ACCEPTED), "update": (_CREATED,), "delete": (_ACCEPTED,)}


def kind_of(definition: ResourceDefinition, part: Subresource | None) -> str:
    """The name of the schema that is read and written at the path."""
    if part is None or part.kind is None:
        return schema_name(definition, definition.kind)
    message = message_of(part)
    return component_name(message) if message is not None else schema_name(definition, definition.kind)


def message_of(part: Subresource) -> str | None:
    """The message of a subresource with another kind than its resource."""
    if part.kind is None:
        return None
    group, version, kind = part.kind
    return protobuf_fields.message_of(f"{group}/{version}" if group else version, kind)


def _body(definition: ResourceDefinition, verb: str, part: Subresource | None) -> tuple[str, tuple[str, ...]]:
    media_types = (_JSON, _YAML) if definition.custom else ("*/*",)
    if verb in ("create", "update"):
        return kind_of(definition, part), media_types
    if verb == "delete":
        return DELETE_OPTIONS, media_types
    if verb != "patch":
        return "", media_types
    return PATCH, (*_PATCHES, *((_STRATEGIC,) if definition.strategic is not None else ()), _APPLY)
