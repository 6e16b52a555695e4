"""What a user would grant, beside what he holds: rules looked up piece by piece."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from certwright.kube.apiserver.auth.privileges import count_pieces, missing
from certwright.kube.apiserver.auth.rbac import Rule

_VERBS, _GROUPS = ("get", "list", "*"), ("", "apps", "*")
_RESOURCES = ("pods", "pods/log", "jobs", "*", "*/log")
_NAMES, _PATHS = ("a", "b"), ("/x", "/x/y", "/x*", "/x/*", "*")


def words(of: tuple[str, ...], least: int = 1) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(of), min_size=least, max_size=3, unique=True).map(tuple)


ON_RESOURCES = st.builds(
    Rule,
    verbs=words(_VERBS),
    api_groups=words(_GROUPS),
    resources=words(_RESOURCES),
    resource_names=words(_NAMES, 0),
)
ON_PATHS = st.builds(Rule, verbs=words(_VERBS), non_resource_urls=words(_PATHS))
RULES = st.lists(ON_RESOURCES | ON_PATHS, max_size=4)


def is_covered(piece: Rule, granted: list[Rule]) -> bool:
    """As the authorizer would answer who asks for it."""
    (verb,) = piece.verbs
    if piece.non_resource_urls:
        return any(own.covers_path(verb, piece.non_resource_urls[0]) for own in granted)
    resource, _, subresource = piece.resources[0].partition("/")
    return any(
        own.covers(verb, piece.api_groups[0], resource, subresource)
        and (not own.resource_names or bool({*piece.resource_names} & {*own.resource_names}))
        for own in granted
    )


@given(requested=RULES, granted=RULES)
def test_what_is_missing_is_what_the_authorizer_would_refuse(
    requested: list[Rule], granted: list[Rule]
) -> None:
    pieces = missing(requested, [])
    assert len(pieces) == count_pieces(requested)
    assert missing(requested, granted) == [piece for piece in pieces if not is_covered(piece, granted)]


def test_much_that_is_held_is_looked_up_by_what_is_asked_for() -> None:
    many = tuple(f"w{number}" for number in range(500))
    granted = [Rule(verbs=many, api_groups=many, resources=many)]
    assert missing([Rule(("w1",), ("w2",), ("w3",))], granted) == []
    assert len(missing([Rule(("w1",), ("w2",), ("w500",))], granted)) == 1


def test_pieces_are_counted_without_being_made() -> None:
    many = tuple(f"w{number}" for number in range(10_000))
    assert count_pieces([Rule(many, many, many, many), Rule(verbs=many, non_resource_urls=many)]) == (
        10_000**4 + 10_000**2
    )
