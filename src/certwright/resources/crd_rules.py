"""CEL rules of our kinds, for other API servers.

`validation` contains all rules, with the messages of cert-manager's webhook, and our own server runs it
instead of these; docs/decisions/2026-11-23-rules-in-python-and-in-cel.md says why. On a Kubernetes cluster
they replace a webhook. Whatever one of these rejects, `validation` rejects as well, as
tests/resources/test_crd_rules.py shows.

Source: KEP-2876; cert-manager `internal/apis/certmanager/validation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from certwright.resources.certificate import X509Subject
from certwright.resources.issuer import ISSUER_TYPES
from certwright.resources.names import ACME_GROUP, GROUP, SETS_GROUP

Schema = dict[str, Any]
Rule = dict[str, str]

_FORBIDDEN: Final = "FieldValueForbidden"
_REQUIRED: Final = "FieldValueRequired"


def _rule(text: str, message: str, *, reason: str = "", path: str = "") -> Rule:
    optional = {"reason": reason, "fieldPath": path}
    return {"rule": text, "message": message} | {key: value for key, value in optional.items() if value}


def _forbid(text: str, message: str, path: str = "") -> Rule:
    return _rule(text, message, reason=_FORBIDDEN, path=path)


def _once_set(field: str) -> Rule:
    return _forbid(
        f"!has(oldSelf.{field}) || size(oldSelf.{field}) == 0 || "
        f"(has(self.{field}) && self.{field} == oldSelf.{field})",
        "field is immutable once set",
    )


_ISSUER: Final = (
    _rule(
        f"[{', '.join(f'has(self.{name})' for name in ISSUER_TYPES)}].exists(given, given)",
        f"configure one of {', '.join(ISSUER_TYPES)}",
        reason=_REQUIRED,
    ),
    _forbid(
        f"[{', '.join(f'has(self.{name})' for name in ISSUER_TYPES)}].filter(given, given).size() <= 1",
        "there is one issuer type already; keep one",
    ),
)


def _is_filled(attribute: str) -> str:
    # A list or string of a subject.
    return f"has(self.subject.{attribute}) && size(self.subject.{attribute}) > 0"


_CERTIFICATE: Final = (
    _forbid(
        "!has(self.literalSubject) || self.literalSubject == '' || !has(self.subject) || "
        f"![{', '.join(map(_is_filled, X509Subject.__struct_encode_fields__))}].exists(given, given)",
        "not with literalSubject; say it all in one of them",
        path=".subject",
    ),
    _forbid(
        "!has(self.literalSubject) || self.literalSubject == '' || !has(self.commonName) || "
        "self.commonName == ''",
        "not with literalSubject; write CN=… in it instead",
        path=".commonName",
    ),
    _forbid(
        "!has(self.renewBefore) || !has(self.renewBeforePercentage)",
        "not with renewBefore; keep one of them",
        path=".renewBeforePercentage",
    ),
    _rule(
        "!has(self.revisionHistoryLimit) || self.revisionHistoryLimit >= 1",
        "must be at least 1",
        path=".revisionHistoryLimit",
    ),
    _forbid(
        "!has(self.nameConstraints) || (has(self.isCA) && self.isCA)",
        "only a CA has name constraints; set isCA to true or remove them",
        path=".nameConstraints",
    ),
)
_CONDITIONS: Final = (
    _forbid(
        "!self.exists(c, c.type == 'Approved') || !self.exists(c, c.type == 'Denied')",
        "both Approved and Denied conditions cannot coexist",
    ),
    *(
        _forbid(
            f"!oldSelf.exists(c, c.type == '{kind}') || self.exists(c, c.type == '{kind}')",
            f'"{kind}" condition may not be modified once set',
        )
        for kind in ("Approved", "Denied")
    ),
)
_CONDITION: Final = (
    {
        "rule": "!(self.type in ['Approved', 'Denied']) || self.status == 'True'",
        "messageExpression": "'\"' + self.type + '\" condition may only be set to True'",
    },
    {
        "rule": "!(self.type in ['Approved', 'Denied']) || self == oldSelf",
        "messageExpression": "'\"' + self.type + '\" condition may not be modified once set'",
        "reason": _FORBIDDEN,
    },
)

NO_SETS: Final = "a set has issuers, not sets, as its members; name the issuers of that set instead"
OURS_ONLY: Final = "must be cert-manager.io, because certwright itself signs the requests of a set"
CLUSTER_ONLY: Final = "must be ClusterIssuer, because a ClusterIssuerSet serves all namespaces"
EITHER_KIND: Final = "must be one of Issuer or ClusterIssuer"

_NO_SET: Final = f"!has(self.group) || self.group != '{SETS_GROUP}'"
_MEMBER: Final = (
    _rule(_NO_SET, NO_SETS, path=".kind"),
    _rule(f"!has(self.group) || self.group in ['', '{GROUP}', '{SETS_GROUP}']", OURS_ONLY, path=".group"),
    _rule(
        "!has(self.kind) || self.kind in ['', 'Issuer', 'ClusterIssuer'] || "
        f"(has(self.group) && !(self.group in ['', '{GROUP}']))",
        EITHER_KIND,
        path=".kind",
    ),
)
_CLUSTER_MEMBER: Final = (
    *_MEMBER,
    _rule(
        "(has(self.kind) && !(self.kind in ['', 'Issuer'])) || "
        f"(has(self.group) && !(self.group in ['', '{GROUP}']))",
        CLUSTER_ONLY,
        path=".kind",
    ),
)

_DELIVERY: Final = (
    _rule(
        "has(self.certificateRef) != has(self.secretRef)",
        "name the Certificate in certificateRef, or a Secret in secretRef, and not both",
        reason=_REQUIRED,
    ),
)

Place = tuple[str, ...]
_RULES: Final[Mapping[tuple[str, str], Mapping[Place, tuple[Rule, ...]]]] = {
    ("Certificate", GROUP): {("spec",): _CERTIFICATE},
    ("CertificateRequest", GROUP): {
        ("spec",): (_forbid("self == oldSelf", "a request never changes; delete it and make a new one"),),
        ("status", "conditions"): _CONDITIONS,
        ("status", "conditions", "items"): _CONDITION,
    },
    ("Issuer", GROUP): {("spec",): _ISSUER},
    ("ClusterIssuer", GROUP): {("spec",): _ISSUER},
    ("Delivery", SETS_GROUP): {("spec",): _DELIVERY},
    ("IssuerSet", SETS_GROUP): {("spec", "issuers", "items"): _MEMBER},
    ("ClusterIssuerSet", SETS_GROUP): {("spec", "issuers", "items"): _CLUSTER_MEMBER},
    ("Order", ACME_GROUP): {
        ("spec",): (
            _once_set("request") | {"fieldPath": ".request"},
            _forbid(
                "self.request != oldSelf.request || self == oldSelf", "order spec is immutable after creation"
            ),
        ),
        ("status",): tuple(
            _once_set(field) | {"fieldPath": f".{field}"} for field in ("url", "finalizeURL", "certificate")
        ),
    },
    ("Challenge", ACME_GROUP): {
        ("spec",): (_forbid("self == oldSelf", "challenge spec is immutable after creation"),),
    },
}


def with_rules(kind: str, group: str, schema: Schema) -> Schema:
    """The schema of a kind with its rules; does not modify the argument."""
    for place, rules in _RULES[kind, group].items():
        schema = _with(schema, place, rules)
    return schema


def _with(schema: Schema, place: Place, rules: tuple[Rule, ...]) -> Schema:
    if not place:
        return schema | {"x-kubernetes-validations": [dict(rule) for rule in rules]}
    if place[0] == "items":
        return schema | {"items": _with(schema["items"], place[1:], rules)}
    properties = schema["properties"]
    return schema | {"properties": properties | {place[0]: _with(properties[place[0]], place[1:], rules)}}


def known_rules(kind: str, group: str) -> frozenset[str]:
    """The texts of a kind's rules: those that `validation` enforces natively."""
    places = _RULES.get((kind, group), {})
    return frozenset(rule["rule"] for rules in places.values() for rule in rules)
