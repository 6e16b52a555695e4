"""Authorization: system:masters may do everything, other users what RBAC grants. Decisions are cached.

Source: Kubernetes documentation, "Authorization"; apiserver `pkg/endpoints/handlers/responsewriters`,
`plugin/pkg/auth/authorizer/rbac`.
"""

from __future__ import annotations

from certwright.kube.api.errors import Details, Forbidden
from certwright.kube.apiserver.auth.auth import MASTERS
from certwright.kube.apiserver.auth.rbac import Rbac, Rule
from certwright.kube.apiserver.model.routes import Action, Decision
from certwright.kube.util.encoding import quoted
from certwright.kube.util.http_messages import Identity

_MAX_USERS = 1024
_MAX_ANSWERS = 4096  # per user

Answer = bool | frozenset[str]
"""A decision: allowed or not, or allowed for objects of these names only."""


class RbacAuthorizer:
    """Authorizes requests by the rules of `rbac`.

    A decision does not depend on the object's name unless rules name objects, so a few decisions serve all
    objects of a user; any change of a role or binding drops them all.
    """

    def __init__(self, rbac: Rbac) -> None:
        self.rbac = rbac
        self._generation = -1
        self._answers: dict[tuple[str, tuple[str, ...]], dict[tuple[str, ...], Answer]] = {}

    def allows(self, user: Identity, action: Action) -> bool:
        """Whether `user` is allowed the request."""
        if MASTERS in user.groups:
            return True
        if self._generation != self.rbac.generation or len(self._answers) > _MAX_USERS:
            self._answers.clear()
            self._generation = self.rbac.generation
        answers = self._answers.get((user.name, user.groups))
        if answers is None:
            answers = self._answers[user.name, user.groups] = {}
        key = action[:5] if action.resource else (action.verb, action.path)
        answer = answers.get(key)
        if answer is None:
            if len(answers) > _MAX_ANSWERS:
                answers.clear()
            answer = answers[key] = self._decide(user, action)
        return answer if type(answer) is bool else action.name in answer

    def _decide(self, user: Identity, action: Action) -> Answer:
        names: set[str] = set()
        for rule in self.rbac.rules(user, action.namespace):
            if _matches(rule, action):
                if not rule.resource_names or not action.resource:
                    return True
                names.update(rule.resource_names)
        return frozenset(names) or False

    def explain(self, user: Identity, action: Action) -> Decision:
        """The decision with its reason: the first binding that allows it, or which roles are missing."""
        if MASTERS in user.groups:
            return Decision(allowed=True, reason="")
        missing: list[str] = []
        for grant in self.rbac.grants(user, action.namespace):
            if grant.rules is None:
                role = grant.binding.role
                resource = "clusterrole" if role.kind == "ClusterRole" else "role"
                missing.append(f'{resource}.rbac.authorization.k8s.io "{role.name}" not found')
            elif any(_matches(rule, action) and _names(rule, action) for rule in grant.rules):
                subject = grant.subject.describe(grant.binding.namespace)
                return Decision(
                    allowed=True, reason=f"RBAC: allowed by {grant.binding.describe()} to {subject}"
                )
        if not missing:
            return Decision(allowed=False, reason="")
        unique = list(dict.fromkeys(missing))
        text = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
        return Decision(allowed=False, reason=f"RBAC: {text}")

    def require(self, user: Identity, action: Action) -> None:
        """Return if `user` is allowed the request. Raises `Forbidden`."""
        if not self.allows(user, action):
            raise forbidden(user, action, self.explain(user, action).reason)


def _matches(rule: Rule, action: Action) -> bool:
    if not action.resource:
        return rule.covers_path(action.verb, action.path)
    return rule.covers(action.verb, action.group, action.resource, action.subresource)


def _names(rule: Rule, action: Action) -> bool:
    return not action.resource or not rule.resource_names or action.name in rule.resource_names


def forbidden(user: Identity, action: Action, reason: str = "") -> Forbidden:
    """The 403 in Kubernetes' words."""
    who, because = f"User {quoted(user.name)} cannot {action.verb}", f": {reason}" if reason else ""
    if not action.resource:
        return Forbidden(f"forbidden: {who} path {quoted(action.path)}{because}", details=Details())
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    where = f"in the namespace {quoted(action.namespace)}" if action.namespace else "at the cluster scope"
    what = f"{who} resource {quoted(resource)} in API group {quoted(action.group)} {where}"
    return refused(action.group, action.resource, action.name, what + because)


def refused(group: str, resource: str, name: str, why: str) -> Forbidden:
    """`secrets "x" is forbidden: why`."""
    qualified = f"{resource}.{group}" if group else resource
    subject = f"{qualified} {quoted(name)}" if name else qualified
    return Forbidden(f"{subject} is forbidden: {why}", details=Details(name=name, group=group, kind=resource))
