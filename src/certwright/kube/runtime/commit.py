"""Commit the result of a reconcile: one status, one patch, or nothing.

A reconcile changes a copy; only the difference is sent, so that fields unknown to this program survive.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

import msgspec

from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client


class WithStatus(Protocol):
    """A struct with the three parts that every reconciled object has."""

    @property
    def metadata(self) -> ObjectMeta:
        """Metadata."""

    @property
    def spec(self) -> Any:
        """The desired state."""

    @property
    def status(self) -> Any:
        """The observed state."""


T = TypeVar("T", bound=WithStatus)


class SpecAndStatus(TypeError):
    """A status was to be written, but spec or metadata differ too: that change would be lost silently."""


def merge_patch(old: Any, new: Any) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) from `old` to `new`; empty if they are equal.

    Both are objects of JSON values (as `msgspec.to_builtins` returns them). A field that `new` lacks becomes
    null; lists are replaced whole. A null inside `new` counts as lacking, because a merge patch cannot write
    it.
    """
    patch: dict[str, Any] = {name: None for name in old if new.get(name) is None and old[name] is not None}
    for name, value in new.items():
        before = old.get(name)
        if value is None or before == value:
            continue
        patch[name] = value
        if isinstance(value, dict):
            is_dict = isinstance(before, dict)
            patch[name] = merge_patch(before if is_dict else {}, value)
            # Where there was no object, an empty patch still makes one.
            if is_dict and not patch[name]:
                del patch[name]
    return patch


class StatusWriter(Generic[T]):
    """Writes statuses, and stores the result in the informer, so that the next reconcile sees it."""

    def __init__(self, client: Client, informer: Informer[T]) -> None:
        self._client = client
        self._informer = informer

    async def commit(self, kind: Kind[T], old: T, new: T) -> T:
        """Write the status of `new` to the object read as `old`, and return the updated object.

        Nothing is sent when they are equal. Raises `Conflict` when the object is no longer at the
        resourceVersion of `old`, other `ApiError`s, `Unreachable`, and `SpecAndStatus` when spec or metadata
        differ as well.
        """
        if new is old:
            return old
        if new.spec != old.spec or new.metadata != old.metadata:
            raise SpecAndStatus(f"{kind.kind} {old.metadata.key}: only its status may differ here")
        if new.status == old.status:
            return old
        change = merge_patch(msgspec.to_builtins(old.status), msgspec.to_builtins(new.status))
        if not change:
            return old
        patch = {"metadata": {"resourceVersion": old.metadata.resource_version}, "status": change}
        meta = old.metadata
        written = await self._client.patch(kind, meta.name, meta.namespace, patch, subresource="status")
        self._informer.put(written)
        return written
