"""Field managers of a Secret, read from its `metadata.managedFields`.

Source: Kubernetes documentation, "Server-Side Apply" (field management); KEP-555.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from certwright.kube.api.core import ManagedFields, Secret
from certwright.resources import names

_APPLY = "Apply"


class Part(NamedTuple):
    """One entry of a Secret: `data`, `labels` or `annotations`, and its key; `ownerReferences` and a UID."""

    section: str
    key: str

    def __str__(self) -> str:
        return (
            f"{self.section}[{self.key}]"
            if self.section == "data"
            else f"metadata.{self.section}[{self.key}]"
        )


Parts = frozenset[Part]
_SECTIONS = ("labels", "annotations", "ownerReferences")


def parts(
    *,
    data: Iterable[str] = (),
    labels: Iterable[str] = (),
    annotations: Iterable[str] = (),
    owners: Iterable[str] = (),
) -> Parts:
    """The parts with these keys; `owners` are UIDs."""
    sections = {"data": data, "labels": labels, "annotations": annotations, "ownerReferences": owners}
    return frozenset(Part(section, key) for section, keys in sections.items() for key in keys)


def owned_by_us(secret: Secret) -> Parts:
    """What we have applied to the Secret, and no other manager has taken over since."""
    entries = (e for e in secret.metadata.managed_fields if _is_ours(e))
    return frozenset().union(*(_parts(e) for e in entries))


def lacking(secret: Secret, asked: Parts) -> Parts:
    """Those of these parts that we have not set. None where there are no entries, because an API server
    without managed fields would be asked for ever."""
    return asked - owned_by_us(secret) if asked and secret.metadata.managed_fields else frozenset()


def others_that_set(secret: Secret, parts: Parts) -> tuple[str, ...]:
    """The names of the other managers that own one of these parts, in order of names."""
    entries = (e for e in secret.metadata.managed_fields if not _is_ours(e))
    return tuple(sorted({e.manager or "unnamed" for e in entries if _parts(e) & parts}))


def _is_ours(entry: ManagedFields) -> bool:
    return entry.manager == names.SECRET_FIELD_MANAGER and entry.operation == _APPLY


def _parts(entry: ManagedFields) -> Parts:
    return _read(bytes(entry.fields_v1)) if entry.fields_v1 is not None else frozenset()


@lru_cache(maxsize=1024)
def _read(fields: bytes) -> Parts:
    tree = msgspec.json.decode(fields)
    if not isinstance(tree, dict):
        return frozenset()
    meta = _below(tree, "metadata")
    owned = {Part("data", key) for key in _names(_below(tree, "data"))}
    for section in _SECTIONS:
        owned |= {Part(section, key) for key in _names(_below(meta, section))}
    return frozenset(owned)


def _below(tree: dict[str, Any], name: str) -> dict[str, Any]:
    below = tree.get(f"f:{name}")
    return below if isinstance(below, dict) else {}


def _names(tree: dict[str, Any]) -> list[str]:
    """Keys of a map (`f:name`), and UIDs of a list of owner references (`k:{"uid":"…"}`)."""
    plain = [key[2:] for key in tree if key.startswith("f:")]
    keyed = [msgspec.json.decode(key[2:]) for key in tree if key.startswith("k:")]
    return plain + [str(key["uid"]) for key in keyed if isinstance(key, dict) and "uid" in key]
