"""How objects are packed: nothing is lost."""

from __future__ import annotations

import base64
import textwrap

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from certwright.controllers.cache import layouts
from certwright.kube.api import codec
from certwright.kube.api.core import SECRETS, ManagedFields, Secret, SecretMeta
from certwright.kube.api.meta import ObjectMeta
from certwright.resources import names
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, CertificateRequestSpec, CertificateRequestStatus


def pem(der: bytes, label: str = "CERTIFICATE") -> bytes:
    body = "\n".join(textwrap.wrap(base64.b64encode(der).decode(), 64))
    return f"-----BEGIN {label}-----\n{body}\n-----END {label}-----\n".encode()


ALMOST_PEM = [
    b"",
    b"\x00",
    b"\x01",
    b"password",
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----BEGIN CERTIFICATE-----\nA===\n-----END CERTIFICATE-----\n",
    pem(b"x" * 70).rstrip(b"\n"),
    pem(b"x" * 70).replace(b"\n", b"\r\n"),
    b"subject=web\n" + pem(b"x" * 70),
    pem(b"x" * 70) + b"trailing",
    pem(b"x" * 70)[:40] + b"\n" + pem(b"x" * 70)[40:],
]


@pytest.mark.parametrize("text", ALMOST_PEM)
def test_what_is_not_quite_pem_comes_back_as_it_was(text: bytes) -> None:
    assert layouts.long(layouts.short(text)) == text


@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.sampled_from(("CERTIFICATE", "PRIVATE KEY"))))
)
def test_pem_is_packed_as_the_bytes_it_stands_for(blocks: list[tuple[bytes, str]]) -> None:
    text = b"".join(pem(der, label) for der, label in blocks)
    packed = layouts.short(text)
    assert layouts.long(packed) == text
    assert len(packed) < sum(len(der) for der, _ in blocks) + 20 * len(blocks) + 10


TEXT = st.one_of(
    st.sampled_from(ALMOST_PEM),
    st.binary(max_size=200),
    st.binary(max_size=200).map(pem),
    st.lists(st.binary(max_size=100).map(pem), max_size=3).map(b"".join),
)


@given(TEXT, TEXT, TEXT)
def test_a_request_is_the_same_after_packing_whatever_its_texts_are(
    asked: bytes, certificate: bytes, ca: bytes
) -> None:
    request = CertificateRequest(
        metadata=ObjectMeta(name="web-1", namespace="default", uid="u", resource_version="7"),
        spec=CertificateRequestSpec(issuer_ref=IssuerReference(name="ca"), request=asked),
        status=CertificateRequestStatus(certificate=certificate, ca=ca),
    )
    for packing in (layouts.requests(), layouts.requests(lambda _: True)):
        assert packing.decode(packing.encode(request)) == request


@given(
    st.dictionaries(
        st.sampled_from(("tls.crt", "tls.key", "ca.crt", "keystore.p12", "", "ä")), TEXT, max_size=4
    )
)
def test_a_secret_is_the_same_after_packing_whatever_its_data_is(data: dict[str, bytes]) -> None:
    meta = SecretMeta(name="web", annotations={names.CERTIFICATE_NAME: "web"})
    secret = Secret(metadata=meta, data=data)
    packing = layouts.secrets(lambda _: True)
    assert packing.decode(packing.encode(secret)) == secret


def test_a_secret_is_the_same_after_packing_with_its_managed_fields() -> None:
    fields = msgspec.Raw(b'{"f:data":{"f:tls.crt":{}}}')
    secret = Secret(
        metadata=SecretMeta(
            name="web",
            namespace="default",
            resource_version="8",
            annotations={"a": "b"},
            managed_fields=(ManagedFields(manager="m", operation="Apply", fields_v1=fields),),
        ),
        type="kubernetes.io/tls",
        data={"tls.crt": pem(b"leaf"), "tls.key": b"\x00\x01\xff", "": b""},
    )
    packing = layouts.secrets()
    decoded = packing.decode(packing.encode(secret))
    assert codec.encode(SECRETS, decoded) == codec.encode(SECRETS, secret)
    assert decoded.data == secret.data
