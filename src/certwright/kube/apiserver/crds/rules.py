"""The kind CustomResourceDefinition: decoded as by Kubernetes' Go types, defaulted, validated.

Source: Kubernetes API reference, CustomResourceDefinition v1; apiextensions-apiserver
`pkg/apis/apiextensions/{validation,v1/defaults.go}`, `pkg/registry/customresourcedefinition`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from certwright.kube.api.errors import FieldError, forbidden, invalid, not_supported, required
from certwright.kube.apiserver.base import object_names as name_rules
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.string_formats import check_for
from certwright.kube.apiserver.crds import status
from certwright.kube.apiserver.crds.versions import version_errors
from certwright.kube.apiserver.kinds.native import NativeSchema
from certwright.kube.apiserver.kinds.registration_kinds import client_errors
from certwright.kube.apiserver.model.definitions import Extensions, Strategy

_SCOPES = ("Cluster", "Namespaced")


def validate(new: Json, old: Json | None, enforced: frozenset[str] = frozenset()) -> list[FieldError]:
    """The errors of a decoded and defaulted definition; `old` is its previous state. CEL rules in `enforced`
    are not compiled."""
    spec = new["spec"]
    errors = []
    if old is None:
        expected = f"{spec['names']['plural']}.{spec['group']}"
        for name in ("generateName", "name"):
            if (value := new["metadata"].get(name)) and value != expected:
                text = 'must be spec.names.plural+"."+spec.group'
                errors.append(invalid(f"metadata.{name}", value, text))
    errors += _group_errors(spec["group"]) + _approval_errors(new, old)
    if not spec["scope"]:
        errors.append(required("spec.scope"))
    elif spec["scope"] not in _SCOPES:
        errors.append(not_supported("spec.scope", spec["scope"], _SCOPES))
    errors += version_errors(spec, old["spec"] if old is not None else None, enforced)
    names = ("plural", "singular", "kind", "listKind")
    errors += [required(f"spec.names.{field}") for field in names if not spec["names"].get(field)]
    errors += _name_errors("spec.names", spec["names"]) + _conversion_errors(spec, old)
    if spec.get("preserveUnknownFields") and not (old and old["spec"].get("preserveUnknownFields")):
        text = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        errors.append(invalid("spec.preserveUnknownFields", True, text))
    errors += _stored_errors(new, old)
    if old is not None:
        fixed = [("group", spec, old["spec"]), ("names.plural", spec["names"], old["spec"]["names"])]
        if status.is_true(old, "Established"):
            fixed = [
                ("scope", spec, old["spec"]),
                ("names.kind", spec["names"], old["spec"]["names"]),
                *fixed,
            ]
        for path, given, before in fixed:
            name = path.rpartition(".")[2]
            if given[name] != before[name]:
                errors.append(invalid(f"spec.{path}", given[name], "field is immutable"))
    return errors


def warnings(new: Json, old: Json | None) -> list[str]:
    """Warnings about unknown formats that are new."""
    before = set(_unknown_formats(old["spec"].get("versions"))) if old is not None else set[str]()
    formats = dict.fromkeys(_unknown_formats(new["spec"].get("versions")))
    return [f'unrecognized format "{name}"' for name in formats if name not in before]


def _unknown_formats(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _unknown_formats(item)
    elif isinstance(part, dict):
        name, kind = part.get("format"), part.get("type")
        if isinstance(name, str) and kind == "string" and check_for(name) is None:
            yield name
        for word, item in part.items():
            if word not in ("default", "enum", "example"):
                yield from _unknown_formats(item)


def _group_errors(group: str) -> list[FieldError]:
    if not group:
        return [required("spec.group")]
    if problem := name_rules.dns_subdomain(group):
        return [invalid("spec.group", group, problem)]
    if "." not in group:
        return [invalid("spec.group", group, "should be a domain with at least one dot")]
    return []


def _approval_errors(crd: Json, old: Json | None) -> list[FieldError]:
    if not status.is_protected(crd["spec"]["group"]):
        return []
    value = _approval_of(crd)
    reason, text = status.approval(value)
    if old is not None and status.approval(_approval_of(old))[0] == reason:
        return []
    where = f"metadata.annotations[{status.APPROVAL}]"
    if reason == "MissingAnnotation":
        return [required(where, text)]
    return [invalid(where, value, text)] if reason == "InvalidAnnotation" else []


def _approval_of(crd: Json) -> str:
    return (crd["metadata"].get("annotations") or {}).get(status.APPROVAL) or ""


def _name_errors(path: str, names: Json) -> list[FieldError]:
    errors = []
    for field in ("plural", "singular", "kind", "listKind"):
        value = names.get(field, "")
        mixed = field in ("kind", "listKind")
        if value and (problem := _label_problem(value.lower() if mixed else value)):
            prefix = "may have mixed case, but should otherwise match: " if mixed else ""
            errors.append(invalid(f"{path}.{field}", value, prefix + problem))
    for field in ("shortNames", "categories"):
        for index, value in enumerate(names.get(field) or ()):
            if problem := _label_problem(value):
                errors.append(invalid(f"{path}.{field}[{index}]", value, problem))
    if names["kind"] and names["kind"] == names.get("listKind"):
        errors.append(invalid(f"{path}.listKind", names["kind"], "kind and listKind may not be the same"))
    return errors


def _label_problem(value: str) -> str:
    return ",".join(name_rules.problems(name_rules.dns_1035_label, value))


# --- conversion -------------------------------------------------------------------------------------------

_STRATEGIES = ("None", "Webhook")
_REVIEW_VERSIONS = ("v1", "v1beta1")


def _conversion_errors(spec: Json, old: Json | None) -> list[FieldError]:
    path, conversion = "spec.conversion", spec.get("conversion") or {}
    strategy, webhook = conversion.get("strategy", ""), conversion.get("webhook")
    client, versions = (webhook or {}).get("clientConfig"), (webhook or {}).get("conversionReviewVersions")
    if strategy == "Webhook":
        text = "required when strategy is set to Webhook"
        where = f"{path}.webhookClientConfig"
        errors = _client_errors(client, where) if client is not None else [required(where, text)]
        before = ((old or {}).get("spec", {}).get("conversion") or {}).get("webhook") or {}
        known = before.get("conversionReviewVersions") or ()
        lenient = bool(known) and not set(known) & set(_REVIEW_VERSIONS)
        where = f"{path}.conversionReviewVersions"
        return errors + _review_version_errors(where, versions or [], lenient=lenient)
    errors = []
    if not strategy:
        errors.append(required(f"{path}.strategy"))
    elif strategy not in _STRATEGIES:
        errors.append(not_supported(f"{path}.strategy", strategy, _STRATEGIES))
    text = "should not be set when strategy is not set to Webhook"
    if client is not None:
        errors.append(forbidden(f"{path}.webhookClientConfig", text))
    if versions:
        errors.append(forbidden(f"{path}.conversionReviewVersions", text))
    return errors


def _client_errors(client: Json, path: str) -> list[FieldError]:
    service = client.get("service")
    if service is None or client.get("url") is not None:
        return client_errors(client, path)
    # Kubernetes swaps namespace and name here.
    swapped = {"name": "namespace", "namespace": "name"}
    path = f"{path}.service"
    errors = [required(f"{path}.{other}") for name, other in swapped.items() if not service[name]]
    if not 0 < service["port"] < 1 << 16:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        errors.append(invalid(f"{path}.port", service["port"], text))
    texts = _path_problems(service.get("path") or "")
    return errors + [invalid(f"{path}.path", service["path"], text) for text in texts]


def _path_problems(path: str) -> list[str]:
    if path in ("", "/"):
        return []
    if path == "//":
        return ["segment[0] may not be empty"]
    problems = [] if path.startswith("/") else ["must start with a '/'"]
    for index, step in enumerate(path[1:].removesuffix("/").split("/")):
        if not step:
            problems.append(f"segment[{index}] may not be empty")
            continue
        errors = name_rules.problems(name_rules.dns_subdomain, step)
        problems += [f"segment[{index}]: {text}" for text in errors]
    return problems


def _review_version_errors(path: str, versions: list[str], *, lenient: bool) -> list[FieldError]:
    """`lenient`: the previous versions were unknown too."""
    if not versions:
        return [required(path)]
    errors, seen = list[FieldError](), set[str]()
    for index, version in enumerate(versions):
        if version in seen:
            errors.append(invalid(f"{path}[{index}]", version, "duplicate version"))
        elif problem := name_rules.dns_1035_label(version):
            errors.append(invalid(f"{path}[{index}]", version, problem))
        seen.add(version)
    if not lenient and not set(versions) & set(_REVIEW_VERSIONS):
        text = f"must include at least one of {', '.join(_REVIEW_VERSIONS)}"
        errors.append(invalid(path, versions, text))
    return errors


# --- updates ----------------------------------------------------------------------------------------------


def _stored_errors(new: Json, old: Json | None) -> list[FieldError]:
    """The errors in the versions that objects are stored in, as they will be after this write."""
    where, storage = "status.storedVersions", status.storage_version(new)
    stored = list((old or {}).get("status", {}).get("storedVersions") or ())
    stored += [storage] if storage is not None and storage not in stored else []
    if not stored:
        return [invalid(where, None, "must have at least one stored version")]
    errors, left = [], set(stored)
    for version in new["spec"]["versions"] or ():
        if version["name"] in left:
            left.remove(version["name"])
        elif version["storage"]:
            errors.append(invalid(where, stored, f"must have the storage version {version['name']}"))
    return errors + [
        invalid(
            f"{where}[{index}]",
            name,
            f"missing from spec.versions; {name} was previously a storage version, and must remain in "
            f"spec.versions until a storage migration ensures no data remains persisted in {name} and "
            f"removes {name} from status.storedVersions",
        )
        for index, name in enumerate(stored)
        if name in left
    ]


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
        spec = obj["spec"]
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
        storage = status.storage_version(obj)
        if not obj["status"].get("storedVersions") and storage is not None:
            obj["status"]["storedVersions"] = [storage]
        return unknown

    def validate(self, obj: Json, old: Json | None = None) -> list[FieldError]:
        """The errors of a definition. A written status is validated separately."""
        if old is not None and obj["spec"] is old["spec"]:
            return _name_errors("status.acceptedNames", obj["status"]["acceptedNames"])
        spec = obj["spec"]
        extension = self._extensions.get((spec["group"], spec["names"]["kind"]))
        return validate(obj, old, extension.enforced_rules if extension is not None else frozenset())


def _prepare_create(crd: Json) -> None:
    storage = status.storage_version(crd)
    crd["status"] = status.initial([] if storage is None else [storage])


def _prepare_update(new: Json, old: Json) -> None:
    storage, stored = status.storage_version(new), old["status"].get("storedVersions") or []
    new["status"] = old["status"]
    if storage is not None and storage not in stored:
        new["status"] = {**old["status"], "storedVersions": [*stored, storage]}


def _mark_deleted(crd: Json) -> None:
    metadata = crd["metadata"]
    status.mark_pending(crd, metadata["deletionTimestamp"])
    if CLEANUP_FINALIZER not in metadata.get("finalizers", ()):
        metadata["finalizers"] = [*metadata.get("finalizers", ()), CLEANUP_FINALIZER]


STRATEGY = Strategy(_prepare_create, _prepare_update, mark_deleted=_mark_deleted)
