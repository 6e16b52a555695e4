"""The active member of a set: it leaves a failing member immediately, and returns after a while."""

from __future__ import annotations

from datetime import timedelta

import pytest

from certwright.controllers.issuer_sets import RETURN_AFTER, Activity, next_activity
from certwright.resources.issuer import IssuerSetStatus
from certwright.resources.references import IssuerReference
from support.world import START

A, B, C = (IssuerReference(name=name) for name in "abc")
ALL = (A, B, C)
SOON = START + RETURN_AFTER


@pytest.mark.parametrize(
    ("former", "working", "expected"),
    [
        pytest.param(None, ALL, Activity(A), id="at first the preferred member is active"),
        pytest.param(None, (), Activity(), id="none is active where none works"),
        pytest.param(A, (B, C), Activity(B), id="a failing member is left immediately"),
        pytest.param(B, (C,), Activity(C), id="also where the preferred one still fails"),
        pytest.param(B, ALL, Activity(B, SOON), id="a preferred member that works again must prove itself"),
        pytest.param(B, (B, C), Activity(B), id="nothing changes while the preferred one fails"),
        pytest.param(C, (A, C), Activity(C, SOON), id="the first that works is the one to return to"),
        pytest.param(
            B, (A, C), Activity(A), id="a failing member is left even for one that has just returned"
        ),
    ],
)
def test_the_active_member_follows_from_the_former_and_those_that_work(
    former: IssuerReference | None, working: tuple[IssuerReference, ...], expected: Activity
) -> None:
    status = IssuerSetStatus(active=former)
    assert next_activity(ALL, working, status, START, is_changed=False) == expected


def test_the_set_returns_when_the_preferred_member_has_worked_for_long_enough() -> None:
    status = IssuerSetStatus(active=B, return_time=SOON)
    before = next_activity(ALL, ALL, status, SOON - timedelta(seconds=1), is_changed=False)
    assert before == Activity(B, SOON)
    assert next_activity(ALL, ALL, status, SOON, is_changed=False) == Activity(A)


def test_a_preferred_member_that_fails_again_begins_anew() -> None:
    status = IssuerSetStatus(active=B, return_time=SOON)
    assert next_activity(ALL, (B, C), status, START, is_changed=False) == Activity(B)


def test_a_changed_order_applies_immediately() -> None:
    assert next_activity(ALL, ALL, IssuerSetStatus(active=B), START, is_changed=True) == Activity(A)
