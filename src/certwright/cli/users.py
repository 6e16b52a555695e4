"""Users of a server: ServiceAccounts with bindings to ClusterRoles, and time-limited tokens.

All ServiceAccounts are in one namespace that no user has rights in: the right to edit a namespace includes
that to create tokens of its ServiceAccounts.

Source: Kubernetes documentation, "Using RBAC Authorization"; API reference, TokenRequest v1
authentication.k8s.io.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from certwright.cli.errors import Failed
from certwright.kube.api.core import NAMESPACES, SERVICE_ACCOUNTS, Namespace, ServiceAccount
from certwright.kube.api.errors import AlreadyExists, NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.client.rest import Client

Json = dict[str, Any]

NAMESPACE: Final = "certwright-users"
LABEL: Final = "certwright.io/user"
"""Label of the ServiceAccount and the bindings of a user: the user's name."""
EXPIRES: Final = "certwright.io/token-expires"
"""Annotation of a ServiceAccount: when the last token that was created for it expires (RFC 3339)."""
ROLES: Final = ("view", "edit", "admin", "cluster-admin")
_GROUP = "rbac.authorization.k8s.io"
_CLUSTER_VIEW = "cert-manager-cluster-view"
"""ClusterIssuers are in none of the roles for namespaces."""
_CLUSTER_BINDINGS: Final[Kind[Json]] = Kind(
    _GROUP, "v1", "ClusterRoleBinding", "clusterrolebindings", "clusterrolebinding", False, dict
)
_BINDINGS: Final[Kind[Json]] = Kind(_GROUP, "v1", "RoleBinding", "rolebindings", "rolebinding", True, dict)


class NewUser(msgspec.Struct, frozen=True, kw_only=True):
    """A user to be created. Without `namespaces` the role applies to the whole server."""

    name: str
    role: str
    namespaces: tuple[str, ...]
    lifetime: timedelta


class Token(msgspec.Struct, frozen=True):
    """A token, and when it expires (RFC 3339); the server may have shortened its life."""

    value: str
    expires: str


class User(msgspec.Struct, frozen=True):
    """An existing user; `roles` are `ROLE` or `ROLE in NAMESPACE`."""

    name: str
    roles: tuple[str, ...]
    expires: str


async def create(client: Client, user: NewUser) -> Token:
    """Create what is missing of the user, and a token. Raises `ApiError`, and `Failed` if the user exists
    with other rights, or a namespace does not exist."""
    for namespace in user.namespaces:
        # Before the user exists, who would otherwise be left without rights.
        try:
            await client.get(NAMESPACES, namespace)
        except NotFound:
            raise Failed(f"namespace {namespace} does not exist; create it first, or name another") from None
    await _ensure(client, NAMESPACES, Namespace(metadata=ObjectMeta(name=NAMESPACE)))
    meta = ObjectMeta(name=user.name, namespace=NAMESPACE, labels={LABEL: user.name})
    await _ensure(client, SERVICE_ACCOUNTS, ServiceAccount(metadata=meta))
    desired = _bindings(user)
    existing = {_place(live): live for live in await _bindings_of(client, user.name)}
    for binding in desired:
        before = existing.pop(_place(binding), None)
        if before is not None and before["roleRef"]["name"] != binding["roleRef"]["name"]:
            existing[_place(binding)] = before
    if existing:
        raise Failed(
            f"the user {user.name} exists with other rights ({', '.join(_rights(existing.values()))}); "
            f"delete it first: certwright user delete {user.name}"
        )
    for binding in desired:
        await _ensure(client, _kind_of(binding), binding)
    return await _new_token(client, user)


async def list_users(client: Client) -> list[User]:
    """All users, by name. Raises `ApiError`."""
    accounts, bindings = await asyncio.gather(
        client.list(SERVICE_ACCOUNTS, NAMESPACE, labels=LABEL), _bindings_of(client)
    )
    users = []
    for account in accounts.items:
        meta = account.metadata
        own = [binding for binding in bindings if binding["metadata"]["labels"][LABEL] == meta.name]
        users.append(User(meta.name, tuple(_rights(own)), meta.annotations.get(EXPIRES, "")))
    return sorted(users, key=lambda user: user.name)


async def delete(client: Client, name: str) -> None:
    """Delete the user: all its tokens become invalid. Raises `ApiError`, and `Failed` if it does not
    exist."""
    try:
        # First, because it ends the access.
        await client.delete(SERVICE_ACCOUNTS, name, NAMESPACE)
    except NotFound:
        raise Failed(f"there is no user {name}; `certwright user list` lists them") from None
    for binding in await _bindings_of(client, name):
        meta = binding["metadata"]
        await client.delete(_kind_of(binding), meta["name"], meta.get("namespace", ""))


async def _new_token(client: Client, user: NewUser) -> Token:
    path = SERVICE_ACCOUNTS.path(NAMESPACE, user.name, "token")
    spec = {"expirationSeconds": int(user.lifetime.total_seconds())}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    headers = {"content-type": "application/json"}
    response = await client.raw("POST", path, body=msgspec.json.encode(body), headers=headers)
    status = msgspec.json.decode(response.body)["status"]
    token = Token(status["token"], status["expirationTimestamp"])
    patch = {"metadata": {"annotations": {EXPIRES: token.expires}}}
    await client.patch(SERVICE_ACCOUNTS, user.name, NAMESPACE, patch)
    return token


def _bindings(user: NewUser) -> list[Json]:
    name = f"certwright-user-{user.name}"
    if user.namespaces:
        return [_binding(user, name, user.role, namespace) for namespace in user.namespaces]
    bindings = [_binding(user, name, user.role)]
    if user.role != "cluster-admin":
        bindings.append(_binding(user, f"{name}-cluster", _CLUSTER_VIEW))
    return bindings


def _binding(user: NewUser, name: str, role: str, namespace: str = "") -> Json:
    metadata = {"name": name, "labels": {LABEL: user.name}}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": user.name, "namespace": NAMESPACE}],
    }


def _kind_of(binding: Mapping[str, Any]) -> Kind[Json]:
    return _BINDINGS if binding["metadata"].get("namespace") else _CLUSTER_BINDINGS


def _place(binding: Mapping[str, Any]) -> tuple[str, str]:
    return binding["metadata"].get("namespace", ""), binding["metadata"]["name"]


def _rights(bindings: Sequence[Json] | Any) -> list[str]:
    rights = []
    for binding in bindings:
        role, namespace = binding["roleRef"]["name"], binding["metadata"].get("namespace", "")
        if role != _CLUSTER_VIEW:
            rights.append(f"{role} in {namespace}" if namespace else role)
    return sorted(rights)


async def _bindings_of(client: Client, name: str = "") -> list[Json]:
    labels = f"{LABEL}={name}" if name else LABEL
    lists = await asyncio.gather(
        client.list(_CLUSTER_BINDINGS, labels=labels), client.list(_BINDINGS, labels=labels)
    )
    return [binding for listing in lists for binding in listing.items]


async def _ensure(client: Client, kind: Kind[Any], obj: Any) -> None:
    try:
        await client.create(kind, obj)
    except AlreadyExists:
        pass
