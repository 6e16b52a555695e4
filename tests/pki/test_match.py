"""Whether a request or a certificate is what is wanted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.keys import PrivateKey
from certwright.pki.match import certificate_differences, request_differences
from certwright.pki.names import Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName
from certwright.pki.signing import self_sign

MakeKey = Callable[[str], PrivateKey]
PLAN = CsrPlan(
    subject=Subject(organizations=("A", "B")),
    common_name="web",
    dns_names=("a.example", "b.example"),
    ip_addresses=("10.0.0.1",),
    uris=("spiffe://a/b",),
    email_addresses=("a@example.com",),
)


@pytest.mark.parametrize(
    ("changed", "fields"),
    [
        (replace(PLAN, dns_names=("b.example", "a.example")), ()),
        (replace(PLAN, ip_addresses=("::ffff:10.0.0.1",)), ()),
        (replace(PLAN, usages=("server auth",)), ()),
        (replace(PLAN, encode_usages=False), ("encodeUsagesInRequest",)),
        (replace(PLAN, signature_algorithm="ECDSAWithSHA256"), ()),
        (replace(PLAN, signature_algorithm="ECDSAWithSHA384"), ("signatureAlgorithm",)),
        (replace(PLAN, signature_algorithm="PureEd25519"), ("signatureAlgorithm",)),
        (replace(PLAN, signature_algorithm="of tomorrow"), ()),
        (replace(PLAN, dns_names=("a.example",)), ("dnsNames",)),
        (replace(PLAN, dns_names=("a.example", "a b")), ("dnsNames",)),
        (replace(PLAN, ip_addresses=()), ("ipAddresses",)),
        (replace(PLAN, ip_addresses=("nonsense",)), ("ipAddresses",)),
        (replace(PLAN, uris=("spiffe://a/c",)), ("uris",)),
        (replace(PLAN, email_addresses=("b@example.com",)), ("emailAddresses",)),
        (replace(PLAN, other_names=(OtherName("1.2.3", "x"),)), ("otherNames",)),
        (replace(PLAN, common_name="other"), ("commonName",)),
        (replace(PLAN, subject=Subject(organizations=("B", "A"))), ()),
        (
            replace(PLAN, subject=Subject(organizations=("A",), serial_number="1")),
            ("subject.serialNumber", "subject.organizations"),
        ),
        (replace(PLAN, name_constraints=NameConstraints(permitted=NameSet())), ("nameConstraints",)),
    ],
)
def test_a_request_differs_in_the_fields_that_changed(
    changed: CsrPlan, fields: tuple[str, ...], keys: MakeKey
) -> None:
    assert request_differences(read_csr(build_csr(PLAN, keys("ECDSA 256"))), changed) == fields


@pytest.fixture
def certificate(keys: MakeKey, now: datetime) -> Callable[[CsrPlan], CertificateFacts]:
    def make(plan: CsrPlan) -> CertificateFacts:
        key = keys("ECDSA 256")
        pem = self_sign(
            build_csr(plan, key), key=key, duration=timedelta(hours=1), is_ca=plan.is_ca, usages=(), now=now
        )
        return read_certificate(pem)

    return make


@pytest.mark.parametrize(
    ("issued", "fields"),
    [
        pytest.param(PLAN, (), id="as planned"),
        pytest.param(replace(PLAN, subject=Subject()), (), id="the issuer dropped the organization"),
        pytest.param(
            replace(PLAN, common_name="", dns_names=("web", *PLAN.dns_names)),
            (),
            id="the common name became a DNS name",
        ),
        pytest.param(replace(PLAN, dns_names=("A.example", "B.EXAMPLE")), (), id="capital letters"),
        pytest.param(replace(PLAN, common_name="other"), ("commonName",), id="another common name"),
        pytest.param(replace(PLAN, dns_names=("a.example",)), ("dnsNames",), id="a DNS name is missing"),
        pytest.param(
            replace(PLAN, dns_names=("a.example", "b.example", "c.example")),
            ("dnsNames",),
            id="a DNS name too many",
        ),
        pytest.param(replace(PLAN, ip_addresses=()), ("ipAddresses",), id="an IP address is missing"),
        pytest.param(replace(PLAN, uris=()), ("uris",), id="a URI is missing"),
        pytest.param(
            replace(PLAN, email_addresses=()), ("emailAddresses",), id="an email address is missing"
        ),
    ],
)
def test_a_certificate_is_looked_at_with_indulgence(
    issued: CsrPlan, fields: tuple[str, ...], certificate: Callable[[CsrPlan], CertificateFacts]
) -> None:
    assert certificate_differences(certificate(issued), PLAN) == fields


def test_the_common_name_of_a_literal_subject_counts(
    certificate: Callable[[CsrPlan], CertificateFacts],
) -> None:
    plan = CsrPlan(literal_subject="CN=web,O=Example", dns_names=("a.example",))
    assert certificate_differences(certificate(plan), plan) == ()
    assert certificate_differences(certificate(plan), replace(plan, literal_subject="CN=b")) == (
        "commonName",
    )
