"""Garbage collector Events: warnings about owner references that can never be valid.

Source: Kubernetes documentation, "Owners and Dependents" (reason `OwnerRefInvalidNamespace`).
"""

from __future__ import annotations

from contextlib import suppress

from certwright.kube.api import naming
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.model import objects
from certwright.kube.apiserver.model.backend import Backend
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.objects import Owner
from certwright.kube.store.contract import Exists, Key, Row

_COMPONENT = "garbage-collector-controller"
_REMEMBERED = 1000
_MOST_NAMESPACES = 16


class OwnerWarnings:
    """Writes one Event for each owner reference to an object of another namespace."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._reported: dict[tuple[Key, str], None] = {}

    async def check(
        self, definition: ResourceDefinition, row: Row, owner: Owner, namespaces: set[str]
    ) -> None:
        """Warn where `owner` is in a namespace other than that of the object.

        It is looked up in `namespaces`, where its other dependents are, because a lookup in all of them would
        cost too much.
        """
        kind = self._backend.registry.by_kind(owner.group, owner.kind)
        if kind is None or kind.virtual or not kind.namespaced or (row.key, owner.uid) in self._reported:
            return
        if row.key.namespace and not await self._is_elsewhere(kind, row, owner, namespaces):
            return
        while len(self._reported) >= _REMEMBERED:
            del self._reported[next(iter(self._reported))]
        self._reported[row.key, owner.uid] = None
        await self._write(definition, row, self._text(row, owner))

    async def _is_elsewhere(
        self, kind: ResourceDefinition, row: Row, owner: Owner, namespaces: set[str]
    ) -> bool:
        for namespace in sorted(namespaces - {row.key.namespace, ""})[:_MOST_NAMESPACES]:
            candidate = await self._backend.readable(Key(kind.bucket, namespace, owner.name))
            if candidate is not None and objects.uid_of(candidate.meta) == owner.uid:
                return True
        return False

    @staticmethod
    def _text(row: Row, owner: Owner) -> str:
        where = row.key.namespace
        named = f"{owner.api_version}/{owner.kind}, namespace: {where}, name: {owner.name}, uid: {owner.uid}"
        head = f"ownerRef [{named}]"
        if not where:
            return f"{head} is namespaced, and the object is not"
        return f'{head} does not exist in namespace "{where}"'

    async def _write(self, definition: ResourceDefinition, row: Row, text: str) -> None:
        backend = self._backend
        event = backend.registry.find("", "v1", "events")
        if event is None:
            return
        now, namespace = backend.timestamp(), row.key.namespace or "default"
        name = f"{row.key.name}.{naming.new_uid()[:8]}"
        about = {
            "kind": definition.kind,
            "namespace": row.key.namespace,
            "name": row.key.name,
            "uid": objects.uid_of(row.meta),
            "apiVersion": definition.api_version,
            "resourceVersion": str(row.revision),
        }
        obj: Json = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": naming.new_uid(),
                "creationTimestamp": now,
            },
            "involvedObject": {key: value for key, value in about.items() if value},
            "reason": "OwnerRefInvalidNamespace",
            "message": text,
            "source": {"component": _COMPONENT},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": "Warning",
            "eventTime": None,
            "reportingComponent": _COMPONENT,
            "reportingInstance": "",
        }
        with suppress(Exists):
            await backend.put(event, Key(event.bucket, namespace, name), objects.columns(obj), previous=None)
