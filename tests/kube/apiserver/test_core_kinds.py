"""The rules of the built-in kinds beside their schemas."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from certwright.kube.api.errors import BadRequest
from certwright.kube.apiserver.builtin import make_registry
from certwright.kube.apiserver.model.definitions import ResourceDefinition
from certwright.kube.util.clock import TestClock
from kube.apiserver.callers import Json

REGISTRY = make_registry(TestClock())
KEY = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"


def definition(kind: str) -> ResourceDefinition:
    return next(d for d in REGISTRY.all() if d.kind == kind)


def create(kind: str, **fields: Any) -> tuple[Json, list[str]]:
    """The object as it would be stored, and what is wrong with it."""
    own = definition(kind)
    obj: Json = {
        "apiVersion": own.api_version,
        "kind": kind,
        "metadata": {"name": "x", "namespace": "ns"},
        **fields,
    }
    own.schema.process(obj)
    errors = own.schema.validate(obj)
    if not errors:
        own.strategy.prepare_create(obj)
        own.strategy.defaults(obj)
        errors = own.strategy.validate(obj, None)
    return obj, [str(error) for error in errors]


def update(kind: str, old: Json, **fields: Any) -> tuple[Json, list[str]]:
    own = definition(kind)
    obj = {**old, **fields}
    own.strategy.prepare_update(obj, old)
    own.strategy.defaults(obj)
    return obj, [str(error) for error in own.strategy.validate(obj, old)]


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_string_data_of_a_secret_becomes_data() -> None:
    secret, errors = create("Secret", data={"a": b64("1"), "b": b64("2")}, stringData={"b": "3", "c": "4"})
    assert errors == []
    assert secret["data"] == {"a": b64("1"), "b": b64("3"), "c": b64("4")}
    assert "stringData" not in secret
    assert secret["type"] == "Opaque"


def test_line_breaks_in_base64_are_taken_out() -> None:
    secret, errors = create("Secret", data={"a": "aG\nk=\n"})
    assert (errors, secret["data"]) == ([], {"a": "aGk="})


def test_a_secret_with_bad_base64_is_refused_without_showing_it() -> None:
    with pytest.raises(BadRequest) as caught:
        create("Secret", data={"password": "hunter2!"})
    assert str(caught.value) == (
        'Secret in version "v1" cannot be handled as a Secret: data.password: the text is not valid base64'
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"type": "kubernetes.io/tls", "data": {"tls.key": ""}}, ["data[tls.crt]: Required value"]),
        (
            {"type": "kubernetes.io/tls"},
            ["data[tls.crt]: Required value", "data[tls.key]: Required value"],
        ),
        ({"type": "kubernetes.io/tls", "data": {"tls.key": "", "tls.crt": ""}}, []),
        ({"type": "kubernetes.io/ssh-auth"}, ["data[ssh-privatekey]: Required value"]),
        ({"type": "kubernetes.io/basic-auth", "data": {"password": ""}}, []),
        (
            {"type": "kubernetes.io/service-account-token"},
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        ({"type": "example.com/own"}, []),
        ({"stringData": {"..": "x"}}, ["data[..]: Invalid value: \"..\": must not be '..'"]),
        ({"stringData": {"..a": "x"}}, ["data[..a]: Invalid value: \"..a\": must not start with '..'"]),
        ({"stringData": {"a": "x" * (1024 * 1024)}}, []),
        (
            {"stringData": {"a": "x" * (1024 * 1024), "b": "more"}},
            ["data: Too long: may not be more than 1048576 bytes"],
        ),
    ],
)
def test_rules_of_secrets(fields: Json, expected: list[str]) -> None:
    assert create("Secret", **fields)[1] == expected


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_keys_are_letters_digits_and_three_marks(kind: str) -> None:
    [error] = create(kind, data={"a b": ""})[1]
    assert error.startswith(f'data[a b]: Invalid value: "a b": {KEY}')


def test_the_type_of_a_secret_cannot_be_changed_but_left_out() -> None:
    secret, _ = create("Secret", type="example.com/a")
    assert update("Secret", secret, type="example.com/b")[1] == [
        'type: Invalid value: "example.com/b": field is immutable'
    ]
    kept, errors = update("Secret", secret, type="")
    assert (kept["type"], errors) == ("example.com/a", [])


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_what_is_immutable_stays(kind: str) -> None:
    old, _ = create(kind, data={"a": b64("1")}, immutable=True)
    text = "Forbidden: field is immutable when `immutable` is set"
    assert update(kind, old)[1] == []
    assert update(kind, old, data={})[1] == [f"data: {text}"]
    assert update(kind, old, immutable=False)[1] == [f"immutable: {text}"]


def test_a_config_map_has_a_key_only_once() -> None:
    [error] = create("ConfigMap", data={"a": "1"}, binaryData={"a": b64("1")})[1]
    assert error == 'data[a]: Invalid value: "a": duplicate of key present in binaryData'


def test_a_namespace_begins_active_and_says_its_name_in_a_label() -> None:
    namespace, errors = create("Namespace", status={"phase": "Terminating"})
    assert errors == []
    assert namespace["status"] == {"phase": "Active"}
    assert namespace["spec"] == {"finalizers": ["kubernetes"]}
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "x"}


def test_an_update_of_a_namespace_changes_neither_spec_nor_status() -> None:
    old, _ = create("Namespace")
    new, _ = update("Namespace", old, spec={"finalizers": []}, status={"phase": "Gone"})
    assert (new["spec"], new["status"]) == (old["spec"], old["status"])


@pytest.mark.parametrize(
    ("about", "namespace", "expected"),
    [
        ({"namespace": "ns"}, "ns", []),
        ({}, "default", []),
        ({}, "ns", ['involvedObject.namespace: Invalid value: "": does not match event.namespace']),
        (
            {"namespace": "other"},
            "ns",
            ['involvedObject.namespace: Invalid value: "other": does not match event.namespace'],
        ),
    ],
)
def test_an_event_lives_beside_its_object(about: Json, namespace: str, expected: list[str]) -> None:
    own = definition("Event")
    event = {"metadata": {"name": "e", "namespace": namespace}, "involvedObject": about}
    assert [str(error) for error in own.strategy.validate(event, None)] == expected


def test_a_lease_lasts_longer_than_nothing() -> None:
    _, errors = create("Lease", spec={"leaseDurationSeconds": 0, "leaseTransitions": -1})
    assert errors == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
        "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
    ]
