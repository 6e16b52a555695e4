"""Conditions, errors and kinds."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from certwright.kube.api import conditions, errors
from certwright.kube.api.core import CORE_KINDS, SECRETS
from certwright.kube.api.meta import Condition, ObjectKey, ObjectMeta, OwnerReference, controller_of
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, OUR_KINDS

NOW = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)


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


OURS = [kind for kind in errors.ApiError.__subclasses__() if kind.__module__ == errors.__name__]
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
