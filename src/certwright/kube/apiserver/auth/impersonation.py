"""Impersonation: the headers `Impersonate-User`, `-Group`, `-Uid` and `-Extra-*`.

Each impersonated attribute needs the verb `impersonate` on it. Source: Kubernetes documentation, "User
impersonation"; apiserver `pkg/endpoints/filters/impersonation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from certwright.kube.api.errors import InternalError
from certwright.kube.apiserver.auth.auth import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED
from certwright.kube.apiserver.auth.rbac import SERVICE_ACCOUNT
from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.model.routes import Action, Authorizer
from certwright.kube.util.http_messages import Identity

_PREFIX = "impersonate-"
_USER, _GROUP, _UID = "impersonate-user", "impersonate-group", "impersonate-uid"
_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


def act_as(user: Identity, headers: Mapping[str, str], authorizer: Authorizer) -> Identity:
    """The effective user of the request: `user`, unless the headers name another.

    Raises `Forbidden` for attributes that `user` may not impersonate, and `InternalError` for a group, a uid
    or an extra without a user.
    """
    # All names are checked in one pass: nearly always none of them is such a header.
    if _PREFIX not in "\n".join(headers):
        return user
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    groups = _split(headers.get(_GROUP, ""))
    extra = _extra(headers)
    if not name:
        if groups or uid or extra:
            raise InternalError("Internal Server Error: requested groups, uid or extra without a user")
        return user
    for action in _actions(name, uid, groups, extra):
        authorizer.require(user, action)
    if service_account(name) is not None and not groups:
        groups = service_account_groups(name)
    return Identity(name, uid=uid, groups=_with_system_group(name, groups), extra=extra)


def _split(value: str) -> tuple[str, ...]:
    # The HTTP server separates fields of one name by newlines.
    return tuple(part.strip() for part in value.split("\n") if part.strip())


def _extra(headers: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    return {
        unquote(name[len(_EXTRA) :]).lower(): _split(value)
        for name, value in headers.items()
        if name.startswith(_EXTRA)
    }


def _actions(
    name: str, uid: str, groups: tuple[str, ...], extra: Mapping[str, tuple[str, ...]]
) -> list[Action]:
    """The permissions to check, one by one."""
    if (named := service_account(name)) is not None:
        actions = [Action("impersonate", resource="serviceaccounts", namespace=named[0], name=named[1])]
    else:
        actions = [Action("impersonate", resource="users", name=name)]
    actions += [Action("impersonate", resource="groups", name=group) for group in groups]
    actions += [
        Action("impersonate", _AUTHENTICATION, "userextras", subresource=key, name=value)
        for key, values in extra.items()
        for value in values
    ]
    if uid:
        actions.append(Action("impersonate", _AUTHENTICATION, "uids", name=uid))
    return actions


def service_account(user_name: str) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount of a user name; None: an ordinary user (apiserver
    `serviceaccount.SplitUsername`)."""
    if not user_name.startswith(SERVICE_ACCOUNT):
        return None
    namespace, _, account = user_name.removeprefix(SERVICE_ACCOUNT).partition(":")
    if object_names.dns_label(namespace) is not None or object_names.dns_subdomain(account) is not None:
        return None
    return namespace, account


def service_account_groups(user_name: str) -> tuple[str, ...]:
    """The groups of `system:serviceaccount:NAMESPACE:NAME`."""
    namespace = user_name.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
    return "system:serviceaccounts", f"system:serviceaccounts:{namespace}"


def _with_system_group(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    own = UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED
    return groups if {AUTHENTICATED, UNAUTHENTICATED} & {*groups} else (*groups, own)
