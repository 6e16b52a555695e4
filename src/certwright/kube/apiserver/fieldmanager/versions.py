"""A change of an object in every version that its managers use.

Source: structured-merge-diff `merge/update.go`; apimachinery `pkg/util/managedfields` (versionconverter).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.metadata import MANAGED
from certwright.kube.apiserver.fieldmanager.fields_check import check_typed
from certwright.kube.apiserver.fieldmanager.fields_set import FieldsError
from certwright.kube.apiserver.fieldmanager.fields_type import Type, type_of
from certwright.kube.apiserver.fieldmanager.fields_walk import Comparison
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition

Compare = Callable[[ResourceDefinition, Json, Json], Comparison]
"""Compares two objects of the version of a definition."""


class NotConvertible(FieldsError):
    """An object has fields that another version of its kind, in which a manager owns fields, lacks."""


def in_version(
    backend: Backend, definition: ResourceDefinition, api_version: str
) -> ResourceDefinition | None:
    """The kind in an entry's version; None when a built-in kind no longer has that version.

    Raises `NotConvertible` for a version that a custom resource does not have at all.
    """
    if api_version == definition.api_version:
        return definition
    group, _, version = api_version.rpartition("/")
    other = backend.registry.find(group, version, definition.plural)
    if other is None or other.bucket != definition.bucket:
        other = next((there for there in definition.unserved if there.api_version == api_version), None)
    if other is None and definition.custom:
        raise NotConvertible(f"request to convert CR to an invalid group/version: {api_version}")
    return other


def type_in_version(backend: Backend, definition: ResourceDefinition, api_version: str) -> Type | None:
    """The kind's type in that version; None when it no longer exists. Raises `NotConvertible`."""
    version_definition = in_version(backend, definition, api_version)
    return type_of(version_definition) if version_definition is not None else None


def converted(
    backend: Backend, there: ResourceDefinition, here: ResourceDefinition, obj: Json, what: str = ""
) -> Json:
    """An object in the version of `there`; `here` is that of the request.

    Without a conversion webhook the content is the same in all versions. Raises `NotConvertible` where it
    does not have the form of the other, with `what` before the reason.
    """
    if there is here and obj.get("apiVersion") == here.api_version:
        return obj
    try:
        converted_object = backend.in_version(there, obj)
        meta = {name: value for name, value in converted_object["metadata"].items() if name != MANAGED}
        check_typed(type_of(there), {**converted_object, "metadata": meta})
    except FieldsError as error:
        raise NotConvertible(f"{what}{error}") from None
    return converted_object


class Change:
    """A change of an object, compared once for each version."""

    def __init__(
        self, backend: Backend, definition: ResourceDefinition, old: Json, new: Json, compare: Compare
    ) -> None:
        self._backend = backend
        self._definition = definition
        self._old = old
        self._new = new
        self._compare = compare
        self._comparisons: dict[str, Comparison | None] = {}

    def check_old(self, api_versions: Iterable[str]) -> None:
        """Raise `NotConvertible` where the old object does not have the form of one of these versions."""
        for api_version in set(api_versions) - {self._definition.api_version}:
            there = in_version(self._backend, self._definition, api_version)
            if there is not None:
                converted(self._backend, there, self._definition, self._old)

    def seen_in(self, api_version: str) -> Comparison | None:
        """The changed fields in a version; None when that no longer exists.

        Raises `NotConvertible`.
        """
        if api_version not in self._comparisons:
            self._comparisons[api_version] = self._load(api_version)
        return self._comparisons[api_version]

    def _load(self, api_version: str) -> Comparison | None:
        there = in_version(self._backend, self._definition, api_version)
        if there is None:
            return None
        here = self._definition
        old = converted(self._backend, there, here, self._old, "failed to convert old object: ")
        new = converted(self._backend, there, here, self._new, "failed to convert new object: ")
        return self._compare(there, old, new)
