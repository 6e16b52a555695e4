"""Who names whom as owner."""

from __future__ import annotations

from certwright.kube.apiserver.background.gc import Dependents
from certwright.kube.store.contract import Key

A, B, C = (Key("secrets", "ns", name) for name in "abc")


def test_dependents_are_told_in_the_order_in_which_they_came() -> None:
    known = Dependents()
    for key in (B, A, B, C):
        known.add("owner", key)
    known.add("other", A)
    assert (list(known.of("owner")), list(known.of("other")), list(known.of("nobody"))) == (
        [B, A, C],
        [A],
        [],
    )


def test_an_owner_whom_nobody_names_is_forgotten() -> None:
    known = Dependents()
    for key in (A, B):
        known.add("owner", key)
        known.add("owner", key)
    known.discard("owner", A)
    known.discard("owner", C)
    assert ("owner" in known, list(known.of("owner"))) == (True, [B])
    known.discard("owner", B)
    known.add("single", A)
    known.discard("single", B)
    known.discard("nobody", A)
    assert ("owner" in known, "single" in known) == (False, True)
    known.discard("single", A)
    assert "single" not in known
