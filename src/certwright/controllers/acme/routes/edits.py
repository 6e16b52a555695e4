"""Edits of an Ingress that belongs to a user: JSON patches (RFC 6902) that touch one path only.

Each patch tests the `resourceVersion` that it was computed from, so an edit of the user in between makes it
fail, and it is computed again: no rule of the user is lost.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
Patch = list[Json]


def patch_to_add(ingress: Json, rule: Json) -> Patch | None:
    """Add the path of `rule`, which has one, for its host; None if the Ingress has it.

    It goes before the user's paths of that host. Without any, the whole rule is appended.
    """
    (path,) = rule["http"]["paths"]
    rules = _rules(ingress)
    for place, entry in _of_host(rules, rule.get("host", "")):
        for number, existing in enumerate(entry["http"]["paths"]):
            if existing.get("path") != path["path"]:
                continue
            if existing == path:
                return None
            # cert-manager's, with another Service.
            return _tested(ingress, "replace", f"/spec/rules/{place}/http/paths/{number}", path)
    for place, _ in _of_host(rules, rule.get("host", "")):
        return _tested(ingress, "add", f"/spec/rules/{place}/http/paths/0", path)
    if not rules:
        return _tested(ingress, "add", "/spec/rules", [rule])
    return _tested(ingress, "add", "/spec/rules/-", rule)


def patch_to_remove(ingress: Json, host: str, path: str) -> Patch | None:
    """Remove the path, and a rule that has no other; None if the Ingress does not have it."""
    removals: list[str] = []
    for place, entry in _of_host(_rules(ingress), host):
        paths = entry["http"]["paths"]
        ours = [number for number, existing in enumerate(paths) if existing.get("path") == path]
        if ours and len(ours) == len(paths):
            removals.append(f"/spec/rules/{place}")
        else:
            removals += [f"/spec/rules/{place}/http/paths/{number}" for number in ours]
    if not removals:
        return None
    if len(removals) == len(_rules(ingress)) and all(removal.count("/") == 3 for removal in removals):
        # An empty list of rules is not valid.
        return _tested(ingress, "remove", "/spec/rules")
    # The last first, because the numbers of those behind a removed one change.
    operations: Patch = [{"op": "remove", "path": removal} for removal in reversed(removals)]
    return [_test(ingress), *operations]


def _rules(ingress: Json) -> list[Json]:
    rules: list[Json] = ingress.get("spec", {}).get("rules") or []
    return rules


def _of_host(rules: list[Json], host: str) -> list[tuple[int, Json]]:
    """The rules for the host that have paths, with their places."""
    return [
        (place, rule)
        for place, rule in enumerate(rules)
        if rule.get("host", "") == host and (rule.get("http") or {}).get("paths")
    ]


def _tested(ingress: Json, operation: str, path: str, value: Any = None) -> Patch:
    change: Json = {"op": operation, "path": path}
    if operation != "remove":
        change["value"] = value
    return [_test(ingress), change]


def _test(ingress: Json) -> Json:
    version = ingress["metadata"]["resourceVersion"]
    return {"op": "test", "path": "/metadata/resourceVersion", "value": version}
