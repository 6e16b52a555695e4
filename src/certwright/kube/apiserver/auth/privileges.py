"""Privileges that a write needs: to grant permissions, and to approve and sign requests.

Users who may `escalate` roles, or `bind` the role in question, are excepted, and system:masters. Kubernetes'
CertificateSigningRequests need the verbs `approve` and `sign` on `signers`.

Source: Kubernetes documentation, "Privilege escalation prevention and bootstrapping"; admission plug-ins
CertificateApproval, CertificateSigning, CertificateSubjectRestriction; `pkg/registry/rbac`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import msgspec
from cryptography import x509
from cryptography.x509.oid import NameOID

from certwright.kube.api.errors import Details, NotFound
from certwright.kube.apiserver.auth.rbac import ALL, GROUP, Rbac, RoleRef, Rule, refused
from certwright.kube.apiserver.base.json_values import Json
from certwright.kube.apiserver.base.users import MASTERS
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.apiserver.model.routes import Action, Authorizer
from certwright.kube.util.decoders import convert
from certwright.kube.util.encoding import quoted
from certwright.kube.util.http_messages import Identity

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
        _compare(user, definition, name, convert(new.get("rules") or (), tuple[Rule, ...]), own)
        aggregates = new.get("aggregationRule") or (old or {}).get("aggregationRule")
        if aggregates and missing(_EVERYTHING, own):
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
    if (pieces := count_pieces(requested)) > MAX_PIECES:
        why = (
            f"the rules are of {pieces} combinations of verbs, groups, resources, names and paths: at most "
            f"{MAX_PIECES} can be compared with the RBAC permissions currently held"
        )
        raise refused(GROUP, definition.plural, name, why)
    if uncovered := missing(requested, own):
        # Rules on the same resource are shown as one, with all their verbs.
        verbs: dict[Rule, dict[str, None]] = {}
        for rule in uncovered:
            verbs.setdefault(msgspec.structs.replace(rule, verbs=()), {}).update(dict.fromkeys(rule.verbs))
        lines = set()
        for rule, rule_verbs in verbs.items():
            parts = {
                "APIGroups": rule.api_groups,
                "Resources": rule.resources,
                "NonResourceURLs": rule.non_resource_urls,
                "ResourceNames": rule.resource_names,
                "Verbs": tuple(rule_verbs),
            }
            shown = ", ".join(f"{part}:{_list(items)}" for part, items in parts.items() if items)
            lines.add(f"{{{shown}}}")
        why = (
            f"user {quoted(user.name)} (groups={_list(user.groups)}) is attempting to grant RBAC permissions "
            "not currently held:\n" + "\n".join(sorted(lines))
        )
        raise refused(GROUP, definition.plural, name, why)


def _list(items: tuple[str, ...]) -> str:
    return "[" + " ".join(quoted(item) for item in items) + "]"


KUBERNETES = "certificates.k8s.io"
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"


def concerns(definition: ResourceDefinition) -> bool:
    """Whether objects of this kind need approval."""
    return definition.kind == "CertificateSigningRequest" and definition.group == KUBERNETES


def check(authorizer: Authorizer, user: Identity, subresource: str, new: Json, old: Json | None) -> None:
    """Return when nothing was approved, denied or signed, or `user` may do so. Raises `Forbidden`."""
    name, signer = new["metadata"].get("name", ""), new["spec"].get("signerName", "")
    if old is None:
        if signer == _CLIENT_SIGNER and MASTERS in _organizations(new):
            why = f"use of {_CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
            raise refused(KUBERNETES, "certificatesigningrequests", name, why)
        return
    verb = "approve" if subresource == "approval" else "sign" if _signed(new) != _signed(old) else ""
    names = (signer, f"{signer.partition('/')[0]}/*")
    if verb and not any(authorizer.allows(user, Action(verb, KUBERNETES, "signers", name=n)) for n in names):
        why = f"user not permitted to {verb} requests with signerName {quoted(signer)}"
        raise refused(KUBERNETES, "certificatesigningrequests", name, why)


def _signed(request: Json) -> tuple[Any, Any]:
    status = request.get("status") or {}
    return status.get("certificate"), status.get("conditions")


def _organizations(request: Json) -> set[str]:
    """The organizations (groups) in the CSR's subject; none where the CSR cannot be read."""
    try:
        csr = x509.load_pem_x509_csr(base64.b64decode(request["spec"].get("request", "")))
    except (ValueError, binascii.Error):
        return set()
    return {str(name.value) for name in csr.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)}


