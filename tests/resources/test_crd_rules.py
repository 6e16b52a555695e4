"""Each CEL rule of our definitions rejects an object, and so do the functions that our server runs."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest

from certwright.kube.api.errors import FieldError
from certwright.kube.apiserver.schemas.structural import Schema
from certwright.resources.crd_rules import known_rules
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import OUR_KINDS
from certwright.resources.validation import validate

Json = dict[str, Any]

CERTIFICATE = {"secretName": "a", "dnsNames": ["a.example.com"], "issuerRef": {"name": "ca"}}
REQUEST = {"request": "YQ==", "issuerRef": {"name": "ca"}}
ORDER = {**REQUEST, "dnsNames": ["a.example.com"]}
CHALLENGE = {
    "authorizationURL": "https://ca.example.com/authz/1",
    "dnsName": "a.example.com",
    "issuerRef": {"name": "ca"},
    "key": "k",
    "solver": {"http01": {"ingress": {}}},
    "token": "t",
    "type": "HTTP-01",
    "url": "https://ca.example.com/chall/1",
}


def condition(kind: str, status: str = "True", **more: str) -> Json:
    return {"type": kind, "status": status, **more}


def with_conditions(*conditions: Json) -> Json:
    return {"spec": REQUEST, "status": {"conditions": list(conditions)}}


MEMBERS: dict[str, list[Json]] = {
    "IssuerSet": [
        {"kind": "IssuerSet", "group": "certwright.io"},
        {"kind": "Thing", "group": "example.com"},
        {"kind": "Thing"},
    ],
    "ClusterIssuerSet": [
        {"kind": "ClusterIssuer", "group": "certwright.io"},
        {"kind": "ClusterIssuer", "group": "example.com"},
        {"kind": "Thing"},
        {},
    ],
}
APPROVED, DENIED = condition("Approved"), condition("Denied")
CASES: dict[str, tuple[str, Json, Json | None]] = {
    "a subject beside literalSubject": (
        "Certificate",
        {"spec": {**CERTIFICATE, "literalSubject": "CN=a", "subject": {"countries": ["DE"]}}},
        None,
    ),
    "a common name beside literalSubject": (
        "Certificate",
        {"spec": {**CERTIFICATE, "literalSubject": "CN=a", "commonName": "a"}},
        None,
    ),
    "a Delivery of nothing": ("Delivery", {"spec": {"root": "web", "path": "web"}}, None),
    "a Delivery of two things": (
        "Delivery",
        {"spec": {"root": "web", "path": "web", "certificateRef": {"name": "a"}, "secretRef": {"name": "a"}}},
        None,
    ),
    "two times of renewal": (
        "Certificate",
        {"spec": {**CERTIFICATE, "renewBefore": "24h", "renewBeforePercentage": 20}},
        None,
    ),
    "no revision to keep": ("Certificate", {"spec": {**CERTIFICATE, "revisionHistoryLimit": 0}}, None),
    "name constraints of a leaf": (
        "Certificate",
        {"spec": {**CERTIFICATE, "nameConstraints": {"critical": True, "permitted": {"dnsDomains": ["a"]}}}},
        None,
    ),
    "another request": (
        "CertificateRequest",
        {"spec": {**REQUEST, "isCA": True}},
        {"spec": REQUEST},
    ),
    "approved and denied": ("CertificateRequest", with_conditions(APPROVED, DENIED), None),
    "no longer approved": ("CertificateRequest", with_conditions(), with_conditions(APPROVED)),
    "no longer denied": ("CertificateRequest", with_conditions(), with_conditions(DENIED)),
    "approved, but False": ("CertificateRequest", with_conditions(condition("Approved", "False")), None),
    "approved again by another": (
        "CertificateRequest",
        with_conditions(condition("Approved", reason="Other")),
        with_conditions(APPROVED),
    ),
    **{
        f"a member of {kind}: {member}": (kind, {"spec": {"issuers": [{"name": "a", **member}]}}, None)
        for kind, members in MEMBERS.items()
        for member in members
    },
    **{
        f"{kind}: {sorted(spec) or 'no type'}": (kind, {"spec": spec}, None)
        for kind in ("Issuer", "ClusterIssuer")
        for spec in ({}, {"selfSigned": {}, "ca": {"secretName": "a"}})
    },
    "an order with another request": (
        "Order",
        {"spec": {**ORDER, "request": "YWI="}},
        {"spec": ORDER},
    ),
    "an order of other names": (
        "Order",
        {"spec": {**ORDER, "dnsNames": ["b.example.com"]}},
        {"spec": ORDER},
    ),
    "an order at another URL": (
        "Order",
        {"spec": ORDER, "status": {"url": "https://ca.example.com/2"}},
        {"spec": ORDER, "status": {"url": "https://ca.example.com/1"}},
    ),
    "an order with another place to finalize": (
        "Order",
        {"spec": ORDER, "status": {"finalizeURL": "https://ca.example.com/2"}},
        {"spec": ORDER, "status": {"finalizeURL": "https://ca.example.com/1"}},
    ),
    "an order with another certificate": (
        "Order",
        {"spec": ORDER, "status": {"certificate": "Yg=="}},
        {"spec": ORDER, "status": {"certificate": "YQ=="}},
    ),
    "another challenge": ("Challenge", {"spec": {**CHALLENGE, "token": "u"}}, {"spec": CHALLENGE}),
}


@cache
def definition(kind: str) -> tuple[str, Json]:
    """The group of a kind, and its schema."""
    crd = next(crd for crd in custom_resource_definitions() if crd["spec"]["names"]["kind"] == kind)
    return crd["spec"]["group"], crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def named(obj: Json | None) -> Json | None:
    return obj and {"metadata": {"name": "a"}} | copy.deepcopy(obj)


def errors(name: str, *, known: frozenset[str] = frozenset()) -> list[FieldError]:
    """What another server reports for a case, by the rules that are not `known`."""
    kind, new, old = CASES[name]
    return Schema(definition(kind)[1], known_rules=known).validate(named(new) or {}, named(old))


@pytest.mark.parametrize("name", CASES)
def test_what_a_rule_rejects_the_functions_reject(name: str) -> None:
    kind, new, old = CASES[name]
    group, _ = definition(kind)
    ours = validate(kind, group, named(new) or {}, named(old))
    assert errors(name)
    assert errors(name, known=known_rules(kind, group)) == []
    assert ours
    # cert-manager's webhook names a condition by its type, and the second issuer type by its field.
    section = {str(error.field).partition("[")[0].removesuffix(".Approved") for error in ours}
    assert all(any(part.startswith(str(e.field).partition("[")[0]) for part in section) for e in errors(name))


RULES = [
    (kind, rule)
    for kind in sorted({kind for kind, _, _ in CASES.values()})
    for rule in sorted(known_rules(kind, definition(kind)[0]))
]


@pytest.mark.parametrize(("kind", "rule"), RULES)
def test_every_rule_has_a_case(kind: str, rule: str) -> None:
    others = known_rules(kind, definition(kind)[0]) - {rule}
    assert any(errors(name, known=others) for name, case in CASES.items() if case[0] == kind)


def test_every_kind_with_rules_has_a_case() -> None:
    with_rules = {kind.kind for kind in OUR_KINDS if known_rules(kind.kind, kind.group)}
    assert with_rules == {kind for kind, _ in RULES}
