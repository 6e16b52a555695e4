"""Embedded objects (`x-kubernetes-embedded-resource`): they need apiVersion, kind and metadata.

Source: Kubernetes documentation, "RawExtension"; apiextensions-apiserver `pkg/apiserver/schema/objectmeta`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from certwright.kube.api.errors import FieldError, invalid, required
from certwright.kube.apiserver.base import metadata, object_names
from certwright.kube.apiserver.base.json_values import NotOfKind
from certwright.kube.apiserver.base.schema_common import Path, show_path


class Malformed(ValueError):
    """The object cannot be decoded, because an embedded object has malformed metadata."""


def coerce(value: dict[str, Any], path: Path, unknown: list[str]) -> None:
    """Prune the metadata of an embedded object; appends the paths of the members dropped.

    Raises `Malformed` where a type is wrong.
    """
    for key in ("apiVersion", "kind"):
        if key in value and type(value[key]) is not str:
            raise Malformed(str(invalid(show_path((path, key)), value[key], "must be a string")))
    if "metadata" not in value:
        return
    prefix = show_path(path)
    try:
        unknown_members = metadata.clean(_EMBEDDED, value)
    except NotOfKind as error:
        raise Malformed(str(invalid(f"{prefix}.metadata", value["metadata"], error.detail))) from None
    unknown += [f"{prefix}.{name}" for name in unknown_members]
    for owner in value["metadata"].get("ownerReferences") or ():
        for key in ("apiVersion", "kind", "name", "uid"):
            owner.setdefault(key, "")


class _Embedded(msgspec.Struct, frozen=True):
    """Any embedded object, to the rules of metadata."""

    group: str = ""
    version: str = "v1"
    kind: str = "Object"
    custom: bool = True
    name_rule: object_names.NameRule = object_names.dns_subdomain


_EMBEDDED = _Embedded()


def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
    """Append the errors of an embedded object's type and metadata."""
    for key in ("apiVersion", "kind"):
        where = (path, key)
        if key not in value:
            errors.append(required(show_path(where)))
        elif type(member := value[key]) is not str:
            errors.append(invalid(show_path(where), member, "must be a string"))
        elif problem := _problem(key, member):
            errors.append(invalid(show_path(where), member, problem))
    if (meta := value.get("metadata")) is not None:
        errors.extend(_metadata_errors(meta, (path, "metadata")))


def _problem(key: str, text: str) -> str:
    if not text:
        return "must not be empty"
    if key == "apiVersion":
        return f"unexpected GroupVersion string: {text}" if text.count("/") > 1 else ""
    problem = object_names.dns_1035_label(text.lower())
    return f"may have mixed case, but should otherwise match: {problem}" if problem else ""


def _metadata_errors(meta: Any, path: Path) -> list[FieldError]:
    prefix = show_path(path)
    if type(meta) is not dict:
        return [invalid(prefix, meta, "must be an object")]
    if problem := metadata.type_problem(meta):
        return [invalid(prefix, meta, problem)]
    errors = [
        invalid(f"{prefix}.{key}", meta[key], problem)
        for key in ("name", "generateName")
        for problem in _segment_problems(meta.get(key) or "", is_complete=key == "name")
    ]
    if namespace := meta.get("namespace"):
        errors += [
            invalid(f"{prefix}.namespace", namespace, text)
            for text in object_names.problems(object_names.dns_label, namespace)
        ]
    return errors + [
        FieldError(prefix + error.field.removeprefix("metadata"), error.reason, error.detail)
        for error in metadata.check(dict(meta))
    ]


def _segment_problems(text: str, *, is_complete: bool) -> list[str]:
    """Why a text is not a valid path segment."""
    if is_complete and text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{mark}'" for mark in ("/", "%") if mark in text]