MAX_PIECES = 20_000
"""Combinations of verbs, groups, resources and names, and of verbs and paths, that are compared. Kubernetes'
role `admin` has some 500."""

_Place = tuple[str, str, str]
"""A verb, a group, and a resource as a rule names it."""


def count_pieces(rules: Iterable[Rule]) -> int:
    """The number of pieces, without creating them."""
    return sum(
        prod(map(len, (rule.verbs, rule.api_groups, rule.resources))) * max(1, len(rule.resource_names))
        + len(rule.verbs) * len(rule.non_resource_urls)
        for rule in rules
    )


def missing(requested: Iterable[Rule], granted: Sequence[Rule]) -> list[Rule]:
    """The pieces of `requested` that no rule in `granted` covers; `count_pieces` returns their number."""
    pieces = [piece for rule in requested for piece in _pieces(rule)]
    resources = _Resources(granted, {place for piece in pieces for place in _places(piece)})
    paths = _Paths(granted, {verb for piece in pieces for verb in piece.verbs})
    return [piece for piece in pieces if not (paths if piece.non_resource_urls else resources).cover(piece)]


def _pieces(rule: Rule) -> list[Rule]:
    """The smallest pieces of the rule, each of which another rule covers completely or not at all."""
    pieces = [
        Rule((verb,), (group,), (resource,), (name,) if name else ())
        for group in rule.api_groups
        for resource in rule.resources
        for verb in rule.verbs
        for name in rule.resource_names or ("",)
    ]
    pieces += [
        Rule((verb,), non_resource_urls=(url,)) for url in rule.non_resource_urls for verb in rule.verbs
    ]
    return pieces


def _places(piece: Rule) -> Iterator[_Place]:
    """The index keys under which a rule that covers the piece may be."""
    if piece.resources:
        resource, slash, subresource = piece.resources[0].partition("/")
        patterns = (ALL, f"*/{subresource}", f"{resource}/{subresource}") if slash else (ALL, resource)
        yield from product((ALL, *piece.verbs), (ALL, *piece.api_groups), patterns)


class _Resources:
    """Resource rules, indexed only under the requested keys."""

    def __init__(self, granted: Iterable[Rule], asked: set[_Place]) -> None:
        self._names: dict[_Place, set[str] | None] = {}  # None: any object name
        for rule in dict.fromkeys(granted):
            for place in _granted_places(rule, asked):
                names = self._names.setdefault(place, set())
                if not rule.resource_names:
                    self._names[place] = None
                elif names is not None:
                    names.update(rule.resource_names)

    def cover(self, piece: Rule) -> bool:
        """Whether one of the rules covers the piece."""
        nothing: set[str] = set()
        name_sets = [self._names.get(place, nothing) for place in _places(piece)]
        return any(names is None or not names.isdisjoint(piece.resource_names) for names in name_sets)


def _granted_places(rule: Rule, asked: set[_Place]) -> Iterator[_Place]:
    words = (rule.verbs, rule.api_groups, rule.resources)
    if prod(map(len, words)) <= len(asked):
        return (place for place in product(*words) if place in asked)
    verbs, groups, resources = map(frozenset, words)
    return (place for place in asked if place[0] in verbs and place[1] in groups and place[2] in resources)


class _Paths:
    """Rules on paths, indexed only under the requested verbs."""

    def __init__(self, granted: Iterable[Rule], asked: set[str]) -> None:
        self._urls: set[tuple[str, str]] = set()
        self._beginnings: set[tuple[str, str]] = set()
        for rule in dict.fromkeys(granted):
            for verb in (asked | {ALL}).intersection(rule.verbs) if rule.non_resource_urls else ():
                self._urls.update((verb, url) for url in rule.non_resource_urls)
                self._beginnings.update(
                    (verb, url.rstrip(ALL)) for url in rule.non_resource_urls if url.endswith(ALL)
                )
        self._lengths = sorted({len(url) for _, url in self._beginnings})

    def cover(self, piece: Rule) -> bool:
        """Whether one of the rules covers the piece."""
        (path,) = piece.non_resource_urls
        verbs = (ALL, *piece.verbs)
        if any((verb, path) in self._urls for verb in verbs):
            return True
        lengths = [length for length in self._lengths if length <= len(path)]
        return any((verb, path[:length]) in self._beginnings for verb in verbs for length in lengths)
