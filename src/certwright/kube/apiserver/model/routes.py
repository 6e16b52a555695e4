"""Request routing: from method and target to resource, verb, and the action to authorize.

Source: Kubernetes documentation, "Kubernetes API Concepts", resource URIs; API reference, SubjectAccessReview
v1 authorization.k8s.io.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote

from certwright.kube.api.errors import BadRequest
from certwright.kube.util.caches import remembering
from certwright.kube.util.http_messages import Identity

_MAX_PARAMETERS = 100
_UNREADABLE = re.compile(r";|%(?![0-9A-Fa-f]{2})")
NO_QUERY: Mapping[str, str] = {}


class Route(NamedTuple):
    """A parsed path under /api or /apis. `name` is empty for a collection, `namespace` for all namespaces and
    for cluster-scoped resources. `watched`: the path begins with `watch`, which means the same as the
    parameter of that name."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str
    watched: bool = False


class RequestLine(NamedTuple):
    """A parsed request line. `route` is None and `verb` empty where the path is not a resource's."""

    path: str
    query: Mapping[str, str]
    route: Route | None
    verb: str


# All objects of a kind are created by one line, and an object that was read is often written next.
@remembering(most=512, longest=256)
def parse_request_line(line: str) -> RequestLine:
    """Parse a request line: method, a space and target (RFC 9112 §3). Raises `BadRequest`."""
    method, _, target = line.partition(" ")
    path, query = split_target(target)
    route = parse_path(path)
    return RequestLine(path, query, route, verb_of(method, route, query) if route is not None else "")


def split_target(target: str) -> tuple[str, Mapping[str, str]]:
    """Path (decoded later) and query; of a repeated parameter the first counts.

    Raises `BadRequest`.
    """
    path, _, query = target.partition("?")
    return path, _parameters(query) if query else NO_QUERY


# Clients repeat the same queries.
@remembering(most=256, longest=256)
def _parameters(query: str) -> Mapping[str, str]:
    if ";" in query or "%" in query:
        # As in Go: a malformed parameter counts as missing.
        query = "&".join(part for part in query.split("&") if not _UNREADABLE.search(part))
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from None
    # Of equal names the first counts, so it must come last here.
    return dict(reversed(pairs))


def parse_path(path: str) -> Route | None:
    """The resource that `path` names, or None for any other path (discovery, health, unknown)."""
    if path.startswith("//"):
        return None
    parts = (unquote(path) if "%" in path else path).strip("/").split("/")
    size = len(parts)
    if parts[0] == "api" and size >= 3:
        group, version, at = "", parts[1], 2
    elif parts[0] == "apis" and size >= 4 and parts[1]:
        group, version, at = parts[1], parts[2], 3
    else:
        return None
    namespace, watched = "", parts[at] == "watch" and size > at + 1
    if watched:
        at += 1
    # `namespaces/x` and `namespaces/x/status` are the Namespace itself, `namespaces/x/secrets` is inside it.
    if parts[at] == "namespaces" and size >= at + 3 and parts[at + 2] not in ("status", "finalize"):
        namespace, at = parts[at + 1], at + 2
    if not (plural := parts[at]):
        return None
    name = parts[at + 1] if size > at + 1 else ""
    # No subresource has a deeper path.
    subresource = "/".join(parts[at + 2 :]) if size > at + 2 else ""
    return Route(group, version, namespace, plural, name, subresource, watched)


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def verb_of(method: str, route: Route, query: Mapping[str, str]) -> str:
    """The verb as RBAC rules and errors name it; empty for a method that no resource supports."""
    if route.watched:
        return "" if route.subresource else "watch"
    if method in ("GET", "HEAD"):
        if route.name:
            return "get"
        return "watch" if is_true(query, "watch") else "list"
    if method == "DELETE":
        return "delete" if route.name else "deletecollection"
    return _VERBS.get(method, "")


def is_true(query: Mapping[str, str], name: str) -> bool:
    """Whether a boolean parameter is set; only `false` and `0` are not true (apimachinery, queryparams)."""
    return name in query and query[name].lower() not in ("false", "0")


def is_watch(target: str) -> bool:
    """Whether the stream that answers this target is a watch. Raises `BadRequest`."""
    path, query = split_target(target)
    route = parse_path(path)
    return is_true(query, "watch") or (route is not None and route.watched)


class Action(NamedTuple):
    """What a request wants to do, in the terms of a `SubjectAccessReview`: a resource or a non-resource
    path."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """A decision and its reason (worded as RBAC's; may be empty)."""

    allowed: bool
    reason: str


class Authorizer(Protocol):
    """Decides whether a user may perform an action. Its answers need no I/O."""

    def allows(self, user: Identity, action: Action) -> bool:
        """Whether `user` may perform it."""

    def explain(self, user: Identity, action: Action) -> Decision:
        """The decision with its reason."""

    def require(self, user: Identity, action: Action) -> None:
        """Return when `user` may perform it. Raises `Forbidden`."""
