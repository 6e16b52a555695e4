"""The page of issuers: the tree of CAs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from certwright.dashboard.index import Row, row_of
from certwright.dashboard.issuers import Authority, tree_of


def certificate(name: str, issuer: str, *, is_ca: bool = False, secret: str = "") -> Row:
    spec = {"secretName": secret or name, "isCA": is_ca, "issuerRef": {"name": issuer}}
    return row_of({"metadata": {"namespace": "shop", "name": name}, "spec": spec})


def issuer(name: str, secret: str) -> dict[str, Any]:
    return {
        "kind": "Issuer",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"ca": {"secretName": secret}},
    }


def drawn(tree: Sequence[Authority]) -> Any:
    return {f"{each.row.name} {each.number}": drawn(each.below) for each in tree}


BY = [issuer(f"by-{name}", name) for name in ("root", "middle", "a", "b", "c", "self")]
LEAVES = [certificate("web", "by-middle"), certificate("api", "by-middle"), certificate("old", "by-root")]


def ca(name: str, issuer: str, *, secret: str = "") -> Row:
    return certificate(name, issuer, is_ca=True, secret=secret)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [ca("root", "own"), ca("middle", "by-root"), *LEAVES, ca("alone", "own")],
            {"root 1": {"middle 2": {}}, "alone 0": {}},
            id="a chain",
        ),
        pytest.param(
            [ca("a", "by-b"), ca("b", "by-a")], {"a 0": {"b 0": {}}}, id="two that signed each other"
        ),
        pytest.param(
            [ca("x", "by-c"), ca("a", "by-c"), ca("b", "by-a"), ca("c", "by-b"), ca("root", "own")],
            {"root 0": {}, "c 0": {"x 0": {}, "a 0": {"b 0": {}}}},
            id="a circle of three, with one below",
        ),
        pytest.param([ca("self", "by-self")], {"self 0": {}}, id="one that signed itself"),
        pytest.param(
            [ca("self", "by-self"), ca("twin", "by-self", secret="self")],
            {"self 0": {"twin 0": {}}},
            id="two of one Secret, which signs both",
        ),
    ],
)
def test_cas_are_below_the_one_that_has_signed_them(rows: Sequence[Row], expected: Any) -> None:
    tree, more = tree_of(BY, rows)
    assert (drawn(tree), more) == (expected, 0)
    for each in tree:
        assert each.issuers == ([f"Issuer/by-{each.row.name} in shop"] if each.row.name != "alone" else [])
        is_circle = bool(each.below) and each.row.name in "abc"
        assert (each.circle is not None) is is_circle


@pytest.mark.parametrize(("number", "more"), [(400, 0), (3_000, 2_500)])
def test_a_long_chain_of_cas_stops_nobody(number: int, more: int) -> None:
    issuers = [issuer(f"by-{n}", f"ca-{n}") for n in range(number)]
    tree, others = tree_of(issuers, [ca(f"ca-{n}", f"by-{n - 1}") for n in range(number)])
    shown, level = [], tree
    while level:
        shown += [each.row.name for each in level]
        level = [below for each in level for below in each.below]
    assert (shown, others) == ([f"ca-{n}" for n in range(number - more)], more)
