"""Status of a CustomResourceDefinition: accepted names, and conditions.

Kubernetes writes it in steps, each by a separate controller; so do these functions, which return the next
status, or None where a controller changes nothing.

Not implemented: the condition NonStructuralSchema, which only definitions from before apiextensions.k8s.io/v1
have.

Source: apiextensions-apiserver `pkg/controller/status`, `pkg/controller/establish`,
`pkg/controller/apiapproval`; Kubernetes API reference, CustomResourceDefinitionStatus v1.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.util.encoding import quoted

APPROVAL = "api-approved.kubernetes.io"
"""The annotation that links the approval of an API in one of Kubernetes' groups."""
_CONFORMANT = "KubernetesAPIApprovalPolicyConformant"
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


class Taken(NamedTuple):
    """The accepted names of the definitions of a group."""

    words: Collection[str]
    kinds: Collection[str]


def is_true(crd: Json, kind: str) -> bool:
    """Whether a condition exists and is true."""
    return _is(crd.get("status") or {}, kind, "True")


def _is(status: Json, kind: str, value: str) -> bool:
    condition = _condition(status, kind)
    return condition is not None and condition["status"] == value


def _condition(status: Json, kind: str) -> Json | None:
    return next(
        (condition for condition in status.get("conditions") or () if condition["type"] == kind), None
    )


def initial(stored: list[str]) -> Json:
    """The status of a new definition."""
    return {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": stored}


def storage_version(crd: Json) -> str | None:
    """The version that objects are stored in; None where none is marked."""
    return next(
        (version["name"] for version in crd["spec"].get("versions") or () if version["storage"]), None
    )


# --- names ------------------------------------------------------------------------------------------------


def with_names(crd: Json, taken: Taken, now: str) -> Json | None:
    """The status with the accepted names."""
    status, requested = crd["status"], crd["spec"]["names"]
    if requested == status["acceptedNames"]:
        return None
    accepted, condition = _accept(requested, status["acceptedNames"], taken)
    if accepted == status["acceptedNames"] and _has_condition(status, condition):
        return None
    established = _condition(status, "Established")
    if established is None or established["status"] != "True":
        if condition["status"] == "True":
            established = _made("Established", "False", "Installing", "the initial names have been accepted")
        elif established is None:
            established = _made("Established", "False", "NotAccepted", "not all names are accepted")
    changed = {**status, "acceptedNames": accepted}
    return _with(_with(changed, condition, now), established, now)


def _accept(requested: Json, before: Json, taken: Taken) -> tuple[Json, Json]:
    accepted, conflict = dict(before), ("", "")
    for field, reason, used in (
        ("plural", "PluralConflict", taken.words),
        ("singular", "SingularConflict", taken.words),
        ("shortNames", "ShortNamesConflict", taken.words),
        ("kind", "KindConflict", taken.kinds),
        ("listKind", "ListKindConflict", taken.kinds),
    ):
        wanted, ours = (
            names if isinstance(names, list) else [names or ""]
            for names in (requested.get(field), before.get(field))
        )
        if clashes := [name for name in dict.fromkeys(wanted) if name in used and name not in ours]:
            texts = [f"{quoted(name)} is already in use" for name in clashes]
            conflict = (reason, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        else:
            _put(accepted, field, requested.get(field))
    _put(accepted, "categories", requested.get("categories"))
    if conflict[0]:
        return accepted, _made("NamesAccepted", "False", *conflict)
    return accepted, _made("NamesAccepted", "True", "NoConflicts", "no conflicts found")


def _put(names: Json, field: str, value: Any) -> None:
    if value:
        names[field] = value
    else:
        names.pop(field, None)


# --- established, approved, terminating -------------------------------------------------------------------


def with_established(crd: Json, now: str) -> Json | None:
    """The status of a definition whose names are accepted, once it is served."""
    status = crd["status"]
    if not _is(status, "NamesAccepted", "True") or _is(status, "Established", "True"):
        return None
    text = "the initial names have been accepted"
    return _with(status, _made("Established", "True", "InitialNamesAccepted", text), now)


def with_approval(crd: Json, now: str) -> Json | None:
    """The status with the approval of an API in one of Kubernetes' groups."""
    if not is_protected(crd["spec"]["group"]):
        return None
    value = (crd["metadata"].get("annotations") or {}).get(APPROVAL) or ""
    reason, text = approval(value)
    condition = _made(_CONFORMANT, "True" if reason == "ApprovedAnnotation" else "False", reason, text)
    status: Json = crd["status"]
    return None if _has_condition(status, condition) else _with(status, condition, now)


def is_protected(group: str) -> bool:
    """Whether a group belongs to Kubernetes."""
    return group in ("k8s.io", "kubernetes.io") or group.endswith((".k8s.io", ".kubernetes.io"))


def approval(annotation: str) -> tuple[str, str]:
    """Reason and message for the annotation's value."""
    must = f'protected groups must have approval annotation "{APPROVAL}"'
    if not annotation:
        return "MissingAnnotation", f"{must}, {_SEE}"
    if annotation.startswith("unapproved"):
        return "UnapprovedAnnotation", f"not approved: {quoted(annotation)}"
    parts = urlsplit(annotation)
    if parts.scheme and parts.netloc:
        return "ApprovedAnnotation", f"approved in {annotation}"
    return (
        "InvalidAnnotation",
        f'{must} with either a URL or a reason starting with "unapproved", {_SEE}',
    )


def mark_pending(crd: Json, now: str) -> None:
    """Report the pending deletion of a definition's objects."""
    text = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    crd["status"] = _with(crd["status"], _made("Terminating", "True", "InstanceDeletionPending", text), now)


def with_deletion(crd: Json, now: str) -> Json:
    """The status of a definition whose objects are being deleted."""
    text = "CustomResource deletion is in progress"
    return _with(crd["status"], _made("Terminating", "True", "InstanceDeletionInProgress", text), now)


def with_deleted(crd: Json, now: str) -> Json:
    """The status of a definition whose objects are gone."""
    if is_true(crd, "Established"):
        condition = _made("Terminating", "False", "InstanceDeletionCompleted", "removed all instances")
    else:
        condition = _made("Terminating", "False", "NeverEstablished", "resource was never established")
    return _with(crd["status"], condition, now)


# --- conditions -------------------------------------------------------------------------------------------


def _made(kind: str, status: str, reason: str, message: str) -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def _has_condition(status: Json, condition: Json) -> bool:
    current = _condition(status, condition["type"])
    return current is not None and all(current.get(name, "") == value for name, value in condition.items())


def _with(status: Json, condition: Json, now: str) -> Json:
    """The status with a condition, whose transition time changes with its value."""
    conditions, kind = list(status.get("conditions") or ()), condition["type"]
    for index, existing in enumerate(conditions):
        if existing["type"] == kind:
            since = existing.get("lastTransitionTime") if existing["status"] == condition["status"] else None
            conditions[index] = {**condition, "lastTransitionTime": since or now}
            break
    else:
        conditions.append({**condition, "lastTransitionTime": now})
    return {**status, "conditions": conditions}
