"""List responses and their items.

Source: Kubernetes API concepts, "Collections", "Retrieving large results sets in chunks".
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from certwright.kube.api import codec
from certwright.kube.api.errors import NoApi
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.util.decoders import json_decoder

T = TypeVar("T")

PAGE = 500
"""Default number of objects in a page, as in kubectl and client-go."""
FIRST_PAGE = 20
"""Number of whole objects in the first page, while their size is unknown."""

PAGE_BYTES = 2_000_000
"""Target size of a page: the response and its objects are in memory at the same time."""


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """A whole list, and the revision at which a watch continues."""

    items: list[T]
    resource_version: str


class RawPage(msgspec.Struct, frozen=True):
    """A page of a list, its objects not decoded. `continue_token` is empty on the last one; `size` is the
    response's size in bytes."""

    items: list[msgspec.Raw]
    resource_version: str
    continue_token: str
    size: int = 0


def next_limit(limit: int, size: int, most: int = PAGE) -> int:
    """The limit of the next page, given the size in bytes of a page with `limit` objects; 0: no limit."""
    return limit and max(min(limit * PAGE_BYTES // (size or 1), most), 1)


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _ListBody(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)
    items: list[msgspec.Raw] | None = None


_LISTS = json_decoder(_ListBody)


def read_page(kind: AnyKind, body: bytes) -> RawPage:
    """The page in a response. Raises `NoApi` when it has none."""
    try:
        page = _LISTS.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NoApi(f"{kind.resource}: the answer is not a list ({error})") from None
    return RawPage(page.items or [], page.metadata.resource_version, page.metadata.continue_, len(body))


def decode_item(kind: Kind[T], raw: msgspec.Raw) -> T:
    """One object of a list. Raises `codec.DecodeError`."""
    obj = codec.decode(kind, raw)
    if isinstance(obj, dict):
        # Items of built-in kinds lack these fields, because the list has them.
        obj.setdefault("apiVersion", kind.api_version)
        obj.setdefault("kind", kind.kind)
    return obj
