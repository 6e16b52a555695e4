"""Which ClusterRoles an aggregation rule selects."""

from __future__ import annotations

import pytest

from certwright.kube.apiserver.background.own_objects import Selectors
from certwright.kube.apiserver.requests.selectors import Requirement


def one_of(key: str, *values: str) -> Requirement:
    return Requirement(key, "in", frozenset(values))


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ((), True),
        ((one_of("a", "1"),), True),
        ((one_of("a", "0", "1"), one_of("b", "2")), True),
        ((one_of("a", "1"), one_of("b", "0")), False),
        ((one_of("c", "1"),), False),
        ((Requirement("b", "exists"),), True),
        ((Requirement("b", "exists"), one_of("a", "0")), False),
        ((Requirement("a", "!"),), False),
        ((Requirement("c", "!"), one_of("a", "1")), True),
        ((Requirement("a", "notin", frozenset({"1"})),), False),
        ((Requirement("a", "notin", frozenset({"0"})),), True),
    ],
)
def test_a_role_is_selected_by_its_labels(selector: tuple[Requirement, ...], *, is_selected: bool) -> None:
    never = (one_of("never", "there"),)
    assert Selectors([never, selector, never]).match({"a": "1", "b": "2"}) is is_selected


def test_of_thousands_of_selectors_those_are_looked_at_that_name_a_label_of_the_role() -> None:
    selectors = Selectors([(one_of(f"k{number}", "v"),) for number in range(20_000)])
    assert len(list(selectors.near({"k7": "v", "other": "v"}))) == 1
    assert selectors.match({"k19999": "v"})
    assert not selectors.match({"k19999": "w"})
