"""Signing requests: written, read back, and read by openssl."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from certwright.pki import names, usages
from certwright.pki.csr import MAX_BYTES, CsrPlan, build_csr, read_csr
from certwright.pki.errors import BadCsr, BadName, BadUsage, PkiError
from certwright.pki.keys import KeyPlan, PrivateKey, generate, public_key_der
from certwright.pki.match import request_differences
from certwright.pki.names import Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName
from certwright.resources.certificate import KEY_USAGES

MakeKey = Callable[[str], PrivateKey]
KEY = generate(KeyPlan.of("ECDSA"))
FULL = CsrPlan(
    subject=Subject(organizations=("Other", "Example"), countries=("DE",), serial_number="7"),
    common_name="web",
    dns_names=("example.com", "*.bücher.example"),
    ip_addresses=("10.0.0.1", "2001:DB8::1"),
    uris=("spiffe://cluster/ns/a",),
    email_addresses=("a@example.com",),
    other_names=(OtherName("1.3.6.1.4.1.311.20.2.3", "user@example.com"),),
    usages=("server auth", "client auth", "signing"),
)
LABEL = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,8}[a-z0-9_])?", fullmatch=True)
PLANS = st.builds(
    CsrPlan,
    common_name=st.text(alphabet=st.characters(codec="utf-8"), max_size=16),
    dns_names=st.lists(st.lists(LABEL, min_size=1, max_size=3).map(".".join), max_size=4).map(tuple),
    ip_addresses=st.lists(st.ip_addresses().map(str), max_size=3).map(tuple),
    email_addresses=st.lists(LABEL.map("{}@example.com".format), max_size=2).map(tuple),
    uris=st.lists(LABEL.map("spiffe://{}/x".format), max_size=2).map(tuple),
    subject=st.builds(Subject, organizations=st.lists(st.text(max_size=8), max_size=3).map(tuple)),
    is_ca=st.booleans(),
)


def test_openssl_verifies_and_shows_a_request(key: PrivateKey, openssl: Callable[..., str]) -> None:
    text = openssl("req", "-in", "csr", "-verify", "-noout", "-text", csr=build_csr(FULL, key))
    assert "self-signature verify OK" in text
    for expected in (
        "Subject: C = DE, O = Other + O = Example, CN = web, serialNumber = 7",
        "DNS:example.com, DNS:*.xn--bcher-kva.example, IP Address:10.0.0.1, IP Address:2001:DB8:0:0:0:0:0:1, "
        "URI:spiffe://cluster/ns/a, email:a@example.com, othername: UPN::user@example.com",
        "X509v3 Key Usage: critical",
        "TLS Web Server Authentication, TLS Web Client Authentication",
    ):
        assert expected in text
    assert "X509v3 Subject Alternative Name: critical" not in text


def test_a_request_is_read_back_as_it_was_planned(key: PrivateKey) -> None:
    facts = read_csr(build_csr(FULL, key))
    # What was made here is taken for signed; that it is, says `cryptography`.
    assert facts.signature_valid
    assert facts.parsed.is_signature_valid
    assert facts.public_key_der == public_key_der(key)
    assert facts.subject == FULL.subject
    assert facts.common_name == "web"
    assert facts.dns_names == ("example.com", "*.xn--bcher-kva.example")
    assert facts.ip_addresses == ("10.0.0.1", "2001:db8::1")
    assert facts.usages == ("digital signature", "server auth", "client auth")
    assert facts.is_ca is None
    assert facts.subject_text == "SERIALNUMBER=7,CN=web,O=Other+O=Example,C=DE"
    assert request_differences(facts, FULL) == ()


def test_alternative_names_are_critical_without_a_subject(keys: MakeKey) -> None:
    only_names = read_csr(build_csr(CsrPlan(dns_names=("a.example",)), keys("ECDSA 256"))).parsed
    with_subject = read_csr(
        build_csr(CsrPlan(common_name="a", dns_names=("a.example",)), keys("ECDSA 256"))
    ).parsed
    alternative = x509.SubjectAlternativeName
    assert only_names.extensions.get_extension_for_class(alternative).critical
    assert not with_subject.extensions.get_extension_for_class(alternative).critical


def test_usages_are_left_out_where_they_shall_not_be_in_the_request(keys: MakeKey) -> None:
    plan = replace(FULL, encode_usages=False)
    assert read_csr(build_csr(plan, keys("ECDSA 256"))).usages is None


def test_a_request_for_a_ca_says_so_and_carries_its_constraints(keys: MakeKey) -> None:
    constraints = NameConstraints(critical=True, permitted=NameSet(dns_domains=("example.com",)))
    plan = CsrPlan(common_name="ca", is_ca=True, name_constraints=constraints)
    facts = read_csr(build_csr(plan, keys("ECDSA 256")))
    assert facts.is_ca is True
    assert "cert sign" in (facts.usages or ())
    assert facts.name_constraints == constraints
    basic = facts.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert basic.value.path_length is None


def test_the_signature_algorithm_can_be_chosen(keys: MakeKey, openssl: Callable[..., str]) -> None:
    plan = replace(FULL, signature_algorithm="SHA512WithRSA")
    text = openssl("req", "-in", "csr", "-noout", "-text", csr=build_csr(plan, keys("RSA 2048")))
    assert "sha512WithRSAEncryption" in text


def test_a_literal_subject_goes_in_as_it_is(keys: MakeKey) -> None:
    plan = CsrPlan(literal_subject="CN=web,OU=b+OU=a,DC=example,DC=com", dns_names=("a",))
    facts = read_csr(build_csr(plan, keys("ECDSA 256")))
    assert facts.parsed.subject == names.literal_name(plan.literal_subject)
    assert request_differences(facts, plan) == ()
    assert request_differences(facts, replace(plan, literal_subject="CN=web,DC=com")) == ("literalSubject",)


def test_a_request_whose_signature_is_wrong_is_read_as_such(
    keys: MakeKey, openssl: Callable[..., str]
) -> None:
    der = bytearray(read_csr(build_csr(FULL, keys("Ed25519"))).parsed.public_bytes(Encoding.DER))
    der[-1] ^= 1
    pem = openssl("req", "-inform", "DER", "-in", "csr", "-outform", "PEM", csr=bytes(der)).encode()
    assert not read_csr(pem).signature_valid


def test_a_plan_that_x509_cannot_hold_is_refused(keys: MakeKey) -> None:
    for plan in (
        CsrPlan(dns_names=("a b",)),
        CsrPlan(common_name="a" * 65),
        CsrPlan(ip_addresses=("localhost",)),
        CsrPlan(subject=Subject(countries=("\ud800",))),
    ):
        with pytest.raises(BadName):
            build_csr(plan, keys("ECDSA 256"))


@pytest.mark.parametrize("garbage", [b"", b"-----BEGIN CERTIFICATE REQUEST-----", b"\xff\x00", b"hello"])
def test_what_is_no_request_is_refused(garbage: bytes) -> None:
    with pytest.raises(BadCsr, match="expected is PEM"):
        read_csr(garbage)


@given(PLANS)
def test_whatever_can_be_planned_is_read_back_without_difference(plan: CsrPlan) -> None:
    try:
        pem = build_csr(plan, KEY)
    except PkiError:
        return
    assert request_differences(read_csr(pem), plan) == ()


def test_a_request_that_would_take_long_to_read_is_neither_built_nor_read() -> None:
    plan = CsrPlan(dns_names=tuple(f"a{number}.example.com" for number in range(3000)))
    assert len(read_csr(build_csr(plan, KEY)).dns_names) == 3000
    plan = CsrPlan(dns_names=tuple(f"a{number}.example.com" for number in range(4500)))
    with pytest.raises(BadName, match="ask for fewer names"):
        build_csr(plan, KEY)
    key = ec.generate_private_key(ec.SECP256R1())
    large = [x509.DNSName("a" * 60 + f"{number}.example.com") for number in range(1000)]
    builder = x509.CertificateSigningRequestBuilder(x509.Name([]))
    builder = builder.add_extension(x509.SubjectAlternativeName(large), critical=True)
    with pytest.raises(BadCsr, match=f"may have {MAX_BYTES}"):
        read_csr(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))


def test_the_table_has_every_usage_that_a_spec_can_name() -> None:
    assert set(usages.USAGES) == set(KEY_USAGES)
    assert len(usages.USAGES) == 23


@pytest.mark.parametrize("name", KEY_USAGES)
def test_each_usage_is_found_again_under_its_own_or_its_first_name(name: str) -> None:
    with_needed = (name, "key agreement") if name.endswith("cipher only") else (name,)
    names = usages.names_of(*usages.extensions(with_needed))
    assert frozenset(names) == usages.canonical(with_needed)
    first = {"signing": "digital signature", "s/mime": "email protection"}.get(name, name)
    assert first in names


def test_without_usages_the_default_ones_are_meant_and_a_ca_signs_certificates() -> None:
    assert usages.complete((), is_ca=False) == ("digital signature", "key encipherment")
    assert usages.complete((), is_ca=True) == ("digital signature", "key encipherment", "cert sign")
    assert usages.complete(("cert sign",), is_ca=True) == ("cert sign",)


def test_an_extension_that_would_be_empty_is_left_out() -> None:
    assert usages.extensions(("server auth",))[0] is None
    assert usages.extensions(("cert sign",))[1] is None


def test_an_unknown_usage_is_refused_by_its_name() -> None:
    with pytest.raises(BadUsage, match='"washing up"'):
        usages.extensions(("washing up",))


def test_encipher_only_needs_key_agreement() -> None:
    with pytest.raises(BadUsage, match="key agreement"):
        usages.extensions(("encipher only",))
