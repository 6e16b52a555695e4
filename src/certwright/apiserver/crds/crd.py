"""From a CustomResourceDefinition to what the server serves: its defaults, its status, its definitions.

The names are accepted and the resource is established in the very write that creates the definition, where
Kubernetes' controllers take a second and a third.

Source: Kubernetes API reference, CustomResourceDefinition v1; Kubernetes documentation, "Custom Resources";
apiextensions-apiserver `pkg/controller/status`, `pkg/controller/establish`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from certwright.apiserver.admission.webhook_config import target_of
from certwright.apiserver.crds import crd_rules, scale
from certwright.apiserver.crds.conversion import Conversion
from certwright.apiserver.definitions import Json, ResourceDefinition, Strategy
from certwright.apiserver.registry import Registry, version_rank
from certwright.apiserver.representations.tables import printer_columns
from certwright.apiserver.schemas.jsonpath import simple_keys
from certwright.apiserver.schemas.schema import Schema
from certwright.kit.clock import Clock
from certwright.resources.crd_rules import known_rules


def strategy(registry: Callable[[], Registry], clock: Clock) -> Strategy:
    """The strategy of the kind CustomResourceDefinition."""

    def create(crd: Json) -> None:
        crd["status"] = {}
        _complete(crd)
        _set_status(crd, registry(), clock)

    def update(new: Json, old: Json) -> None:
        new["status"] = dict(old.get("status") or {})
        _complete(new)
        _set_status(new, registry(), clock)

    return Strategy(create, update, validate=crd_rules.validate)


def _complete(crd: Json) -> None:
    spec = crd["spec"]
    names = spec["names"]
    names["singular"] = names.get("singular") or names["kind"].lower()
    names["listKind"] = names.get("listKind") or f"{names['kind']}List"
    spec.setdefault("conversion", {"strategy": "None"})
    client = (spec["conversion"].get("webhook") or {}).get("clientConfig") or {}
    if service := client.get("service"):
        for field, value in (("name", ""), ("namespace", ""), ("port", 443)):
            service.setdefault(field, value)
    # Only `false` may be said, and saying it means nothing.
    if spec.get("preserveUnknownFields") is False:
        del spec["preserveUnknownFields"]


# --- status -----------------------------------------------------------------------------------------------


def _set_status(crd: Json, registry: Registry, clock: Clock) -> None:
    status: Json = crd["status"]
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    stored = list(status.get("storedVersions") or ())
    storage = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
    status["storedVersions"] = stored + [name for name in storage[:1] if name not in stored]
    accepted, accepted_condition = _accept_names(crd, registry)
    status["acceptedNames"] = accepted
    conditions = [accepted_condition]
    if not _is_true(status, "Established"):
        conditions.append(_established(names_accepted=accepted_condition["status"] == "True"))
    status["conditions"] = _merged(list(status.get("conditions") or ()), conditions, now)


def _accept_names(crd: Json, registry: Registry) -> tuple[Json, Json]:
    wanted: Json = crd["spec"]["names"]
    before: Json = crd["status"].get("acceptedNames") or {}
    words, kinds = _taken(crd, registry)
    accepted, conflicts = dict(before), []
    for field, reason, taken in (
        ("plural", "PluralConflict", words),
        ("singular", "SingularConflict", words),
        ("shortNames", "ShortNamesConflict", words),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ):
        clash = _clash(wanted.get(field), before.get(field), taken)
        if clash:
            conflicts.append((reason, ", ".join(f'"{name}" is already in use' for name in clash)))
        elif field in wanted:
            accepted[field] = wanted[field]
        else:
            accepted.pop(field, None)
    if "categories" in wanted:
        accepted["categories"] = wanted["categories"]
    return accepted, _names_condition(conflicts)


def _names_condition(conflicts: list[tuple[str, str]]) -> Json:
    status, (reason, message) = (
        ("False", conflicts[-1]) if conflicts else ("True", ("NoConflicts", "no conflicts found"))
    )
    return {"type": "NamesAccepted", "status": status, "reason": reason, "message": message}


def _clash(wanted: Any, before: Any, taken: set[str]) -> list[str]:
    names = wanted if isinstance(wanted, list) else [wanted] if wanted else []
    ours = before if isinstance(before, list) else [before]
    return [name for name in names if name in taken and name not in ours]


def _taken(crd: Json, registry: Registry) -> tuple[set[str], set[str]]:
    own = crd["metadata"].get("name", "")
    others = [d for d in registry.all() if d.group == crd["spec"]["group"] and d.resource != own]
    words = {word for d in others for word in (d.plural, d.singular, *d.short_names)}
    return words, {kind for d in others for kind in (d.kind, d.list_kind)}


def _established(*, names_accepted: bool) -> Json:
    if names_accepted:
        status, reason, message = "True", "InitialNamesAccepted", "the initial names have been accepted"
    else:
        status, reason, message = "False", "NotAccepted", "not all names are accepted"
    return {"type": "Established", "status": status, "reason": reason, "message": message}


def mark_terminating(crd: Json, now: str) -> None:
    """Say of a definition that is marked for deletion that its objects are being deleted first."""
    condition = {
        "type": "Terminating",
        "status": "True",
        "reason": "InstanceDeletionInProgress",
        "message": "CustomResource deletion is in progress",
    }
    status = crd["status"] = dict(crd.get("status") or {})
    status["conditions"] = _merged(list(status.get("conditions") or ()), [condition], now)


def _is_true(status: Json, kind: str) -> bool:
    return any(c["type"] == kind and c["status"] == "True" for c in status.get("conditions") or ())


def _merged(conditions: list[Json], changes: list[Json], now: str) -> list[Json]:
    merged = {condition["type"]: condition for condition in conditions}
    for change in changes:
        old = merged.get(change["type"])
        since = old.get("lastTransitionTime", now) if old and old["status"] == change["status"] else now
        merged[change["type"]] = {**change, "lastTransitionTime": since}
    return list(merged.values())


# --- definitions ------------------------------------------------------------------------------------------


def make_definitions(crd: Json) -> tuple[ResourceDefinition, ...]:
    """One definition per served version, the preferred one first; none while it is not established.

    `crd` is a committed object. All versions share a bucket: with conversion strategy `None` the apiVersion
    is all that differs.
    """
    if not _is_true(crd.get("status") or {}, "Established"):
        return ()
    served = sorted(
        (version for version in crd["spec"]["versions"] if version["served"]),
        key=lambda version: version_rank(version["name"]),
    )
    names = tuple(version["name"] for version in served)
    webhook = crd["spec"]["conversion"].get("webhook") if crd["spec"].get("conversion") else None
    if not webhook:
        return tuple(_definition(crd, version, names) for version in served)
    kept = _kept_version(crd)
    conversion = Conversion(
        target_of(webhook["clientConfig"]),
        tuple(webhook["conversionReviewVersions"]),
        _definition(crd, kept, names),
    )
    return tuple(
        conversion.kept
        if version["name"] == kept["name"]
        else _definition(crd, version, names, conversion=conversion)
        for version in served
    )


def _kept_version(crd: Json) -> Json:
    """The version that objects are kept in: the first that any was ever kept in."""
    versions: list[Json] = crd["spec"]["versions"]
    stored = (crd["status"].get("storedVersions") or [""])[0]
    found = next((version for version in versions if version["name"] == stored), None)
    return found or next(version for version in versions if version["storage"])


def _definition(
    crd: Json, version: Json, served: tuple[str, ...], *, conversion: Conversion | None = None
) -> ResourceDefinition:
    names = (crd.get("status") or {}).get("acceptedNames") or crd["spec"]["names"]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    paths = (version.get("subresources") or {}).get("scale")
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
        schema=Schema(
            schema,
            known_rules=known_rules(names["kind"], crd["spec"]["group"]),
            named=(names["kind"], version["name"]),
            also=partial(scale.errors, paths) if paths else None,
        ),
        columns=printer_columns(version.get("additionalPrinterColumns") or ()),
        served_versions=served,
        stored_version=next(found["name"] for found in crd["spec"]["versions"] if found["storage"]),
        status_subresource="status" in (version.get("subresources") or {}),
        has_generation=True,
        selectable_fields=_selectable(version.get("selectableFields") or ()),
        # In the order that Kubernetes lists them for custom resources.
        verbs=("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"),
        custom=True,
        conversion=conversion,
        terminating=_is_true(crd.get("status") or {}, "Terminating"),
        warning=_deprecation(crd, version, names["kind"]),
        subresources=(scale.subresource(paths),) if paths else (),
    )


def _deprecation(crd: Json, version: Json, kind: str) -> str:
    """What clients of a deprecated version are told; by default the best version that is none."""
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


def _selectable(fields: Iterable[Json]) -> tuple[str, ...]:
    return tuple(".".join(simple_keys(field["jsonPath"])) for field in fields)
