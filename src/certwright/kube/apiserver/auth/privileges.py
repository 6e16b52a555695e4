"""Privilege escalation prevention: a user cannot grant permissions beyond their own by roles and bindings.

Users who may `escalate` roles, or `bind` the role in question, are excepted, and system:masters. Source:
Kubernetes documentation, "Privilege escalation prevention and bootstrapping"; `pkg/registry/rbac`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from certwright.kube.api.errors import Details, NotFound
from certwright.kube.api.quoting import quoted
from certwright.kube.apiserver.auth import escalation
from certwright.kube.apiserver.auth.auth import MASTERS
from certwright.kube.apiserver.auth.authorizer import refused
from certwright.kube.apiserver.auth.rbac import ALL, GROUP, Rbac, RoleRef, Rule
from certwright.kube.apiserver.model.authorization import Action, Authorizer
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.util.decoders import convert
from certwright.kube.util.http_messages import Identity

Json = dict[str, Any]
Comparison = Callable[[], None]

_ROLES = ("clusterroles", "roles")
_OWNERSHIP = frozenset({"ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"})
_EVERYTHING = (
    Rule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),
    Rule(verbs=(ALL,), non_resource_urls=(ALL,)),
)


class Write(NamedTuple):
    """A user writes `new` over `old` (None: creates it)."""

    user: Identity
    definition: ResourceDefinition
    new: Json
    old: Json | None

    @property
    def namespace(self) -> str:
        """The namespace of the object."""
        return str(self.new["metadata"].get("namespace", ""))

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.new["metadata"].get("name", ""))


def to_compare(authorizer: Authorizer, rbac: Rbac, write: Write) -> Comparison | None:
    """The check to run before the write is allowed; None: it is allowed. Cheap for all kinds.

    The check uses no shared mutable state: it may run in a thread, as it may take long. It raises
    `Forbidden`. Raises `Forbidden`, and `NotFound` for a binding to a missing role.
    """
    user, definition, new, old = write
    if definition.group != GROUP or MASTERS in user.groups or (old and _comparable(new) == _comparable(old)):
        return None
    if definition.plural in _ROLES:
        return _compare_role(authorizer, rbac, write)
    return _compare_binding(authorizer, rbac, write)


def _comparable(obj: Json) -> Json:
    """The object without what the garbage collector may change, and without what only the server sets."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in _OWNERSHIP}
    return {**obj, "metadata": meta}


def _compare_role(authorizer: Authorizer, rbac: Rbac, write: Write) -> Comparison | None:
    (user, definition, new, old), namespace, name = write, write.namespace, write.name
    # Kubernetes checks the name in the path, which a create does not have.
    named = name if old is not None else ""
    if authorizer.allows(user, Action("escalate", GROUP, definition.plural, "", namespace, named)):
        return None
    own = rbac.rules(user, namespace)

    def compare() -> None:
        _compare(user, definition, name, _rules(new), own)
        aggregates = new.get("aggregationRule") or (old or {}).get("aggregationRule")
        if aggregates and escalation.missing(_EVERYTHING, own):
            why = "must have cluster-admin privileges to use the aggregationRule"
            raise refused(GROUP, definition.plural, name, why)

    return compare


def _compare_binding(authorizer: Authorizer, rbac: Rbac, write: Write) -> Comparison | None:
    user, namespace, ref = write.user, write.namespace, convert(write.new.get("roleRef") or {}, RoleRef)
    plural = "clusterroles" if ref.kind == "ClusterRole" else "roles"
    if authorizer.allows(user, Action("bind", GROUP, plural, "", namespace, ref.name)):
        return None
    rules = rbac.role(ref, namespace)
    if rules is None:
        kind = plural.removesuffix("s")
        raise NotFound(
            f'{kind}.{GROUP} "{ref.name}" not found', details=Details(name=ref.name, group=GROUP, kind=kind)
        )
    return partial(_compare, user, write.definition, write.name, rules, rbac.rules(user, namespace))


def _compare(
    user: Identity, definition: ResourceDefinition, name: str, requested: tuple[Rule, ...], own: list[Rule]
) -> None:
    # Kubernetes compares all rules, however long that takes.
    if (pieces := escalation.count_pieces(requested)) > escalation.MAX_PIECES:
        why = (
            f"the rules are of {pieces} combinations of verbs, groups, resources, names and paths: at most "
            f"{escalation.MAX_PIECES} can be compared with the RBAC permissions currently held"
        )
        raise refused(GROUP, definition.plural, name, why)
    if missing := escalation.missing(requested, own):
        raise refused(GROUP, definition.plural, name, _missing_message(user, missing))


def _rules(role: Json) -> tuple[Rule, ...]:
    return convert(role.get("rules") or (), tuple[Rule, ...])


def _missing_message(user: Identity, missing: list[Rule]) -> str:
    lines = sorted({_describe(rule) for rule in _compact(missing)})
    groups = _list(user.groups)
    return (
        f"user {quoted(user.name)} (groups={groups}) is attempting to grant RBAC permissions "
        "not currently held:\n" + "\n".join(lines)
    )


def _compact(rules: list[Rule]) -> list[Rule]:
    """Rules on the same resource as one, with all their verbs."""
    verbs: dict[Rule, list[str]] = {}
    for rule in rules:
        of = verbs.setdefault(msgspec.structs.replace(rule, verbs=()), [])
        of += [verb for verb in rule.verbs if verb not in of]
    return [msgspec.structs.replace(rule, verbs=tuple(rule_verbs)) for rule, rule_verbs in verbs.items()]


def _describe(rule: Rule) -> str:
    parts = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.non_resource_urls,
        "ResourceNames": rule.resource_names,
        "Verbs": rule.verbs,
    }
    return "{" + ", ".join(f"{name}:{_list(items)}" for name, items in parts.items() if items) + "}"


def _list(items: tuple[str, ...]) -> str:
    return "[" + " ".join(quoted(item) for item in items) + "]"
