"""Objects that the server itself maintains: APIServices, aggregated ClusterRoles, contents of namespaces.

APIServices list the groups and versions of this server, and that these are available: the built-in ones are
created when the server starts, those of custom resources are created and deleted with their definitions.
Other APIServices, for aggregated servers, are left alone. ClusterRoles with an `aggregationRule` get the
rules of all roles that it selects. Every namespace has the ServiceAccount `default` and the ConfigMap with
the root CA; `kube-system` also has the ConfigMap by which aggregated servers know the proxy of this one.

Source: Kubernetes API reference, APIService v1 apiregistration; kube-aggregator
`pkg/controllers/autoregister`; Kubernetes documentation, "Using RBAC Authorization", aggregated ClusterRoles,
"Managing Service Accounts" (ServiceAccount controller); kube-controller-manager's root CA certificate
publisher; kube-apiserver `pkg/controlplane/controller/clusterauthenticationtrust`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import Certificate, load_pem_x509_certificates

from certwright.kube.api.errors import ApiError, from_response
from certwright.kube.apiserver.background.worker import OwnClient, Worker
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.crds.controllers import BUCKET as CRDS
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import NAMESPACES, Backend, in_batches, is_terminating
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import decode_json, encode_json
from certwright.kube.apiserver.requests.selectors import Requirement, labels_match, selector_of
from certwright.kube.store.contract import DamagedRow, Key, Row

_GROUP, _API_SERVICES = "apiregistration.k8s.io", "apiregistration.k8s.io/apiservices"
_PATH = f"/apis/{_GROUP}/v1/apiservices"
_MANAGED = "kube-aggregator.kubernetes.io/automanaged"
_FIRST, _STEP, _BUILT_IN = 18000, 100, 15  # priorities, as Kubernetes gives them
_CUSTOM_GROUP, _CUSTOM_VERSION = 1000, 100
CLUSTER_ROLES = "rbac.authorization.k8s.io/clusterroles"
_ACCOUNTS, _CONFIG_MAPS = "serviceaccounts", "configmaps"
ACCOUNT, ROOT_CA = "default", "kube-root-ca.crt"
_SYSTEM, _TRUST = "kube-system", "extension-apiserver-authentication"
_ROOT_CA_TEXT = "The certificates of the CA that signs this API server's own certificate, to check it by."


class ApiServices:
    """Controller of the APIServices of this server's groups. An observer of writes."""

    observed_buckets = (_API_SERVICES, CRDS)

    def __init__(self, backend: Backend, client: OwnClient) -> None:
        self._backend = backend
        self._client = client
        self.worker = Worker(backend, "APIServices", self._sync)

    def wrote(self, definition: ResourceDefinition, _row: Row, _previous: Row | None) -> None:
        """Request a sync, because a definition adds groups and versions."""
        if definition.is_crd:
            self.worker.add("")

    def removed(self, _definition: ResourceDefinition, _row: Row) -> None:
        """Request a sync: a definition removes groups and versions; a deleted APIService is created again."""
        self.worker.add("")

    async def _sync(self, _: str) -> None:
        """Create missing APIServices, and delete superfluous ones. Raises the last refusal, after all
        writes."""
        stored = {row.key.name: row for row in (await self._backend.store.list(_API_SERVICES)).rows}
        desired = {service["metadata"]["name"]: service for service in self._services()}
        refusal: ApiError | None = None
        for name, service in desired.items():
            if name not in stored:
                refusal = await self._write("POST", _PATH, service) or refusal
        for name, row in stored.items():
            if name not in desired and _MANAGED in objects.labels_of(row.meta):
                refusal = await self._write("DELETE", f"{_PATH}/{name}") or refusal
        if refusal is not None:
            raise refusal

    def _services(self) -> Iterator[Json]:
        registry = self._backend.registry
        for index, group in enumerate(group for group in registry.groups() if group.name != _GROUP):
            custom = all(
                definition.custom
                for version in group.versions
                for definition in registry.in_version(group.name, version)
            )
            priority = _CUSTOM_GROUP if custom else _FIRST - _STEP * index
            for version in group.versions:
                yield {
                    "metadata": {
                        "name": f"{version}.{group.name}",
                        "labels": {_MANAGED: "true" if custom else "onstart"},
                    },
                    "spec": {
                        "group": group.name,
                        "version": version,
                        "groupPriorityMinimum": priority,
                        "versionPriority": _CUSTOM_VERSION if custom else _BUILT_IN,
                    },
                }

    async def _write(self, method: str, path: str, obj: Json | None = None) -> ApiError | None:
        response = await self._client.send(method, path, obj, agent="kube-apiserver")
        if response.status < 400 or response.status in (404, 409):
            return None
        return from_response(response.status, response.body)


Selector = tuple[Requirement, ...]


class Selectors:
    """Label selectors, one of which must match; each is indexed by a label that it requires."""

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
        """Whether any selector matches."""
        return any(labels_match(selector, labels) for selector in self.near(labels))


class RoleAggregation:
    """Aggregation controller: indexes the labels of all ClusterRoles, and writes the aggregated ones."""

    observed_buckets = (CLUSTER_ROLES,)

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

    async def _collect(self, name: str) -> None:
        selectors = self._selectors.get(name)
        definition = self._backend.registry.by_resource("rbac.authorization.k8s.io", "clusterroles")
        row = await self._backend.readable(Key(CLUSTER_ROLES, "", name))
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
            row = await self._backend.readable(Key(CLUSTER_ROLES, "", other))
            for rule in (objects.to_object(definition, row).get("rules") or ()) if row is not None else ():
                rules.setdefault(objects.encode_json(rule), rule)
        return list(rules.values())


