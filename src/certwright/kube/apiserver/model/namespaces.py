"""Namespace lifecycle checks: whether a namespace exists and accepts new objects."""

from __future__ import annotations

import msgspec

from certwright.kube.api.errors import Cause, Details, Forbidden, NotFound
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.store.contract import Key, Row, Store
from certwright.kube.util.decoders import json_decoder

BUCKET = "namespaces"
BOOTSTRAP = ("default", "kube-system", "kube-public", "kube-node-lease")
IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
"""Namespaces that can never be deleted (admission plug-in NamespaceLifecycle)."""


class _Deletion(msgspec.Struct, rename="camel"):
    deletion_timestamp: str | None = None


def is_terminating(row: Row) -> bool:
    """Whether the object is being deleted."""
    return b'"deletionTimestamp"' in row.meta and bool(
        json_decoder(_Deletion).decode(row.meta).deletion_timestamp
    )


class Namespaces:
    """A cache of the active namespaces, so that a create need not read its namespace every time."""

    observed_buckets = (BUCKET,)

    def __init__(self, store: Store) -> None:
        self._store = store
        self._active: set[str] = set()

    async def check_create(self, definition: ResourceDefinition, namespace: str, name: str) -> None:
        """Raise `NotFound` for a missing namespace, `Forbidden` for a terminating one."""
        if namespace in self._active:
            return
        row = await self._store.latest(Key(BUCKET, "", namespace))
        if row is None:
            raise NotFound(
                f'namespaces "{namespace}" not found', details=Details(name=namespace, kind="namespaces")
            )
        if is_terminating(row):
            raise _terminating(definition, namespace, name)
        self._active.add(namespace)

    def wrote(self, _definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Forget a terminating namespace."""
        if is_terminating(row):
            self._active.discard(row.key.name)

    def removed(self, _definition: ResourceDefinition, row: Row) -> None:
        """Forget a deleted namespace."""
        self._active.discard(row.key.name)


def _terminating(definition: ResourceDefinition, namespace: str, name: str) -> Forbidden:
    cause = Cause(
        reason="NamespaceTerminating",
        message=f"namespace {namespace} is being terminated",
        field="metadata.namespace",
    )
    return Forbidden(
        f'{definition.resource} "{name}" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated",
        details=Details(name=name, group=definition.group, kind=definition.plural, causes=(cause,)),
    )
