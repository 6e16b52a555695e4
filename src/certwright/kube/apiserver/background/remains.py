"""Conditions of a terminating namespace: the contents that remain in it.

Source: Kubernetes API reference, NamespaceCondition v1 core; what `kubectl describe namespace` shows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import to_metadata
from certwright.kube.store.contract import Row


@dataclass(slots=True)
class Remains:
    """How many objects remain of each resource, and which finalizers keep them."""

    objects: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    refused: bool = False

    def add(self, definition: ResourceDefinition, row: Row) -> None:
        """Count a remaining object."""
        self.objects[f"{definition.plural}.{definition.group}"] += 1
        self.finalizers.update(to_metadata(row).get("finalizers", ()))

    def note_in(self, namespace: Json, now: str) -> bool:
        """Write the namespace's conditions; whether they have changed."""
        status = namespace.setdefault("status", {})
        before = {condition["type"]: condition for condition in status.get("conditions", ())}
        conditions = [_condition(before.get(made["type"]), made, now) for made in self._conditions()]
        if conditions == status.get("conditions"):
            return False
        status["conditions"] = conditions
        return True

    def _conditions(self) -> list[Json]:
        resources = ", ".join(
            f"{name} has {count} resource instances" for name, count in sorted(self.objects.items())
        )
        finalizers = ", ".join(
            f"{name} in {count} resource instances" for name, count in sorted(self.finalizers.items())
        )
        return [
            _made("DiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
            _made(
                "GroupVersionParsingFailure",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            _made(
                "ContentFailure",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            _true_condition(
                "NamespaceContentRemaining",
                "SomeResourcesRemain",
                f"Some resources are remaining: {resources}",
            )
            if resources
            else _false_condition(
                "NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"
            ),
            _true_condition(
                "NamespaceFinalizersRemaining",
                "SomeFinalizersRemain",
                f"Some content in the namespace has finalizers remaining: {finalizers}",
            )
            if finalizers
            else _false_condition(
                "NamespaceFinalizersRemaining",
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ]


def _made(failure: str, reason: str, message: str) -> Json:
    return _false_condition(f"NamespaceDeletion{failure}", reason, message)


def _false_condition(type_: str, reason: str, message: str) -> Json:
    return {"type": type_, "status": "False", "reason": reason, "message": message}


def _true_condition(type_: str, reason: str, message: str) -> Json:
    return {"type": type_, "status": "True", "reason": reason, "message": message}


def _condition(before: Json | None, made: Json, now: str) -> Json:
    """The condition with its transition time."""
    same = before is not None and before.get("status") == made["status"]
    return {**made, "lastTransitionTime": (before or {}).get("lastTransitionTime", now) if same else now}
