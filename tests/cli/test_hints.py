"""From a refusal to a sentence with field, value and fix."""

from __future__ import annotations

from typing import Any

import pytest

from certwright.cli.applier import explain
from certwright.kube.api.errors import ApiError, BadRequest, Cause, Details, Invalid, NotFound, TooLarge

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "dnsNames": {"type": "array", "items": {"type": "string"}},
                "isCA": {"type": "boolean"},
                "secretName": {"type": "string"},
                "privateKey": {"type": "object", "properties": {"size": {"type": "integer"}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        },
        "status": {"type": "object", "properties": {"revision": {"type": "integer"}}},
    },
}


def unknown(field: str) -> ApiError:
    return BadRequest(
        f'Certificate in version "v1" cannot be handled: strict decoding error: unknown field "{field}"'
    )


def invalid(field: str, message: str) -> ApiError:
    cause = Cause(reason="FieldValueInvalid", message=message, field=field)
    return Invalid("x is invalid", details=Details(causes=(cause,)))


def wrong_type(field: str, expected: str, actual: str) -> ApiError:
    return invalid(
        field, f'Invalid value: "{actual}": {field} in body must be of type {expected}: "{actual}"'
    )


REFUSALS: dict[str, tuple[ApiError, str]] = {
    "a slip of the finger": (
        unknown("spec.dnsName"),
        "spec.dnsName: unknown field; did you mean `dnsNames`?",
    ),
    "a value of ours under cert-manager's CRDs": (
        invalid(
            "spec.privateKey.algorithm",
            'Unsupported value: "ML-DSA": supported values: "RSA", "ECDSA", "Ed25519"',
        ),
        'spec.privateKey.algorithm: Unsupported value: "ML-DSA": supported values: "RSA", "ECDSA", '
        '"Ed25519"; the server has cert-manager\'s CRDs, which do not allow it: install those that '
        "`certwright crds` prints",
    ),
    "the right field in the wrong place": (
        unknown("spec.size"),
        "spec.size: unknown field; did you mean `spec.privateKey.size`?",
    ),
    "nothing like it": (
        unknown("spec.privateKey.colour"),
        "spec.privateKey.colour: unknown field; known here: size",
    ),
    "a text for a list": (
        wrong_type("spec.dnsNames", "array", "string"),
        'spec.dnsNames: Invalid value: "string": spec.dnsNames in body must be of type array: "string"; '
        "write a list, e.g. `[a, b]`, or one `- item` per line",
    ),
    "a number for a text in a list": (
        wrong_type("spec.dnsNames[0]", "string", "integer"),
        'spec.dnsNames[0]: Invalid value: "integer": spec.dnsNames[0] in body must be of type string: '
        '"integer"; write text; put quotes around it if it looks like a number or a truth value '
        '("1.10", "yes")',
    ),
    "a name that is not DNS-1123": (
        invalid("metadata.name", 'Invalid value: "My_Web": a lowercase RFC 1123 subdomain must consist of …'),
        'metadata.name: Invalid value: "My_Web": a lowercase RFC 1123 subdomain must consist of …; '
        'write e.g. "my-web"',
    ),
    "a field left out": (
        invalid("spec.secretName", "Required value"),
        "spec.secretName: Required value; add `secretName`",
    ),
    "a field that is there, and has not enough in it": (
        invalid("spec", "Required value: configure one of acme, ca"),
        "spec: Required value: configure one of acme, ca",
    ),
    "a name that may have no dots": (
        invalid("metadata.namespace", 'Invalid value: "My.Shop": a lowercase RFC 1123 label must consist …'),
        'metadata.namespace: Invalid value: "My.Shop": a lowercase RFC 1123 label must consist …; '
        'write e.g. "my-shop"',
    ),
    "a name of another object": (
        invalid("spec.secretName", 'Invalid value: "Web-TLS": a lowercase RFC 1123 subdomain must …'),
        'spec.secretName: Invalid value: "Web-TLS": a lowercase RFC 1123 subdomain must …; '
        'write e.g. "web-tls"',
    ),
    "a word of a few, spelt otherwise": (
        invalid("spec.usages[0]", 'Unsupported value: "serverauth": supported values: "any", "server auth"'),
        'spec.usages[0]: Unsupported value: "serverauth": supported values: "any", "server auth"; '
        'did you mean "server auth"?',
    ),
    "a word like none of those few": (
        invalid("spec.usages[0]", 'Unsupported value: "x": supported values: "any", "server auth"'),
        'spec.usages[0]: Unsupported value: "x": supported values: "any", "server auth"',
    ),
    "a namespace that is not there": (
        NotFound('namespaces "shop" not found', details=Details(name="shop", kind="namespaces")),
        'metadata.namespace: namespaces "shop" not found; create it first, or name another',
    ),
    "an object that is too large": (
        TooLarge("Request entity too large: limit is 3145728"),
        "the object is too large: the server takes at most 3 MiB in one request; split it",
    ),
    "anything else stays as it is": (BadRequest("no"), "no"),
}


@pytest.mark.parametrize(("error", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_becomes_a_sentence_with_a_fix(error: ApiError, sentence: str) -> None:
    assert explain(error, SCHEMA) == [sentence]


@pytest.mark.parametrize(
    ("field", "expected", "sentence"),
    [
        (
            "spec.dnsNames",
            "array",
            'spec.dnsNames: Invalid value: "a.test": must be of type array; write a list',
        ),
        ("spec.uris[1]", "string", "spec.uris[1]: Invalid value: 80: must be of type string; write text"),
        ("spec.ca", "byte", 'spec.ca: Invalid value: "!": must be of type byte; write it in base64'),
        (
            "spec.isCA",
            "boolean",
            f'spec.isCA: Invalid value: "{"y" * 59}…: must be of type boolean; write true',
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_shown(field: str, expected: str, sentence: str) -> None:
    content = {"spec": {"dnsNames": "a.test", "uris": ["urn:a", 80], "isCA": "y" * 100, "ca": "!"}}
    (message,) = explain(wrong_type(field, expected, "string"), SCHEMA, content)
    assert message.startswith(sentence)


@pytest.mark.parametrize(
    ("error", "beginnings"),
    [
        ('strict decoding error: unknown field "a.x", unknown field "b"', ("a.x: unknown", "b: unknown")),
        ('strict decoding error: duplicate field "a"', ("a: is a duplicate; keep one of the two",)),
        ('strict decoding error: unknown field "a.x"', ("a.x: unknown field; take it out",)),
        (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: k: expected a string, got a number',
            ("k: expected a string, got a number; write text; put quotes around it",),
        ),
    ],
)
def test_without_a_schema_each_field_is_still_named(error: str, beginnings: tuple[str, ...]) -> None:
    sentences = explain(BadRequest(error), None)
    assert [
        text for text, begin in zip(sentences, beginnings, strict=True) if not text.startswith(begin)
    ] == []