_log = logging.getLogger(__name__)


class NamespaceContents:
    """Maintains the default contents of namespaces. `root_ca` is PEM; empty: no ConfigMap is created."""

    observed_buckets = (NAMESPACES, _ACCOUNTS, _CONFIG_MAPS)

    def __init__(self, backend: Backend, client: OwnClient, root_ca: str) -> None:
        self._backend = backend
        self._client = client
        self.root_ca = root_ca
        self._trust: Mapping[str, str] = {}
        self._replaces_trust = False
        self.worker = Worker(backend, "contents of namespaces", self._fill)

    def trust(self, settings: Mapping[str, str]) -> None:
        """Publish `settings` for aggregated servers, in place of what is published."""
        self._trust, self._replaces_trust = settings, True
        self.worker.add(_SYSTEM)

    def wrote(self, definition: ResourceDefinition, row: Row, previous: Row | None) -> None:
        """Fill a new namespace; restore a changed CA."""
        if previous is None:
            if definition.bucket == NAMESPACES:
                self.worker.add(row.key.name)
        elif definition.bucket == _CONFIG_MAPS and self._is_kept(row.key) and row.body != previous.body:
            self.worker.add(row.key.namespace)

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Create deleted contents again."""
        if (definition.bucket, row.key.name) == (_ACCOUNTS, ACCOUNT) or self._is_kept(row.key):
            self.worker.add(row.key.namespace)

    @staticmethod
    def _is_kept(key: Key) -> bool:
        return key.bucket == _CONFIG_MAPS and (
            key.name == ROOT_CA or (key.namespace, key.name) == (_SYSTEM, _TRUST)
        )

    async def fill_all(self) -> None:
        """Check every existing namespace, once, when the server starts."""
        async for rows in self._backend.pages(NAMESPACES, meta_only=True):
            await in_batches(self._fill, [row.key.name for row in rows])

    async def _fill(self, namespace: str) -> None:
        with suppress(DamagedRow):  # which the store has reported; it is not overwritten
            there = await self._backend.store.latest(Key(NAMESPACES, "", namespace))
            if there is None or is_terminating(there):
                return
            root = f"/api/v1/namespaces/{namespace}"
            if await self._backend.store.latest(Key(_ACCOUNTS, namespace, ACCOUNT)) is None:
                await self._write("POST", f"{root}/{_ACCOUNTS}", {"metadata": {"name": ACCOUNT}})
            if self.root_ca:
                await self._publish(namespace, f"{root}/{_CONFIG_MAPS}")
            if self._trust and namespace == _SYSTEM:
                await self._publish_trust(f"{root}/{_CONFIG_MAPS}")

    async def _publish(self, namespace: str, path: str) -> None:
        row = await self._backend.store.latest(Key(_CONFIG_MAPS, namespace, ROOT_CA))
        data = {"ca.crt": self.root_ca}
        if row is None or encode_json(data) not in row.body:
            notes = {"kubernetes.io/description": _ROOT_CA_TEXT}
            await self._write_config_map(path, row, data, name=ROOT_CA, annotations=notes)

    async def _publish_trust(self, path: str) -> None:
        row = await self._backend.store.latest(Key(_CONFIG_MAPS, _SYSTEM, _TRUST))
        stored = {} if row is None else decode_json(b"{%b}" % row.body).get("data") or {}
        # At its start a server replaces the CAs of before. Servers on one store that have different CAs at
        # the moment keep each other's.
        data = dict(self._trust) if self._replaces_trust else self._with_own(stored)
        if row is None or data != stored:
            await self._write_config_map(path, row, data, name=_TRUST)
        self._replaces_trust = False

    async def _write_config_map(self, path: str, row: Row | None, data: Json, **metadata: Any) -> None:
        method, target = ("POST", path) if row is None else ("PUT", f"{path}/{row.key.name}")
        await self._write(method, target, {"metadata": metadata, "data": data})

    def _with_own(self, stored: Json) -> Json:
        """The stored settings, with this server's CAs added to those that have not expired."""
        now, data = self._backend.clock.now(), dict(self._trust)
        for name in (name for name in data if name.endswith("ca-file")):
            own, others = _certificates(data[name]), _certificates(stored.get(name, ""))
            if set(own) <= set(others):
                data[name] = stored[name]
                continue
            kept = [certificate for certificate in others if certificate.not_valid_after_utc > now]
            pems = [certificate.public_bytes(Encoding.PEM) for certificate in dict.fromkeys((*kept, *own))]
            data[name] = b"".join(pems).decode()
        return data

    async def _write(self, method: str, path: str, obj: Json) -> None:
        response = await self._client.send(method, path, obj)
        # The namespace may have been deleted since, or another server may have written first.
        if response.status >= 400 and response.status not in (403, 404, 409):
            _log.warning("%s %s: %s", method, path, response.body.decode(errors="replace"))


def _certificates(pem: str) -> list[Certificate]:
    """The certificates in a text; none if one of them cannot be read."""
    try:
        return load_pem_x509_certificates(pem.encode())
    except ValueError:
        return []
