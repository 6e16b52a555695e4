"""Names, labels and annotations."""

from __future__ import annotations

import pytest

from certwright.kube.api.naming import (
    MAX_ANNOTATIONS_BYTES,
    NameRule,
    check_annotations,
    check_label_key,
    check_label_value,
    check_labels,
    check_name,
)


@pytest.mark.parametrize("name", ["a", "a-b", "a.b", "1", "a1.b2-c", "x" * 63, ".".join(["x" * 50] * 4)])
def test_dns_1123_subdomains_are_names(name: str) -> None:
    assert check_name(name) is None


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a..b", ".a", "a.", "a_b", "ä", "a\n", "a b", "a/b"])
def test_what_is_no_subdomain_is_refused_in_kubernetes_words(name: str) -> None:
    assert check_name(name) == (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
        "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )


@pytest.mark.parametrize(
    ("name", "rule", "problem"),
    [
        ("a" * 254, "subdomain", "must be no more than 253 bytes"),
        ("a" * 64, "label", "must be no more than 63 bytes"),
        ("..", "path-segment", "may not be '..'"),
        ("a/b", "path-segment", "may not contain '/'"),
        ("a%b", "path-segment", "may not contain '%'"),
        ("system:node", "path-segment", None),
        ("a-b", "label", None),
    ],
)
def test_rules_differ_by_kind_of_name(name: str, rule: NameRule, problem: str | None) -> None:
    assert check_name(name, rule=rule) == problem


def test_a_label_has_no_dots() -> None:
    problem = check_name("a.b", rule="label")
    assert problem is not None
    assert problem.startswith(
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'"
    )


def test_a_name_prefix_may_end_with_a_dash() -> None:
    assert check_name("web-", prefix=True) is None
    assert check_name("web.", prefix=True) is not None


@pytest.mark.parametrize("key", ["a", "A.b_c-D", "example.com/A", "x" * 63, "1/1"])
def test_qualified_names_are_keys(key: str) -> None:
    assert check_label_key(key) is None


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "name part must be non-empty"),
        ("a/", "name part must be non-empty"),
        ("/a", "prefix part must be non-empty"),
        ("a/b/c", "a valid label key must consist of"),
        ("Ex.com/a", "prefix part a lowercase RFC 1123 subdomain"),
        ("a b", "name part must consist of"),
        ("x" * 64, "name part must be no more than 63 bytes"),
    ],
)
def test_what_is_no_key_is_refused(key: str, problem: str) -> None:
    assert (check_label_key(key) or "").startswith(problem)


def test_label_values_may_be_empty_but_not_long_or_strange() -> None:
    assert check_label_value("") is None
    assert check_label_value("a_B.c") is None
    assert (check_label_value("a b") or "").startswith("a valid label must be an empty string or consist of")
    assert check_label_value("x" * 64) == "must be no more than 63 bytes"


def test_each_wrong_label_is_named() -> None:
    errors = check_labels({"a b": "x", "ok": "a b", "fine": "1"}, "metadata.labels")
    assert [error.field for error in errors] == ["metadata.labels"] * 2
    assert errors[0].message.startswith('Invalid value: "a b": name part must consist of')
    assert errors[1].message.startswith('Invalid value: "a b": a valid label must be')


def test_annotations_take_upper_case_prefixes_but_have_a_limit_together() -> None:
    assert check_annotations({"Example.com/A": "anything at all\n"}, "metadata.annotations") == []
    (error,) = check_annotations({"a": "x" * MAX_ANNOTATIONS_BYTES}, "metadata.annotations")
    assert str(error) == "metadata.annotations: Too long: may not be more than 262144 bytes"
