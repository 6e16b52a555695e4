"""Structs and the codec: what is read is written again, and defaults are applied where they are used."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from certwright.kube.api import codec
from certwright.kube.api.core import (
    CORE_KINDS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LEASES,
    SECRETS,
    Lease,
    LeaseSpec,
    Secret,
)
from certwright.kube.api.kinds import AnyKind, Kind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.runtime.lease import format_micro_time
from certwright.resources.certificate import Certificate, CertificateSpec, PrivateKeySpec
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, OUR_KINDS

EVERY_KIND: tuple[AnyKind, ...] = OUR_KINDS + CORE_KINDS


def _sample(annotation: Any) -> Any:
    """A JSON value that fits, with every field filled in."""
    info = msgspec.inspect.type_info(annotation)
    while isinstance(info, msgspec.inspect.Metadata):
        info = info.type
    match info:
        case msgspec.inspect.UnionType(types=types):
            return _sample_info(next(t for t in types if not isinstance(t, msgspec.inspect.NoneType)))
        case _:
            return _sample_info(info)


def _sample_info(info: Any) -> Any:
    match info:
        case msgspec.inspect.Metadata():
            return _sample_info(info.type)
        case msgspec.inspect.UnionType():
            return _sample_info(next(t for t in info.types if not isinstance(t, msgspec.inspect.NoneType)))
        case msgspec.inspect.StructType():
            return {field.encode_name: _sample_info(field.type) for field in info.fields}
        case msgspec.inspect.VarTupleType():
            return [_sample_info(info.item_type)]
        case msgspec.inspect.DictType():
            return {"key": _sample_info(info.value_type)}
        case msgspec.inspect.AnyType():
            return {"any": [1, "thing"]}
        case _:
            return _SCALARS[type(info)]


_SCALARS: dict[type, Any] = {
    msgspec.inspect.StrType: "text",
    msgspec.inspect.IntType: 7,
    msgspec.inspect.BoolType: True,
    msgspec.inspect.BytesType: "AAEC",
    msgspec.inspect.DateTimeType: "2026-01-02T03:04:05Z",
}


@pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.kind)
def test_every_field_survives_a_round_trip(kind: AnyKind) -> None:
    sample = {"apiVersion": kind.api_version, "kind": kind.kind} | _sample(kind.type)
    obj = codec.decode(kind, json.dumps(sample).encode())
    assert json.loads(codec.encode(kind, obj)) == sample
    assert codec.from_dict(kind, sample) == obj


def test_certificates_have_the_field_names_of_the_api() -> None:
    names = _sample(CertificateSpec)
    assert {"isCA", "dnsNames", "ipAddresses", "otherNames", "secretName", "issuerRef", "privateKey"} <= set(
        names
    )
    assert set(names["otherNames"][0]) == {"oid", "utf8Value"}
    spec = _sample(CLUSTER_ISSUERS.type)["spec"]
    assert {"keyID", "keySecretRef"} <= set(spec["acme"]["externalAccountBinding"])
    assert "issuingCertificateURLs" in spec["ca"]
    assert "gatewayHTTPRoute" in spec["acme"]["solvers"][0]["http01"]
    assert {"cloudDNS", "azureDNS", "acmeDNS"} <= set(spec["acme"]["solvers"][0]["dns01"])
    assert "class" in spec["acme"]["solvers"][0]["http01"]["ingress"]


def test_what_equals_its_default_is_left_out() -> None:
    certificate = _certificate()
    raw = codec.encode(CERTIFICATES, certificate)
    assert json.loads(raw) == {
        "apiVersion": "cert-manager.io/v1",
        "kind": "Certificate",
        "metadata": {"name": "web"},
        "spec": {"secretName": "web-tls", "issuerRef": {"name": "ca"}},
    }


def _certificate(**changes: Any) -> Certificate:
    spec = CertificateSpec(secret_name="web-tls", issuer_ref=IssuerReference(name="ca"), **changes)
    return Certificate(metadata=ObjectMeta(name="web"), spec=spec)


def test_an_object_without_anything_is_still_an_object() -> None:
    assert codec.encode(SECRETS, Secret()) == b'{"apiVersion":"v1","kind":"Secret"}'


def test_null_is_absent_and_whole_floats_are_integers() -> None:
    raw = b'{"metadata":{"name":"a","labels":null},"spec":{"secretName":"s","issuerRef":{"name":"i"},"revisionHistoryLimit":2.0,"dnsNames":null}}'  # noqa: E501 - one line, as it comes
    certificate = codec.decode(CERTIFICATES, raw)
    assert certificate.metadata.labels == {}
    assert certificate.spec.dns_names == ()
    assert certificate.spec.revision_history_limit == 2


def test_unknown_values_of_an_enum_are_kept() -> None:
    raw = b'{"spec":{"secretName":"s","issuerRef":{"name":"i"},"usages":["from the future"],"privateKey":{"algorithm":"ML-DSA"}}}'  # noqa: E501 - one line, as it comes
    certificate = codec.decode(CERTIFICATES, raw)
    assert json.loads(codec.encode(CERTIFICATES, certificate))["spec"]["usages"] == ["from the future"]


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (
            b'{"spec":{"secretName":1}}',
            "this is not a Certificate: at spec.secretName: Expected str, got int",
        ),
        (b'{"metadata":{}}', "this is not a Certificate: at the top: Object missing required field spec"),
        (b"[1]", "a Certificate is an object in braces, not list"),
        (b"{", "this is not JSON: Input data was truncated"),
        (b'{"metadata":{"name":"\xff"}}', "this is not JSON"),
        (b'{"spec":' + b"[" * 2000 + b"]" * 2000 + b"}", "a Certificate is not nested as deeply as this"),
    ],
)
def test_what_cannot_be_read_is_said_in_a_sentence(raw: bytes, sentence: str) -> None:
    with pytest.raises(codec.DecodeError) as caught:
        codec.decode(CERTIFICATES, raw)
    assert str(caught.value).startswith(sentence)


def test_kinds_that_have_no_struct_are_dicts() -> None:
    widgets: Kind[dict[str, Any]] = Kind("example.com", "v1", "Widget", "widgets", "widget", True, dict)
    raw = codec.encode(widgets, {"metadata": {"name": "w"}, "kind": "Widget"})
    assert json.loads(raw) == {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    assert codec.decode(widgets, raw)["metadata"] == {"name": "w"}
    assert codec.from_dict(CUSTOM_RESOURCE_DEFINITIONS, {"a": 1}) == {"a": 1}


def test_objects_do_not_change() -> None:
    for name in CertificateSpec.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(_certificate().spec, name, None)


def test_defaults_of_a_certificate_are_applied_where_it_is_used() -> None:
    spec = _certificate().spec
    assert spec.requested_duration == timedelta(hours=2160)
    assert spec.renew_before_duration is None
    assert (spec.key.algorithm_or_default, spec.key.size_or_default) == ("RSA", 2048)
    assert (spec.key.encoding_or_default, spec.key.rotation_policy_or_default) == ("PKCS1", "Always")
    assert spec.revisions_kept == 1
    assert spec.encodes_usages
    assert (spec.issuer_ref.kind_or_default, spec.issuer_ref.group_or_default) == (
        "Issuer",
        "cert-manager.io",
    )


def test_what_is_given_wins_over_the_defaults() -> None:
    spec = _certificate(
        is_ca=True,
        duration="1h30m",
        renew_before="10m",
        encode_usages_in_request=False,
        revision_history_limit=3,
    ).spec
    assert spec.requested_duration == timedelta(minutes=90)
    assert spec.renew_before_duration == timedelta(minutes=10)
    assert not spec.encodes_usages
    assert spec.revisions_kept == 3


def test_keys_have_sizes_and_encodings_by_algorithm() -> None:
    assert PrivateKeySpec(algorithm="ECDSA").size_or_default == 256
    assert PrivateKeySpec(algorithm="ECDSA", size=384).size_or_default == 384
    assert PrivateKeySpec(algorithm="Ed25519", size=384, encoding="PKCS1").size_or_default == 0
    assert PrivateKeySpec(algorithm="Ed25519", encoding="PKCS1").encoding_or_default == "PKCS8"


def test_references_are_equal_once_their_defaults_are_applied() -> None:
    short, long = IssuerReference(name="a"), IssuerReference(name="a", kind="Issuer", group="cert-manager.io")
    assert short.same_issuer(long)
    assert short.is_ours
    assert not short.same_issuer(IssuerReference(name="a", kind="ClusterIssuer"))
    assert not IssuerReference(name="a", kind="Issuer", group="example.com").is_ours


def test_micro_times_always_have_six_digits() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert format_micro_time(moment) == "2026-01-02T03:04:05.000000Z"
    lease = codec.decode(LEASES, b'{"spec":{"renewTime":"2026-01-02T03:04:05.000000Z"}}')
    assert b"05.000000Z" in codec.encode(LEASES, lease)
    assert Lease(spec=LeaseSpec()).spec.renew_time is None
