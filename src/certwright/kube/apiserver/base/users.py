"""Users: special groups, the names of ServiceAccounts, and the flows in which users take turns.

Source: Kubernetes documentation, "Authenticating"; apiserver `pkg/authentication/serviceaccount`.
"""

from __future__ import annotations

from certwright.kube.apiserver.base import object_names
from certwright.kube.util.http_messages import Identity

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = Identity("system:anonymous", groups=(UNAUTHENTICATED,))
SERVICE_ACCOUNT = "system:serviceaccount:"
"""The beginning of the user names of ServiceAccounts."""
_PRIVILEGED = frozenset(
    (MASTERS, "system:serviceaccounts:kube-system", "system:serviceaccounts:cert-manager")
)
_USERS = "certwright-users"
"""The namespace of the ServiceAccounts that `certwright user create` makes, one for each person."""


def service_account(user_name: str) -> tuple[str, str] | None:
    """Namespace and name of the ServiceAccount of a user name; None: an ordinary user
    (`serviceaccount.SplitUsername`)."""
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


def account_identity(namespace: str, name: str) -> Identity:
    """A ServiceAccount as a user."""
    user_name = f"{SERVICE_ACCOUNT}{namespace}:{name}"
    return Identity(user_name, groups=(*service_account_groups(user_name), AUTHENTICATED))


def is_privileged(user: Identity) -> bool:
    """Whether the user's connections may use the reserve: an administrator, or a ServiceAccount in one of the
    namespaces in which tenants have none."""
    return not _PRIVILEGED.isdisjoint(user.groups)


def flow_of(user: Identity) -> str:
    """The name of the flow in which a user takes turns. The ServiceAccounts of a namespace share one, because
    a tenant may create any number of them."""
    account = service_account(user.name)
    if account is None or account[0] == _USERS or is_privileged(user):
        return user.name
    return f"system:serviceaccounts:{account[0]}"
