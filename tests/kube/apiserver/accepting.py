"""What the controllers make of a CustomResourceDefinition, without a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from certwright.kube.apiserver.crds import status as crd_status
from certwright.kube.apiserver.crds.status import Taken
from certwright.kube.apiserver.model.registry import Registry

Json = dict[str, Any]


def accept(crd: Json, others: Iterable[Json] = (), now: str = "2026-01-01T00:00:00Z") -> None:
    """Write into the status what the controllers have to say; `others` are the definitions of its group."""
    names = [other["status"]["acceptedNames"] for other in others]
    words = {word for entry in names for word in (entry["plural"], entry["singular"])}
    taken = Taken(words, {kind for entry in names for kind in (entry["kind"], entry["listKind"])})
    while status := crd_status.with_names(crd, taken, now) or crd_status.with_established(crd, now):
        crd["status"] = status


def serve(registry: Registry, crd: Json) -> None:
    """Serve what a definition that was written describes."""
    kind = registry.by_kind("apiextensions.k8s.io", "CustomResourceDefinition")
    assert kind is not None
    kind.schema.process(crd)
    kind.strategy.prepare_create(crd)
    accept(crd)
    registry.put_crd(crd)
