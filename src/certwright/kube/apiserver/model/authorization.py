"""Authorization as the verbs use it: action, decision, and the interface of the authorizer.

Source: Kubernetes API reference, SubjectAccessReview v1 authorization.k8s.io.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from certwright.kube.util.http_messages import Identity


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
