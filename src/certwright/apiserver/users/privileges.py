"""Nobody grants what he does not have: the check on writes of roles and bindings.

Who may `escalate` roles, or `bind` the role in question, is excepted, and system:masters. Source: Kubernetes
documentation, "Privilege escalation prevention and bootstrapping"; `pkg/registry/rbac`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from certwright.apiserver.definitions import ResourceDefinition
from certwright.apiserver.users.auth import MASTERS, Action, go_quoted
from certwright.apiserver.users.authorizer import Authorizer, refused
from certwright.apiserver.users.rbac import ALL, GROUP, RoleRef, Rule, resource_matches, url_matches
from certwright.kit.exchange import Identity
from certwright.resources.errors import Details, NotFound

Json = dict[str, Any]

_ROLES = ("clusterroles", "roles")
_OWNERSHIP = frozenset({"ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"})
_EVERYTHING = (
    Rule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),
    Rule(verbs=(ALL,), non_resource_urls=(ALL,)),
)


def check(
    authorizer: Authorizer,
    user: Identity,
    definition: ResourceDefinition,
    new: Json,
    old: Json | None,
) -> None:
    """Return when `user` may write `new` over `old`; cheap for all kinds but RBAC's.

    Raises `Forbidden`, and `NotFound` for a binding to a role that is not there.
    """
    if definition.group != GROUP or MASTERS in user.groups or (old and _said(new) == _said(old)):
        return
    if definition.plural in _ROLES:
        _check_role(authorizer, user, definition, new, old)
    else:
        _check_binding(authorizer, user, definition, new)


def _said(obj: Json) -> Json:
    """The object without what the garbage collector may change, and without what only the server sets."""
    meta = {name: value for name, value in obj["metadata"].items() if name not in _OWNERSHIP}
    return {**obj, "metadata": meta}


def _check_role(
    authorizer: Authorizer, user: Identity, definition: ResourceDefinition, new: Json, old: Json | None
) -> None:
    meta = new["metadata"]
    namespace, name = meta.get("namespace", ""), meta.get("name", "")
    # Kubernetes asks by the name in the path, which a create has not.
    named = name if old is not None else ""
    if authorizer.allows(user, Action("escalate", GROUP, definition.plural, "", namespace, named)):
        return
    missing = _missing(authorizer, user, namespace, _rules(new))
    if missing:
        raise refused(GROUP, definition.plural, name, _not_held(user, missing))
    aggregates = new.get("aggregationRule") or (old or {}).get("aggregationRule")
    if aggregates and _missing(authorizer, user, namespace, _EVERYTHING):
        why = "must have cluster-admin privileges to use the aggregationRule"
        raise refused(GROUP, definition.plural, name, why)


def _check_binding(authorizer: Authorizer, user: Identity, definition: ResourceDefinition, new: Json) -> None:
    meta, ref = new["metadata"], msgspec.convert(new.get("roleRef") or {}, RoleRef)
    namespace = meta.get("namespace", "")
    plural = "clusterroles" if ref.kind == "ClusterRole" else "roles"
    if authorizer.allows(user, Action("bind", GROUP, plural, "", namespace, ref.name)):
        return
    rules = authorizer.rbac.role(ref, namespace)
    if rules is None:
        kind = plural.removesuffix("s")
        raise NotFound(
            f'{kind}.{GROUP} "{ref.name}" not found', details=Details(name=ref.name, group=GROUP, kind=kind)
        )
    if missing := _missing(authorizer, user, namespace, rules):
        raise refused(GROUP, definition.plural, meta.get("name", ""), _not_held(user, missing))


def _rules(role: Json) -> tuple[Rule, ...]:
    return msgspec.convert(role.get("rules") or (), tuple[Rule, ...])


def _missing(authorizer: Authorizer, user: Identity, namespace: str, wanted: tuple[Rule, ...]) -> list[Rule]:
    """The parts of `wanted` that no rule of the user's covers."""
    held = authorizer.rbac.rules(user, namespace)
    return [part for rule in wanted for part in _parts(rule) if not any(_covers(own, part) for own in held)]


def _parts(rule: Rule) -> list[Rule]:
    """The rule in its smallest pieces, each of which one rule covers whole or not at all."""
    found = [
        Rule((verb,), (group,), (resource,), (name,) if name else ())
        for group in rule.api_groups
        for resource in rule.resources
        for verb in rule.verbs
        for name in rule.resource_names or ("",)
    ]
    found += [
        Rule((verb,), non_resource_urls=(url,)) for url in rule.non_resource_urls for verb in rule.verbs
    ]
    return found


def _covers(own: Rule, part: Rule) -> bool:
    if not {ALL, *part.verbs} & {*own.verbs}:
        return False
    if part.non_resource_urls:
        url = part.non_resource_urls[0]
        return any(url_matches(ours, url) for ours in own.non_resource_urls)
    resource, _, subresource = part.resources[0].partition("/")
    return (
        bool({ALL, *part.api_groups} & {*own.api_groups})
        and any(resource_matches(ours, resource, subresource) for ours in own.resources)
        and (not own.resource_names or bool({*part.resource_names} & {*own.resource_names}))
    )


def _not_held(user: Identity, missing: list[Rule]) -> str:
    lines = sorted({_describe(rule) for rule in _compact(missing)})
    groups = _list(user.groups)
    return (
        f"user {go_quoted(user.name)} (groups={groups}) is attempting to grant RBAC permissions "
        "not currently held:\n" + "\n".join(lines)
    )


def _compact(rules: list[Rule]) -> list[Rule]:
    """Rules on the same resource as one, with all their verbs."""
    verbs: dict[Rule, list[str]] = {}
    for rule in rules:
        of = verbs.setdefault(msgspec.structs.replace(rule, verbs=()), [])
        of += [verb for verb in rule.verbs if verb not in of]
    return [msgspec.structs.replace(rule, verbs=tuple(found)) for rule, found in verbs.items()]


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
    return "[" + " ".join(go_quoted(item) for item in items) + "]"
