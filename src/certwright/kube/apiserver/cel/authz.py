"""CEL authorizer library: permission checks such as `authorizer.group('').resource('pods')…`.

Only expressions that decide about requests have an `authorizer`; the functions are declared everywhere, as in
Kubernetes.

Source: Kubernetes documentation, "Kubernetes authorizer library"; apiserver `pkg/cel/library/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from certwright.kube.apiserver.base import object_names
from certwright.kube.apiserver.cel.overloads import Carried, Function, Raw, member


class Question(NamedTuple):
    """The attributes of a check. `account` is namespace and name of a service account with a `/`; empty: the
    user of the request. Without a `resource` it is a check of a path."""

    account: str
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


Decide = Callable[[Question], tuple[bool, str]]
"""The decision: allowed or not, and the reason (may be empty)."""

_DECIDE: ContextVar[Decide] = ContextVar("decide")


@contextmanager
def asking(decide: Decide) -> Iterator[None]:
    """Within this block expressions call `decide`."""
    token = _DECIDE.set(decide)
    try:
        yield
    finally:
        _DECIDE.reset(token)


AUTHORIZER = Carried("Authorizer", ("",))
"""The value of the variable `authorizer`."""


def request_resource(group: str, resource: str, subresource: str, namespace: str, name: str) -> Carried:
    """The value of the variable `authorizer.requestResource`."""
    return Carried("ResourceCheck", ("", group, resource, subresource, namespace, name))


def _service_account(_: Raw, namespace: str, name: str) -> Raw:
    if object_names.dns_subdomain(name):
        raise ValueError("Invalid service account name")
    if object_names.dns_label(namespace):
        raise ValueError("Invalid service account namespace")
    return (f"{namespace}/{name}",)


def _path(authorizer: Raw, path: str) -> Raw:
    if not path.strip():
        raise ValueError("path must not be empty")
    return (authorizer[0], path)


def _resource(group: Raw, resource: str) -> Raw:
    if not resource.strip():
        raise ValueError("resource must not be empty")
    return (*group, resource, "", "", "")


def _with(place: int) -> Callable[[Raw, str], Raw]:
    return lambda check, value: (*check[:place], value, *check[place + 1 :])


def _check_path(check: Raw, verb: str) -> Raw:
    return _decided(Question(check[0], verb, path=check[1]))


def _check_resource(check: Raw, verb: str) -> Raw:
    account, group, resource, subresource, namespace, name = check
    return _decided(Question(account, verb, group, resource, subresource, namespace, name))


def _decided(question: Question) -> Raw:
    allowed, reason = _DECIDE.get()(question)
    return ("allowed" if allowed else "", reason)


def _same(check: Raw, _: str) -> Raw:
    # Selectors narrow a check; RBAC, which decides here, ignores them.
    return check


_CHECK = "ResourceCheck"
AUTHZ_FUNCTIONS: dict[str, list[Function]] = {
    "path": [member("Authorizer", "string", gives="PathCheck", run=_path)],
    "group": [member("Authorizer", "string", gives="GroupCheck", run=lambda who, group: (*who, group))],
    "serviceAccount": [
        member("Authorizer", "string", "string", gives="Authorizer", run=_service_account),
    ],
    "resource": [member("GroupCheck", "string", gives=_CHECK, run=_resource)],
    "subresource": [member(_CHECK, "string", gives=_CHECK, run=_with(3))],
    "namespace": [member(_CHECK, "string", gives=_CHECK, run=_with(4))],
    "name": [member(_CHECK, "string", gives=_CHECK, run=_with(5))],
    "fieldSelector": [member(_CHECK, "string", gives=_CHECK, run=_same)],
    "labelSelector": [member(_CHECK, "string", gives=_CHECK, run=_same)],
    "check": [
        member("PathCheck", "string", gives="Decision", run=_check_path),
        member(_CHECK, "string", gives="Decision", run=_check_resource),
    ],
    "allowed": [member("Decision", gives="bool", run=lambda decision: bool(decision[0]))],
    "reason": [member("Decision", gives="string", run=lambda decision: decision[1])],
    "errored": [member("Decision", gives="bool", run=lambda _: False)],
    "error": [member("Decision", gives="string", run=lambda _: "")],
}
"""By name, with their overloads."""
