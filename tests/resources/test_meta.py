"""Metadata, names, labels and annotations of objects; what a refusal says."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from certwright.kube.api import conditions, errors
from certwright.kube.api.core import CORE_KINDS, SECRETS
from certwright.kube.api.errors import MAX_CAUSES, invalid, invalid_object
from certwright.kube.api.meta import Condition, ObjectKey, ObjectMeta, OwnerReference, controller_of
from certwright.kube.api.naming import (
    MAX_ANNOTATIONS_BYTES,
    NameRule,
    check_annotations,
    check_label_key,
    check_label_value,
    check_labels,
    check_name,
)
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, OUR_KINDS

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
OURS = [kind for kind in errors.ApiError.__subclasses__() if kind.__module__ == errors.__name__]


def test_a_new_condition_has_the_time_in_whole_seconds() -> None:
    (ready,) = conditions.with_condition((), Condition(type="Ready", status="True"), NOW)
    assert ready.last_transition_time == NOW.replace(microsecond=0)


def test_the_transition_time_stays_while_the_status_stays() -> None:
    first = conditions.with_condition((), Condition(type="Ready", status="False", reason="A"), NOW)
    later = NOW + timedelta(hours=1)
    same = conditions.with_condition(first, Condition(type="Ready", status="False", reason="B"), later)
    assert (same[0].reason, same[0].last_transition_time) == ("B", first[0].last_transition_time)
    changed = conditions.with_condition(same, Condition(type="Ready", status="True"), later)
    assert changed[0].last_transition_time == later.replace(microsecond=0)


def test_other_conditions_keep_their_place() -> None:
    before = tuple(Condition(type=name, status="True") for name in ("A", "B", "C"))
    after = conditions.with_condition(before, Condition(type="B", status="False"), NOW)
    assert [condition.type for condition in after] == ["A", "B", "C"]
    assert conditions.is_true(after, "A")
    assert not conditions.is_true(after, "B")
    assert not conditions.is_true(after, "D")
    assert [condition.type for condition in conditions.without(after, "B")] == ["A", "C"]
    assert conditions.find(after, "D") is None


def test_the_controller_is_the_owner_that_is_marked() -> None:
    owners = tuple(
        OwnerReference(api_version="v1", kind="K", name=name, uid=name, controller=name == "b" or None)
        for name in "ab"
    )
    owner = controller_of(ObjectMeta(owner_references=owners))
    assert owner is not None
    assert owner.name == "b"
    assert controller_of(ObjectMeta()) is None


OURS[OURS.index(errors.NotAcceptable)] = errors.Denied  # what a client understands a 406 as


@pytest.mark.parametrize("kind", OURS)
def test_each_error_comes_back_as_itself(kind: type[errors.ApiError]) -> None:
    error = kind("no luck", details=errors.Details(name="x", retry_after_seconds=3))
    status = error.status()
    assert status["status"] == "Failure"
    back = errors.from_response(error.http_status, json.dumps(status).encode())
    assert (type(back), back.message, back.reason) == (kind, "no luck", error.default_reason)
    assert back.retry_after_s == 3


def test_a_denial_is_shown_without_the_opening_words_of_the_webhook() -> None:
    wrong = [errors.required("spec.secretName", "must be specified"), errors.invalid("spec.x", 1, "no")]
    denied = errors.denied_object("cert-manager.io", "Certificate", "web", wrong)
    assert denied.message == (
        'admission webhook "webhook.cert-manager.io" denied the request: '
        "[spec.secretName: Required value: must be specified, spec.x: Invalid value: 1: no]"
    )
    back = errors.from_response(denied.http_status, json.dumps(denied.status()).encode())
    assert str(back) == "[spec.secretName: Required value: must be specified, spec.x: Invalid value: 1: no]"
    assert (back.http_status, back.reason, back.causes) == (406, "NotAcceptable", denied.causes)
    assert isinstance(back, errors.Invalid)


def test_an_answer_that_is_no_status_is_still_an_error() -> None:
    error = errors.from_response(502, b"<html>Bad Gateway</html>")
    assert (error.http_status, error.message) == (502, "HTTP status 502: <html>Bad Gateway</html>")
    assert errors.from_response(404, b"").message == "HTTP status 404"


def test_an_invalid_object_names_all_fields() -> None:
    field_errors = [errors.required("spec.a", "say it"), errors.not_supported("spec.b", "x", ("y",))]
    error = errors.invalid_object("cert-manager.io", "Certificate", "web", field_errors)
    assert error.message == (
        'Certificate.cert-manager.io "web" is invalid: [spec.a: Required value: say it, '
        'spec.b: Unsupported value: "x": supported values: "y"]'
    )
    assert [cause.field for cause in error.causes] == ["spec.a", "spec.b"]


def test_kinds_know_their_paths() -> None:
    assert CERTIFICATES.path("default", "web", "status") == (
        "/apis/cert-manager.io/v1/namespaces/default/certificates/web/status"
    )
    assert CERTIFICATES.path() == "/apis/cert-manager.io/v1/certificates"
    assert CLUSTER_ISSUERS.path("ignored", "ca") == "/apis/cert-manager.io/v1/clusterissuers/ca"
    assert SECRETS.path("default") == "/api/v1/namespaces/default/secrets"
    assert (SECRETS.resource, CERTIFICATES.resource) == ("secrets", "certificates.cert-manager.io")


def test_no_two_kinds_share_a_path() -> None:
    kinds = OUR_KINDS + CORE_KINDS
    assert len({kind.path() for kind in kinds}) == len(kinds)


def test_a_key_reads_as_namespace_and_name() -> None:
    assert str(ObjectKey("default", "web")) == "default/web"
    assert str(ObjectMeta(name="ca").key) == "ca"


def test_as_many_mistakes_are_told_as_fit_into_a_megabyte() -> None:
    few = [invalid(f"spec.f{number}", "x" * 300_000, "no") for number in range(10)]
    many = [invalid(f"spec.f{number}", "x", "no") for number in range(MAX_CAUSES + 5)]
    assert len(invalid_object("", "Pod", "a", few).causes) == 3
    assert invalid_object("", "Pod", "a", few).message.endswith("and 7 more]")
    assert len(invalid_object("", "Pod", "a", many).causes) == MAX_CAUSES
    assert invalid_object("", "Pod", "a", many).message.endswith("and 5 more]")


def test_one_mistake_is_told_however_large_it_is() -> None:
    assert len(invalid_object("", "Pod", "a", [invalid("spec", "x" * 3_000_000, "no")] * 2).causes) == 1


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
