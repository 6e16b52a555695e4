"""Aggregated ClusterRoles: those with an `aggregationRule` get the rules of all roles that it selects.

Source: Kubernetes documentation, "Using RBAC Authorization", aggregated ClusterRoles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from certwright.kube.apiserver.background.worker import Worker
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.requests.selectors import Requirement, labels_match, selector_of
from certwright.kube.store.contract import Key, Row

BUCKET = "rbac.authorization.k8s.io/clusterroles"

Selector = tuple[Requirement, ...]


class Selectors:
    """Label selectors of which one must match; each is indexed by a label that it requires."""

    def __init__(self, given: Iterable[Selector]) -> None:
        self._by_label: dict[tuple[str, str | None], list[Selector]] = {}  # None: more than one value matches
        self._others: list[Selector] = []
        for selector in given:
            needed = next((term for term in selector if term.operator in ("in", "exists")), None)
            if needed is None:
                self._others.append(selector)
                continue
            value = next(iter(needed.values)) if len(needed.values) == 1 else None
            self._by_label.setdefault((needed.key, value), []).append(selector)

    def near(self, labels: Mapping[str, str]) -> Iterator[Selector]:
        """The selectors that may match."""
        yield from self._others
        for key, value in labels.items():
            yield from self._by_label.get((key, value), ())
            yield from self._by_label.get((key, None), ())

    def match(self, labels: Mapping[str, str]) -> bool:
        """Whether one matches."""
        return any(labels_match(selector, labels) for selector in self.near(labels))


class Aggregation:
    """Aggregation controller: indexes the labels of all ClusterRoles, and writes the aggregated ones."""

    observed_buckets = (BUCKET,)

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._labels: dict[str, dict[str, str]] = {}
        self._selectors: dict[str, Selectors] = {}
        self.worker = Worker(backend, "rules of ClusterRoles", self._collect)

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Record the ClusterRole, and mark the roles that aggregate it."""
        name = row.key.name
        self._touch(name)
        self._labels.pop(name, None)
        if labels := objects.labels_of(row.meta):
            self._labels[name] = labels
        self._selectors.pop(name, None)
        if b'"aggregationRule"' in row.body:
            rule = objects.to_object(definition, row).get("aggregationRule") or {}
            given = rule.get("clusterRoleSelectors") or ()
            self._selectors[name] = Selectors(map(selector_of, given))
            self.worker.add(name)
        self._touch(name)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Forget a ClusterRole."""
        self._touch(row.key.name)
        self._labels.pop(row.key.name, None)
        self._selectors.pop(row.key.name, None)

    def _touch(self, name: str) -> None:
        """Mark the roles that select the recorded ClusterRole."""
        labels = self._labels.get(name)
        if labels:
            for other, selectors in self._selectors.items():
                if other != name and selectors.match(labels):
                    self.worker.add(other)

    async def load(self) -> None:
        """Read the stored ClusterRoles, once, when the server starts."""
        await self._backend.replay(self, self.observed_buckets)

    def _definition(self) -> ResourceDefinition | None:
        return self._backend.registry.by_kind("rbac.authorization.k8s.io", "ClusterRole")

    async def _collect(self, name: str) -> None:
        selectors, definition = self._selectors.get(name), self._definition()
        row = await self._backend.readable(Key(BUCKET, "", name))
        if selectors is None or definition is None or row is None:
            return
        rules = await self._rules(definition, name, selectors)
        obj = objects.to_object(definition, row)
        if (obj.get("rules") or []) == rules:
            return
        obj["rules"] = rules
        await self._backend.put(definition, row.key, objects.columns(obj), previous=row)

    async def _rules(self, definition: ResourceDefinition, name: str, selectors: Selectors) -> list[Json]:
        """The rules of all selected roles, without duplicates, in the order of the roles' names."""
        rules: dict[bytes, Json] = {}
        for other in sorted(self._labels):
            if other == name or not selectors.match(self._labels[other]):
                continue
            row = await self._backend.readable(Key(BUCKET, "", other))
            for rule in (objects.to_object(definition, row).get("rules") or ()) if row is not None else ():
                rules.setdefault(objects.encode_json(rule), rule)
        return list(rules.values())
