"""From a CustomResourceDefinition to the definitions that the server serves.

A stored body is pruned and defaulted by the current schema of the storage version, and then pruned by the
schema of the requested version. With one version whose schema never changed nothing needs to be done, and
after a change only rows that are older.

Source: Kubernetes API reference, CustomResourceDefinition v1; Kubernetes documentation, "Versions in
CustomResourceDefinitions"; apiextensions-apiserver `pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds import status
from certwright.kube.apiserver.crds.status import is_true
from certwright.kube.apiserver.model.definitions import (
    Conversion,
    Extensions,
    KindExtension,
    ResourceDefinition,
)
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.model.registry import version_rank
from certwright.kube.apiserver.representations.tables import printer_columns
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.kube.apiserver.verbs import scale
from certwright.kube.apiserver.webhooks.config import target_of
from certwright.kube.store.contract import Row
from certwright.kube.util.jsonpath import simple_keys

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
        since = int(crd["metadata"].get("resourceVersion") or 0)
        read = _through(schemas[stored], None)
        return (lambda row: row.body if row.revision > since else read(row)), None
    if requested == stored:
        return _through(schemas[stored], None), None

    def write(body: bytes) -> bytes:
        content: Json = decode_json(b"{" + body + b"}")
        schemas[stored].prune(content)
        return encode_json(content)[1:-1]

    return _through(schemas[stored], schemas[requested]), write


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


def make_definitions(
    crd: Json, extensions: Extensions = MappingProxyType({})
) -> tuple[ResourceDefinition, ...]:
    """One resource definition per served version, the preferred one first; none until it is established.

    `crd` is a committed object, `extensions` are the embedding program's additions to kinds. All versions
    share a bucket: with conversion strategy `None` they differ only in apiVersion.
    """
    if not is_true(crd, "Established"):
        return ()
    served = sorted(
        (version for version in crd["spec"]["versions"] if version["served"]),
        key=lambda version: version_rank(version["name"]),
    )
    extension = extensions.get((crd["spec"]["group"], _names(crd)["kind"]))
    make = partial(
        _definition,
        crd,
        served=tuple(version["name"] for version in served),
        schemas={version["name"]: _schema(crd, version, extension) for version in crd["spec"]["versions"]},
        conversion=_conversion(crd),
        extension=extension,
    )
    unserved = tuple(make(version) for version in crd["spec"]["versions"] if not version["served"])
    return tuple(make(version, unserved=unserved) for version in served)


def _conversion(crd: Json) -> Conversion | None:
    webhook = (crd["spec"].get("conversion") or {}).get("webhook")
    if not webhook:
        return None
    stored = status.storage_version(crd) or ""
    return Conversion(
        target_of(webhook["clientConfig"]),
        tuple(webhook["conversionReviewVersions"]),
        stored,
        (crd["status"].get("storedVersions") or [stored])[0],
    )


def _definition(
    crd: Json,
    version: Json,
    *,
    served: tuple[str, ...],
    schemas: Mapping[str, Schema],
    conversion: Conversion | None,
    extension: KindExtension | None,
    unserved: tuple[ResourceDefinition, ...] = (),
) -> ResourceDefinition:
    names, paths = _names(crd), _scale_paths(version)
    read, write = (None, None) if conversion else readers(crd, schemas, version["name"])
    return ResourceDefinition(
        group=crd["spec"]["group"],
        version=version["name"],
        kind=names["kind"],
        list_kind=names.get("listKind", ""),
        plural=names["plural"],
        singular=names.get("singular", ""),
        namespaced=crd["spec"]["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        schema=schemas[version["name"]],
        body_out=read,
        body_in=write,
        columns=printer_columns(version.get("additionalPrinterColumns") or ()),
        served_versions=served,
        unserved=unserved,
        stored_version=next(entry["name"] for entry in crd["spec"]["versions"] if entry["storage"]),
        status_subresource="status" in (version.get("subresources") or {}),
        has_generation=True,
        selectable_fields=tuple(
            ".".join(simple_keys(field["jsonPath"])) for field in (version.get("selectableFields") or ())
        ),
        # In Kubernetes' order for custom resources.
        verbs=("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"),
        custom=True,
        conversion=conversion,
        extension=extension,
        terminating=is_true(crd, "Terminating"),
        warning=_deprecation(crd, version, names["kind"]),
        subresources=(scale.subresource(paths),) if paths else (),
    )


def _names(crd: Json) -> Json:
    names: Json = (crd.get("status") or {}).get("acceptedNames") or crd["spec"]["names"]
    return names


def _schema(crd: Json, version: Json, extension: KindExtension | None) -> Schema:
    kind, paths = _names(crd)["kind"], _scale_paths(version)
    return Schema(
        (version.get("schema") or {}).get("openAPIV3Schema"),
        known_rules=extension.enforced_rules if extension is not None else frozenset(),
        named=(kind, version["name"]),
        also=partial(scale.errors, paths) if paths else None,
    )


def _scale_paths(version: Json) -> Json:
    paths: Json = (version.get("subresources") or {}).get("scale") or {}
    return paths


def _deprecation(crd: Json, version: Json, kind: str) -> str:
    """The warning of a deprecated version; by default it names the best version that is not deprecated."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning") is not None:
        return str(version["deprecationWarning"])
    group, rank = crd["spec"]["group"], version_rank(version["name"])
    better = [
        other["name"]
        for other in crd["spec"]["versions"]
        if other["served"] and not other.get("deprecated") and version_rank(other["name"]) < rank
    ]
    instead = f"; use {group}/{min(better, key=version_rank)} {kind}" if better else ""
    return f"{group}/{version['name']} {kind} is deprecated{instead}"
