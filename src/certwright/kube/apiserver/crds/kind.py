"""The kind CustomResourceDefinition: decoded as by Kubernetes' Go types, defaulted, validated.

Source: Kubernetes API reference, CustomResourceDefinition v1; apiextensions-apiserver
`pkg/apis/apiextensions/v1/defaults.go`, `pkg/registry/customresourcedefinition`.
"""

from __future__ import annotations

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds import rules
from certwright.kube.apiserver.crds import status as crd_status
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.model.definitions import Extensions, Strategy

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Keeps a deleted definition until its objects are gone."""


class DefinitionSchema(NativeSchema):
    """The schema of CustomResourceDefinitions: decoding, defaults and validation."""

    def __init__(self, extensions: Extensions) -> None:
        super().__init__("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        self._extensions = extensions

    def process(self, obj: Json) -> list[str]:
        """Decode and default `obj` in place; returns the paths of the dropped fields, sorted.

        Raises `NotOfKind` for a value of a wrong type.
        """
        unknown = super().process(obj)
        _complete(obj)
        return unknown

    def validate(self, obj: Json, old: Json | None = None) -> list[FieldError]:
        """The errors of a definition. A written status is validated separately."""
        if old is not None and obj["spec"] is old["spec"]:
            return rules.status_errors(obj)
        spec = obj["spec"]
        extension = self._extensions.get((spec["group"], spec["names"]["kind"]))
        return rules.validate(obj, old, extension.enforced_rules if extension is not None else frozenset())


def _complete(crd: Json) -> None:
    spec = crd["spec"]
    names = spec["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    if names["kind"]:
        names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    if not names["singular"]:
        del names["singular"]
    spec.setdefault("conversion", {"strategy": "None"})
    webhook = spec["conversion"].get("webhook")
    if webhook is not None:
        if webhook.get("clientConfig") is None and not webhook.get("conversionReviewVersions"):
            del spec["conversion"]["webhook"]
        elif service := (webhook.get("clientConfig") or {}).get("service"):
            service.setdefault("port", 443)
    storage = crd_status.storage_version(crd)
    if not crd["status"].get("storedVersions") and storage is not None:
        crd["status"]["storedVersions"] = [storage]


def _prepare_create(crd: Json) -> None:
    storage = crd_status.storage_version(crd)
    crd["status"] = crd_status.initial([] if storage is None else [storage])


def _prepare_update(new: Json, old: Json) -> None:
    status, storage = old["status"], crd_status.storage_version(new)
    stored = status.get("storedVersions") or []
    if storage is not None and storage not in stored:
        status = {**status, "storedVersions": [*stored, storage]}
    new["status"] = status


def _mark_deleted(crd: Json) -> None:
    metadata = crd["metadata"]
    crd_status.mark_pending(crd, metadata["deletionTimestamp"])
    if CLEANUP_FINALIZER not in metadata.get("finalizers", ()):
        metadata["finalizers"] = [*metadata.get("finalizers", ()), CLEANUP_FINALIZER]


STRATEGY = Strategy(_prepare_create, _prepare_update, mark_deleted=_mark_deleted)
