"""Names of objects."""

from __future__ import annotations

import itertools

import pytest

from certwright.kube.api.naming import SUBDOMAIN_MESSAGE, SUBDOMAIN_PATTERN
from certwright.kube.apiserver.base.object_names import (
    NameRule,
    dns_1035_label,
    dns_label,
    dns_subdomain,
    for_prefix,
    problems,
)


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (dns_label, ["a", "a-1", "1", "x" * 63], ["", "A", "a.b", "-a", "a-", "ä", "x" * 64, "a\n"]),
        (
            dns_subdomain,
            ["a", "a.b-c.d", "1.2", "x" * 253],
            ["", "a..b", ".a", "a.", "A.b", "a_b", "x" * 254],
        ),
        (dns_1035_label, ["a", "a-1"], ["1a", "a.b", ""]),
        (for_prefix(dns_subdomain), ["a-", "a", "a.b-"], ["-", "AB-", ".a-"]),
    ],
)
def test_names(rule: NameRule, good: list[str], bad: list[str]) -> None:
    assert [name for name in good if rule(name) is not None] == []
    assert [name for name in bad if rule(name) is None] == []


def test_a_name_that_is_too_long_is_told_the_limit() -> None:
    assert dns_label("x" * 64) == "must be no more than 63 characters"


def test_a_name_that_is_too_long_is_told_what_else_is_wrong_with_it() -> None:
    for marks in itertools.product("a-.A", repeat=5):
        name = "".join(marks) + "b" * 300 + "".join(reversed(marks))
        has_form = SUBDOMAIN_PATTERN.fullmatch(name) is not None
        assert (SUBDOMAIN_MESSAGE not in problems(dns_subdomain, name)) is has_form, name
