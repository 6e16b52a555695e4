"""The page of issuers: the tree of CAs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from certwright.dashboard.index import Row, row_of
from certwright.dashboard.issuers import Authority, tree_of


def certificate(name: str, issuer: str, *, is_ca: bool = False) -> Row:
    spec = {"secretName": name, "isCA": is_ca, "issuerRef": {"name": issuer}}
    return row_of({"metadata": {"namespace": "shop", "name": name}, "spec": spec})


def issuer(name: str, secret: str) -> dict[str, Any]:
    return {
        "kind": "Issuer",
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"ca": {"secretName": secret}},
    }


def drawn(tree: Sequence[Authority]) -> Any:
    return {f"{each.row.name} {each.number}": drawn(each.below) for each in tree}


def test_cas_are_below_the_one_that_has_signed_them() -> None:
    issuers = [issuer("by-root", "root"), issuer("by-middle", "middle")]
    cas = [certificate("root", "own", is_ca=True), certificate("middle", "by-root", is_ca=True)]
    leaves = [certificate("web", "by-middle"), certificate("api", "by-middle"), certificate("old", "by-root")]
    tree = tree_of(issuers, [*cas, *leaves, certificate("itself", "by-itself", is_ca=True)])
    assert drawn(tree) == {"root 1": {"middle 2": {}}, "itself 0": {}}
    assert tree[0].issuers == ["Issuer/by-root in shop"]


def test_a_long_chain_of_cas_stops_nobody() -> None:
    number = 3_000
    issuers = [issuer(f"by-{n}", f"ca-{n}") for n in range(number)]
    cas = [certificate(f"ca-{n}", f"by-{n - 1}", is_ca=True) for n in range(number)]
    tree = tree_of(issuers, cas)
    shown, level = [], tree
    while level:
        shown += [each.row.name for each in level]
        level = [below for each in level for below in each.below]
    assert shown == [f"ca-{n}" for n in range(number)]
