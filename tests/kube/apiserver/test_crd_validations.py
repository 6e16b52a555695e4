"""Rules that a CustomResourceDefinition brings: which are accepted, and what is said of the others.

The texts are those of k8s.io/apiextensions-apiserver 0.35.0. And the rules of our own definitions: whatever
they refuse, our own validation refuses.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from certwright.kube.apiserver.base import schema_common
from certwright.kube.apiserver.crds.validations import rule_errors
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.validation import validate
from kube.apiserver.callers import Json

TEXT: Json = {"type": "string", "maxLength": 20}
NUMBER: Json = {"type": "integer"}
PROPERTIES: Json = {
    "a": TEXT,
    "n": NUMBER,
    "d": {"type": "number"},
    "a-b": TEXT,
    "namespace": TEXT,
    "o": {"type": "object", "properties": {"x": NUMBER}},
    "l": {"type": "array", "maxItems": 9, "items": TEXT},
    "m": {"type": "object", "additionalProperties": TEXT},
    "mo": {"type": "object", "additionalProperties": {"type": "object", "properties": {"q": TEXT}}},
    "ios": {"x-kubernetes-int-or-string": True},
    "ts": {"type": "string", "format": "date-time"},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "a_b": TEXT,
    "aB": {"type": "object", "additionalProperties": TEXT},
}


def checked(*rules: str | Json, **more: Any) -> list[str]:
    given = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    spec: Json = {"type": "object", "properties": PROPERTIES | more}
    if given:
        spec["x-kubernetes-validations"] = given
    errors = rule_errors("root", {"type": "object", "properties": {"spec": spec}})
    return [f"{error.field.removeprefix('root.properties[spec].')}: {error.detail}" for error in errors]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("a", "expected [ or . but got: a"),
        (".zz", "does not refer to a valid field"),
        (".m[k]", "expected single quoted string but got k"),
        (".", "unexpected end of JSON path"),
        (".m['k'", "unexpected end of JSON path"),
    ],
)
def test_a_path_that_leads_nowhere(path: str, problem: str) -> None:
    with pytest.raises(ValueError) as error:
        schema_common.resolve(path, {"type": "object", "properties": PROPERTIES})
    assert str(error.value) == problem


def test_a_path_is_shown_in_one_way() -> None:
    schema = {"type": "object", "properties": PROPERTIES}
    assert schema_common.resolve("['o'].x", schema) == ("o.x", NUMBER)
    assert schema_common.resolve(".m['it\\'s']", schema) == ("m[it's]", TEXT)


# --- our own ----------------------------------------------------------------------------------------------

OURS = {crd["spec"]["names"]["kind"]: crd for crd in custom_resource_definitions()}
REQUEST: Json = {"request": "aGk=", "issuerRef": {"name": "ca"}}
CERTIFICATE: Json = {"secretName": "s", "dnsNames": ["a.example"], "issuerRef": {"name": "ca"}}
ORDER: Json = {"request": "aGk=", "issuerRef": {"name": "ca"}}
CHALLENGE: Json = {
    "authorizationURL": "https://a",
    "dnsName": "a.example",
    "issuerRef": {"name": "ca"},
    "key": "k",
    "solver": {},
    "token": "t",
    "type": "DNS-01",
    "url": "https://u",
    "wildcard": False,
}


def decided(**statuses: str) -> Json:
    return {"conditions": [{"type": kind, "status": status} for kind, status in statuses.items()]}


def test_rules_are_accepted_whatever_they_may_cost() -> None:
    words: Json = {"type": "array", "items": TEXT}
    assert checked("self.w.all(x, self.w.all(y, self.w.all(z, x + y == z)))", w=words) == []


@pytest.mark.parametrize("kind", sorted(OURS))
def test_our_own_rules_compile(kind: str) -> None:
    assert rule_errors("x", OURS[kind]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) == []


@pytest.mark.parametrize(
    ("kind", "new", "old"),
    [
        ("Issuer", {"spec": {}}, None),
        ("ClusterIssuer", {"spec": {"selfSigned": {}, "ca": {"secretName": "s"}}}, None),
        (
            "Certificate",
            {"spec": CERTIFICATE | {"literalSubject": "CN=a", "subject": {"countries": ["DE"]}}},
            None,
        ),
        ("Certificate", {"spec": CERTIFICATE | {"literalSubject": "CN=a", "commonName": "a"}}, None),
        ("Certificate", {"spec": CERTIFICATE | {"renewBefore": "1h", "renewBeforePercentage": 5}}, None),
        ("Certificate", {"spec": CERTIFICATE | {"revisionHistoryLimit": 0}}, None),
        (
            "Certificate",
            {"spec": CERTIFICATE | {"nameConstraints": {"permitted": {"dnsDomains": ["a.example"]}}}},
            None,
        ),
        ("CertificateRequest", {"spec": REQUEST, "status": decided(Approved="False")}, None),
        ("CertificateRequest", {"spec": REQUEST, "status": decided(Approved="True", Denied="True")}, None),
        ("CertificateRequest", {"spec": REQUEST | {"isCA": True}}, {"spec": REQUEST}),
        (
            "CertificateRequest",
            {"spec": REQUEST, "status": decided(Ready="True")},
            {"spec": REQUEST, "status": decided(Approved="True")},
        ),
        ("Order", {"spec": ORDER | {"request": "aGo="}}, {"spec": ORDER}),
        ("Order", {"spec": ORDER, "status": {"url": "b"}}, {"spec": ORDER, "status": {"url": "a"}}),
        ("Challenge", {"spec": CHALLENGE | {"token": "u"}}, {"spec": CHALLENGE}),
    ],
)
def test_what_our_rules_refuse_our_validation_refuses(kind: str, new: Json, old: Json | None) -> None:
    crd = OURS[kind]
    schema = Schema(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    head = {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "x"}}
    after, before = {**head, **copy.deepcopy(new)}, {**head, **copy.deepcopy(old)} if old else None
    assert schema.process(after) == []
    by_rule = {(error.field, error.detail) for error in schema.validate(after, before)}
    assert len(by_rule) == 1, by_rule
    assert validate(kind, crd["spec"]["group"], after, before) != []


def test_a_literal_subject_may_stand_beside_an_empty_one() -> None:
    schema = Schema(OURS["Certificate"]["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    head = {"apiVersion": "x/v1", "kind": "Certificate", "metadata": {"name": "x"}}
    for subject in ({}, {"organizations": [], "serialNumber": ""}):
        spec = CERTIFICATE | {"literalSubject": "CN=a", "subject": subject}
        assert schema.validate({**head, "spec": spec}, None) == []


async def test_our_server_says_it_once(api: Any) -> None:
    path = "/apis/cert-manager.io/v1/namespaces/default/issuers"
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": {"name": "x"}, "spec": {}}
    answer = await api.call("POST", path, issuer)
    assert len(answer.json["details"]["causes"]) == 1
