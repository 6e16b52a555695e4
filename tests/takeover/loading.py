"""Puts objects into a store as they are: with their UIDs, times, owners and managed fields.

Through the API they would get new ones, and the requests another user: the loader's.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from certwright.kube.apiserver.model.objects import columns
from certwright.kube.store.contract import Key
from certwright.kube.store.memory import MemoryStore

Json = dict[str, Any]
_IRREGULAR = {"Ingress": "ingresses"}


async def store_of(objects: Iterable[Json]) -> MemoryStore:
    """A store that holds these objects, as if it had been restored from a backup."""
    store = MemoryStore()
    for manifest in objects:
        obj = deepcopy(manifest)
        group = obj["apiVersion"].rpartition("/")[0]
        plural = _IRREGULAR.get(obj["kind"], f"{obj['kind'].lower()}s")
        metadata = obj["metadata"]
        key = Key(f"{group}/{plural}" if group else plural, metadata.get("namespace", ""), metadata["name"])
        await store.put(key, columns(obj), expect=0)
    return store
