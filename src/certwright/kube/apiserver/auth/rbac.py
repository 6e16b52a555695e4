"""RBAC index: roles and bindings in memory, updated by every write (`Backend.observers`).

Rules only ever allow. A binding to a missing role grants nothing until the role is created.

Source: Kubernetes documentation, "Using RBAC Authorization"; API reference, rbac.authorization.k8s.io v1.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.store.contract import Row
from certwright.kube.util.decoders import json_decoder
from certwright.kube.util.http_messages import Identity

_log = logging.getLogger(__name__)

GROUP = "rbac.authorization.k8s.io"
ALL = "*"
SERVICE_ACCOUNT = "system:serviceaccount:"
PLURALS = ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
_ROLES, _BINDINGS = PLURALS[:2], PLURALS[2:]


class Rule(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A `PolicyRule`: these verbs on these resources, or on these paths."""

    verbs: tuple[str, ...] = ()
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = msgspec.field(default=(), name="nonResourceURLs")

    def covers(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Whether the rule matches this resource request, whatever the object's name."""
        return (
            _has(self.verbs, verb)
            and _has(self.api_groups, group)
            and any(resource_matches(ours, resource, subresource) for ours in self.resources)
        )

    def covers_path(self, verb: str, path: str) -> bool:
        """Whether the rule matches this non-resource path."""
        return _has(self.verbs, verb) and any(url_matches(ours, path) for ours in self.non_resource_urls)


def _has(items: tuple[str, ...], item: str) -> bool:
    return ALL in items or item in items


def resource_matches(ours: str, resource: str, subresource: str) -> bool:
    """Match `*`, `secrets`, `pods/log` or `*/status` against the requested resource."""
    if ours == ALL:
        return True
    if not subresource:
        return ours == resource
    return ours in (f"{resource}/{subresource}", f"*/{subresource}")


def url_matches(ours: str, path: str) -> bool:
    """A path, or a prefix of paths when it ends with `*`."""
    return ours == path or (ours.endswith(ALL) and path.startswith(ours.rstrip(ALL)))


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
