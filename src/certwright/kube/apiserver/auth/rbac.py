"""RBAC: an index of roles and bindings in memory, updated by every write, and the authorizer that asks it.

Rules only ever allow. A binding to a missing role grants nothing until the role is created. system:masters
may do everything. Decisions are cached.

Source: Kubernetes documentation, "Using RBAC Authorization"; API reference, rbac.authorization.k8s.io v1;
apiserver `pkg/endpoints/handlers/responsewriters`, `plugin/pkg/auth/authorizer/rbac`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from certwright.kube.api.errors import Details, Forbidden
from certwright.kube.apiserver.base.users import MASTERS, SERVICE_ACCOUNT
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.routes import Action, Decision
from certwright.kube.store.contract import Row
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.encoding import quoted
from certwright.kube.util.http_messages import Identity

_log = logging.getLogger(__name__)

GROUP = "rbac.authorization.k8s.io"
ALL = "*"
PLURALS = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
_ROLES, _BINDINGS = PLURALS[:2], PLURALS[2:]


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A `PolicyRule`: allowed verbs on resources, or on paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def covers(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Whether the rule matches this resource request, whatever the object's name: its resources are `*`,
        `secrets`, `pods/log` or `*/status`."""
        matching = (f"{resource}/{subresource}", f"*/{subresource}") if subresource else (resource,)
        return (
            _has(self.verbs, verb)
            and _has(self.api_groups, group)
            and any(ours == ALL or ours in matching for ours in self.resources)
        )

    def covers_path(self, verb: str, path: str) -> bool:
        """Whether the rule matches this non-resource path: it has the path, or a beginning of it with `*`."""
        return _has(self.verbs, verb) and any(
            ours == path or (ours.endswith(ALL) and path.startswith(ours.rstrip(ALL)))
            for ours in self.non_resource_urls
        )


def _has(items: tuple[str, ...], item: str) -> bool:
    return ALL in items or item in items


class Subject(msgspec.Struct, frozen=True):
    """A subject of a binding."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    def key(self, binding_namespace: str) -> tuple[str, str]:
        """Kind and name by which an identity is found; a ServiceAccount is found as the user of its name."""
        if self.kind == "ServiceAccount":
            return "User", f"{SERVICE_ACCOUNT}{self.namespace or binding_namespace}:{self.name}"
        return self.kind, self.name

    def describe(self, binding_namespace: str) -> str:
        """As Kubernetes' reasons write it."""
        name = self.name
        if self.kind == "ServiceAccount":
            name += f"/{self.namespace or binding_namespace}"
        return f'{self.kind} "{name}"'


class RoleRef(msgspec.Struct, frozen=True):
    """The role that a binding grants (`roleRef`)."""

    kind: str = ""
    name: str = ""


class _Role(msgspec.Struct):
    rules: tuple[Rule, ...] | None = None


class _BindingBody(msgspec.Struct, rename="camel"):
    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] | None = None


_role = json_decoder(_Role).decode
_binding = json_decoder(_BindingBody).decode


class Binding(NamedTuple):
    """A RoleBinding, or a ClusterRoleBinding, whose namespace is empty."""

    namespace: str
    name: str
    role: RoleRef

    def describe(self) -> str:
        """As Kubernetes' reasons write it."""
        kind, name = "ClusterRoleBinding", self.name
        if self.namespace:
            kind, name = "RoleBinding", f"{self.name}/{self.namespace}"
        return f'{kind} "{name}" of {self.role.kind} "{self.role.name}"'


class Grant(NamedTuple):
    """The grant of one binding to one identity; `rules` is None where its role is missing."""

    binding: Binding
    subject: Subject
    rules: tuple[Rule, ...] | None


class Rbac:
    """All roles and bindings. `generation` grows with every change that may change an answer."""

    observed_buckets = frozenset(f"{GROUP}/{plural}" for plural in PLURALS)

    def __init__(self) -> None:
        self.generation = 0
        self._roles: dict[tuple[str, str], tuple[Rule, ...]] = {}
        self._bindings: dict[tuple[str, str], tuple[Binding, tuple[Subject, ...]]] = {}
        # By the binding's namespace, and the subject's kind and name.
        self._by_subject: dict[tuple[str, str, str], dict[str, tuple[Binding, Subject]]] = {}

    def wrote(self, definition: ResourceDefinition, row: Row, _previous: Row | None) -> None:
        """Index a written object."""
        key = (row.key.namespace, row.key.name)
        self._forget(definition.plural, key)
        try:
            self.put(definition.plural, key, b"{" + row.body + b"}")
        except msgspec.MsgspecError as error:  # the schema refuses such an object
            _log.error("%s %s grants nothing: %s", definition.kind, row.key.name, error)

    def put(self, plural: str, key: tuple[str, str], body: bytes) -> None:
        """Index a role or binding: namespace and name, and its JSON. Raises `msgspec.MsgspecError`."""
        if plural in _ROLES:
            self._roles[key] = _role(body).rules or ()
        elif plural in _BINDINGS:
            wire = _binding(body)
            binding, subjects = Binding(*key, wire.role_ref), wire.subjects or ()
            self._bindings[key] = (binding, subjects)
            for subject in subjects:
                bindings = self._by_subject.setdefault(
                    (binding.namespace, *subject.key(binding.namespace)), {}
                )
                bindings[binding.name] = (binding, subject)

    def removed(self, definition: ResourceDefinition, row: Row) -> None:
        """Remove a deleted object from the index."""
        self._forget(definition.plural, (row.key.namespace, row.key.name))

    def _forget(self, plural: str, key: tuple[str, str]) -> None:
        self.generation += 1
        if plural in _ROLES:
            # ClusterRoles and Roles share no key: a Role has a namespace.
            self._roles.pop(key, None)
        elif plural in _BINDINGS and key in self._bindings:
            binding, subjects = self._bindings.pop(key)
            for subject in subjects:
                place = (binding.namespace, *subject.key(binding.namespace))
                if (bindings := self._by_subject.get(place)) is not None:
                    bindings.pop(binding.name, None)
                    if not bindings:
                        del self._by_subject[place]

    def role(self, ref: RoleRef, namespace: str) -> tuple[Rule, ...] | None:
        """The rules of a role that a binding in `namespace` refers to; None: the role is missing."""
        return self._roles.get(("" if ref.kind == "ClusterRole" else namespace, ref.name))

    def grants(self, user: Identity, namespace: str) -> Iterator[Grant]:
        """The grants to `user` everywhere, then those in `namespace`."""
        who = [("User", user.name), *(("Group", group) for group in user.groups)]
        for place in ("", namespace) if namespace else ("",):
            for kind, name in who:
                for binding, subject in self._by_subject.get((place, kind, name), {}).values():
                    yield Grant(binding, subject, self.role(binding.role, place))

    def rules(self, user: Identity, namespace: str) -> list[Rule]:
        """All rules that apply to `user` in `namespace`."""
        return [rule for grant in self.grants(user, namespace) for rule in grant.rules or ()]


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
        """The decision with its reason: the first binding that allows the request, or the missing roles."""
        if MASTERS in user.groups:
            return Decision(allowed=True, reason="")
        missing: list[str] = []
        for grant in self.rbac.grants(user, action.namespace):
            if grant.rules is None:
                role = grant.binding.role
                resource = "clusterrole" if role.kind == "ClusterRole" else "role"
                missing.append(f'{resource}.rbac.authorization.k8s.io "{role.name}" not found')
            elif any(
                _matches(rule, action)
                and (not action.resource or not rule.resource_names or action.name in rule.resource_names)
                for rule in grant.rules
            ):
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
