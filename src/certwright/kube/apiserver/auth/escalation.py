"""Escalation check: the parts of some RBAC rules that a user's own rules do not cover.

Rules multiply: one with 100 verbs, groups and resources each has a million pieces, and a role of 2 MB may
contain thousands of them. So the user's rules are looked up by index, not compared rule by rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from certwright.kube.apiserver.auth.rbac import ALL, Rule

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
    """The rule in its smallest pieces, each of which one rule covers completely or not at all."""
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
