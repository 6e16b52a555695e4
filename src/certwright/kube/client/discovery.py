"""API discovery: the kinds of a server, and the kind that a word means.

Source: Kubernetes API concepts, "API Discovery"; API reference, APIGroupList, APIResourceList.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator
from typing import Any

import msgspec

from certwright.kube.api.errors import ApiError, NotFound, Unreachable
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import whole_body
from certwright.kube.util.decoders import json_decoder

DictKind = Kind[dict[str, Any]]


class UnknownKind(LookupError):
    """The server has no kind of that name. The text is one sentence, with a suggestion."""


class _GroupVersion(msgspec.Struct, rename="camel"):
    group_version: str = ""
    version: str = ""


class _Group(msgspec.Struct, rename="camel"):
    name: str = ""
    versions: list[_GroupVersion] | None = None
    preferred_version: _GroupVersion | None = None


class _Groups(msgspec.Struct):
    groups: list[_Group] | None = None


class _Resource(msgspec.Struct, rename="camel"):
    name: str
    kind: str = ""
    singular_name: str = ""
    namespaced: bool = False
    group: str = ""
    version: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _Resources(msgspec.Struct):
    resources: list[_Resource] | None = None


async def all_resources(client: Client) -> list[DictKind]:
    """Every kind of the server, each in its group's preferred version, the core group first.

    An unavailable group (its aggregated API server is down) is left out. Raises `ApiError`, `Unreachable`.
    """
    groups, core = await asyncio.gather(_groups(client), _resources(client, "v1"))
    asked = [group.preferred_version or _GroupVersion() for group in groups]
    names = [preferred.group_version for preferred in asked if preferred.group_version]
    found = await asyncio.gather(*(_resources_or_none(client, name) for name in names))
    return [*core, *(kind for kinds in found for kind in kinds)]


async def resolve(client: Client, word: str) -> DictKind:
    """The kind that `word` means: its plural, singular, short name or kind, in upper or lower case, or
    `plural.group` (any of these with a group; also `plural.version.group`).

    Raises `UnknownKind`, `ApiError`, `Unreachable`.
    """
    kinds = await all_resources(client)
    wanted = word.lower()
    for matches in (_is_named, _is_short_for):
        for kind in kinds:
            if matches(kind, wanted):
                return kind
    name, _, rest = wanted.partition(".")
    version, _, group = rest.partition(".")
    if group:
        for kind in await _of_version(client, f"{group}/{version}"):
            if name in _names(kind):
                return kind
    raise UnknownKind(f'the server has no kind "{word}"{_hint(wanted, kinds)}')


async def kind_for(client: Client, api_version: str, kind: str) -> DictKind:
    """The kind that a manifest names. Raises `UnknownKind`, `ApiError`, `Unreachable`."""
    found = await _of_version(client, api_version)
    for candidate in found:
        if candidate.kind == kind:
            return candidate
    close = difflib.get_close_matches(kind, [candidate.kind for candidate in found], n=1)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    if not found:
        hint = await _version_hint(client, api_version)
    raise UnknownKind(f'the server has no kind "{kind}" in {api_version}{hint}')


async def _version_hint(client: Client, api_version: str) -> str:
    versions = [version.group_version for group in await _groups(client) for version in group.versions or ()]
    close = difflib.get_close_matches(api_version, ["v1", *versions], n=1)
    return f', nor anything else of that version; did you mean "{close[0]}"?' if close else ""


async def _of_version(client: Client, api_version: str) -> list[DictKind]:
    try:
        return await _resources(client, api_version)
    except NotFound:
        return []


async def _groups(client: Client) -> list[_Group]:
    body = await whole_body(await client.raw("GET", "/apis"))
    return _decode(body, _Groups).groups or []


async def _resources_or_none(client: Client, api_version: str) -> list[DictKind]:
    try:
        return await _resources(client, api_version)
    except ApiError:
        return []


async def _resources(client: Client, api_version: str) -> list[DictKind]:
    path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    body = await whole_body(await client.raw("GET", path))
    group, _, version = api_version.rpartition("/")
    # Names with a slash are subresources.
    return [
        _kind(resource, group, version)
        for resource in _decode(body, _Resources).resources or ()
        if "/" not in resource.name
    ]


def _decode(body: bytes, type_: type[Any]) -> Any:
    try:
        return json_decoder(type_).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreachable(f"the server's answer to discovery is not understood: {error}") from None


def _kind(resource: _Resource, group: str, version: str) -> DictKind:
    return Kind(
        resource.group or group,
        resource.version or version,
        resource.kind,
        resource.name,
        resource.singular_name or resource.kind.lower(),
        resource.namespaced,
        dict,
        tuple(resource.short_names or ()),
        tuple(resource.categories or ()),
    )


def _names(kind: DictKind) -> tuple[str, ...]:
    return (kind.plural, kind.singular, kind.kind.lower())


def _is_named(kind: DictKind, word: str) -> bool:
    name, _, group = word.partition(".")
    return name in _names(kind) and group in ("", kind.group, f"{kind.version}.{kind.group}")


def _is_short_for(kind: DictKind, word: str) -> bool:
    name, _, group = word.partition(".")
    return name in kind.short_names and group in ("", kind.group)


def _words(kinds: list[DictKind]) -> Iterator[str]:
    for kind in kinds:
        yield from (kind.singular, kind.plural, f"{kind.plural}.{kind.group}")


def _hint(word: str, kinds: list[DictKind]) -> str:
    close = difflib.get_close_matches(word, list(_words(kinds)), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
