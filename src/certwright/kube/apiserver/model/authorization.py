"""Authorization, as the verbs see it: an action, a decision, and the interface of what decides.

Source: Kubernetes API reference, SubjectAccessReview v1 authorization.k8s.io.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from certwright.kube.util.http_messages import Identity


class Action(NamedTuple):
    """What is asked for, in the terms of a `SubjectAccessReview`: a resource, or a path that is none."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


class Decision(NamedTuple):
    """An answer, and why (as RBAC's reasons are worded; may be empty)."""

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
