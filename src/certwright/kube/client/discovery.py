"""API discovery: the kinds of a server, and the kind that a word means.

Source: Kubernetes API concepts, "API Discovery"; API reference, APIGroupList, APIResourceList.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from certwright.kube.api.errors import ApiError, NoApi, NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.http_messages import whole_body

DictKind = Kind[dict[str, Any]]
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


class UnknownKind(LookupError):
    """The server has no kind of that name. The text is one sentence, with a suggestion where a kind has a
    similar name (`is_near`)."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(f"{sentence}{hint}")
        self.is_near = bool(hint)


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


class _ResponseKind(msgspec.Struct):
    group: str = ""
    version: str = ""
    kind: str = ""


class _DiscoveredResource(msgspec.Struct, rename="camel"):
    resource: str
    response_kind: _ResponseKind | None = None
    scope: str = ""
    singular_resource: str = ""
    short_names: list[str] | None = None
    categories: list[str] | None = None


class _DiscoveredVersion(msgspec.Struct):
    version: str = ""
    resources: list[_DiscoveredResource] | None = None


class _DiscoveredName(msgspec.Struct):
    name: str = ""


class _DiscoveredGroup(msgspec.Struct):
    metadata: _DiscoveredName = msgspec.field(default_factory=_DiscoveredName)
    versions: list[_DiscoveredVersion] | None = None


class _Discovered(msgspec.Struct):
    kind: str = ""
    items: list[_DiscoveredGroup] | None = None


async def all_resources(client: Client) -> list[DictKind]:
    """Every kind of the server, each in its group's preferred version, the core group first.

    An unavailable group (its aggregated API server is down) is left out. Raises `ApiError`, `Unreachable`.
    """
    named = await _aggregated(client, "/apis")
    if named is None:
        groups, one_core = await asyncio.gather(_groups(client), _resources(client, "v1"))
        asked = [group.preferred_version or _GroupVersion() for group in groups]
        names = [preferred.group_version for preferred in asked if preferred.group_version]
        lists = await asyncio.gather(*(_resources(client, name) for name in names), return_exceptions=True)
        kinds = one_core
        for answer in lists:
            if not isinstance(answer, BaseException):
                kinds += answer
            elif not isinstance(answer, ApiError):
                raise answer
        return kinds
    # One after the other, on one connection: a second TLS handshake costs more than the round trip.
    core = await _aggregated(client, "/api")
    return [*(await _resources(client, "v1") if core is None else core), *named]


async def _aggregated(client: Client, path: str) -> list[DictKind] | None:
    """The kinds of all groups in one response; None from a server before Kubernetes 1.26."""
    response = await client.raw("GET", path, headers={"accept": _AGGREGATED})
    discovered = _decode(await whole_body(response), _Discovered)
    if discovered.kind != "APIGroupDiscoveryList":
        return None
    preferred = [
        (group.metadata.name, group.versions[0]) for group in discovered.items or () if group.versions
    ]
    return [
        _discovered_kind(resource, group, version.version)
        for group, version in preferred
        for resource in version.resources or ()
    ]


def _discovered_kind(resource: _DiscoveredResource, group: str, version: str) -> DictKind:
    kind = resource.response_kind or _ResponseKind()
    return Kind(
        group,
        version,
        kind.kind,
        resource.resource,
        resource.singular_resource or kind.kind.lower(),
        resource.scope == "Namespaced",
        dict,
        tuple(resource.short_names or ()),
        tuple(resource.categories or ()),
    )


async def resolve(client: Client, word: str, kinds: Sequence[DictKind] | None = None) -> DictKind:
    """The kind that `word` means: its plural, singular, short name or kind, in upper or lower case, or
    `plural.group` (any of these with a group; also `plural.version.group`).

    `kinds` are those of `all_resources`, if the caller has them. Raises `UnknownKind`, `ApiError`,
    `Unreachable`.
    """
    kinds = await all_resources(client) if kinds is None else kinds
    lowered = word.lower()
    for matches in (_is_named, _is_short_for):
        for kind in kinds:
            if matches(kind, lowered):
                return kind
    name, _, rest = lowered.partition(".")
    version, _, group = rest.partition(".")
    if group:
        for kind in await _of_version(client, f"{group}/{version}"):
            if name in _names(kind):
                return kind
    known = [name for kind in kinds for name in (kind.singular, kind.plural, f"{kind.plural}.{kind.group}")]
    raise UnknownKind(f'the server has no kind "{word}"', _hint(lowered, known))


async def kind_for(client: Client, api_version: str, kind: str) -> DictKind:
    """The kind that a manifest names. Raises `UnknownKind`, `ApiError`, `Unreachable`."""
    candidates = await _of_version(client, api_version)
    for candidate in candidates:
        if candidate.kind == kind:
            return candidate
    hint = _hint(kind, (candidate.kind for candidate in candidates))
    if not candidates:
        versions = [
            version.group_version for group in await _groups(client) for version in group.versions or ()
        ]
        group = api_version.partition("/")[0]
        # A group below another group belongs to another program, as trust.cert-manager.io does.
        others = [version for version in versions if not group.endswith(f".{version.partition('/')[0]}")]
        hint = _hint(api_version, ("v1", *others))
        hint = f", nor anything else of that version{hint}" if hint else ""
    raise UnknownKind(f'the server has no kind "{kind}" in {api_version}', hint)


async def _of_version(client: Client, api_version: str) -> list[DictKind]:
    try:
        return await _resources(client, api_version)
    except NotFound:
        return []


async def _groups(client: Client) -> list[_Group]:
    body = await whole_body(await client.raw("GET", "/apis"))
    return _decode(body, _Groups).groups or []


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
        raise NoApi(f"the answer to discovery is not understood ({error})") from None


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


def _hint(word: str, known: Iterable[str]) -> str:
    import difflib  # it costs every command 1 ms

    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""
