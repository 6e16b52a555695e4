"""Objects within objects (`x-kubernetes-embedded-resource`): they must say what they are.

Source: Kubernetes documentation, "RawExtension"; apiextensions-apiserver `pkg/apiserver/schema/objectmeta`.
"""

from __future__ import annotations

from typing import Any

from certwright.apiserver.schemas import schema_errors as words
from certwright.apiserver.schemas.schema_errors import Path, show_path
from certwright.apiserver.verbs import names
from certwright.resources.errors import FieldError, invalid


def check(value: dict[str, Any], path: Path, errors: list[FieldError]) -> None:
    """Append what is wrong with the type and the metadata of an embedded object."""
    for key in ("apiVersion", "kind"):
        found, where = value.get(key), (path, key)
        if found is None or found == "":
            errors.append(words.missing(where))
        elif type(found) is not str:
            errors.append(invalid(show_path(where), found, "must be a string"))
        elif problem := _problem(key, found):
            errors.append(invalid(show_path(where), found, problem))
    if (meta := value.get("metadata")) is not None:
        errors.extend(_metadata_errors(meta, (path, "metadata")))


def _problem(key: str, text: str) -> str:
    if key == "apiVersion":
        return f"unexpected GroupVersion string: {text}" if text.count("/") > 1 else ""
    problem = names.dns_1035_label(text.lower())
    return f"may have mixed case, but should otherwise match: {problem}" if problem else ""


def _metadata_errors(meta: Any, path: Path) -> list[FieldError]:
    # Imported here because metadata is checked with what definitions say, and they hold schemas.
    from certwright.apiserver.verbs import metadata

    prefix = show_path(path)
    if type(meta) is not dict:
        return [invalid(prefix, meta, "must be an object")]
    if problem := metadata.type_problem(meta):
        return [invalid(prefix, meta, problem)]
    return [
        FieldError(prefix + error.field.removeprefix("metadata"), error.reason, error.detail)
        for error in metadata.check(dict(meta))
    ]
