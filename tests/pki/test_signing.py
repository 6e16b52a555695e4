"""Certificates signed by a CA and by themselves, judged by openssl."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from msgspec.structs import replace

from certwright.pki.certificates import CertificateFacts, read_certificate, read_chain
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.errors import BadCertificate, BadCsr, BadName, BadUsage, CannotSign
from certwright.pki.keys import KeyAlgorithm, KeyPlan, PrivateKey, generate, public_key_der
from certwright.pki.names import Subject
from certwright.pki.sans import NameConstraints, NameSet, OtherName
from certwright.pki.signing import Addresses, is_temporary, marked, self_sign, sign, sign_temporarily

MakeKey = Callable[[str], PrivateKey]
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BEGIN = datetime(2026, 1, 1, 12, 30, 15, tzinfo=UTC)
AT = BEGIN.replace(microsecond=999_999)
WEB = CsrPlan(common_name="web", dns_names=("web.example", "*.web.example"), ip_addresses=("::1",))
CA = CsrPlan(common_name="Root", is_ca=True)
ADDRESSES = Addresses(
    crl_distribution_points=("http://crl.example/a.crl",),
    ocsp_servers=("http://ocsp.example",),
    issuing_certificate_urls=("http://ca.example/ca.crt",),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def own(csr: bytes | CsrPlan, key: PrivateKey, duration: timedelta = HOUR, **options: Any) -> bytes:
    """The request, or that of the plan, signed with its own key."""
    made = build_csr(csr, key) if isinstance(csr, CsrPlan) else csr
    return self_sign(made, key=key, duration=duration, **{"is_ca": False, "usages": (), "now": AT, **options})


def root(key: PrivateKey, life: timedelta = 365 * DAY) -> bytes:
    return own(CA, key, life, is_ca=True)


def issue(plan: CsrPlan, key: PrivateKey, ca: tuple[bytes, PrivateKey], now: datetime = AT) -> bytes:
    return sign(
        build_csr(plan, key),
        ca_cert=read_certificate(ca[0]),
        ca_key=ca[1],
        duration=30 * DAY,
        is_ca=plan.is_ca,
        usages=plan.usages,
        now=now,
        addresses=ADDRESSES,
    )


@pytest.mark.parametrize("leaf_kind", ["RSA 2048", "ECDSA 256", "Ed25519"])
def test_openssl_accepts_a_certificate_of_every_kind_of_ca(
    key: PrivateKey, leaf_kind: str, keys: MakeKey, openssl: Callable[..., str]
) -> None:
    ca = root(key)
    leaf = issue(WEB, keys(leaf_kind), (ca, key))
    at = ("-attime", str(int(AT.timestamp()) + 60))
    said = openssl(
        "verify", *at, "-x509_strict", "-purpose", "sslserver", "-CAfile", "ca", "leaf", ca=ca, leaf=leaf
    )
    assert "leaf: OK" in said
    assert "OK" in openssl("verify", *at, "-x509_strict", "-CAfile", "ca", "ca", ca=ca)


def test_openssl_shows_what_was_asked_for(keys: MakeKey, openssl: Callable[..., str]) -> None:
    key, plan = (
        keys("ECDSA 256"),
        CsrPlan(
            subject=Subject(organizations=("Example",)),
            common_name="web",
            dns_names=("web.example",),
            other_names=(OtherName("1.3.6.1.4.1.311.20.2.3", "user@example.com"),),
            usages=("server auth", "digital signature"),
        ),
    )
    text = openssl("x509", "-in", "leaf", "-noout", "-text", leaf=issue(plan, key, (root(key), key)))
    for expected in (
        "Issuer: CN = Root",
        "Not Before: Jan  1 12:30:15 2026 GMT",
        "Not After : Jan 31 12:30:15 2026 GMT",
        "Subject: O = Example, CN = web",
        "X509v3 Basic Constraints: critical\n                CA:FALSE",
        "X509v3 Key Usage: critical\n                Digital Signature\n",
        "X509v3 Extended Key Usage: \n                TLS Web Server Authentication\n",
        "DNS:web.example, othername: UPN::user@example.com",
        "URI:http://crl.example/a.crl",
        "OCSP - URI:http://ocsp.example",
        "CA Issuers - URI:http://ca.example/ca.crt",
    ):
        assert expected in text, text


@pytest.mark.filterwarnings("ignore:Attribute's length must be")
def test_a_country_in_a_word_goes_from_the_request_into_the_certificate_and_its_issuer(
    keys: MakeKey, openssl: Callable[..., str]
) -> None:
    key, subject = keys("ECDSA 256"), Subject(countries=("España",))
    csr = build_csr(replace(CA, subject=subject), key)
    ca = own(csr, key, 365 * DAY, is_ca=True)
    leaf = issue(CsrPlan(literal_subject="CN=web,C=Spain"), key, (ca, key))
    facts = read_certificate(leaf)
    assert (facts.subject.countries, facts.subject_text) == (("Spain",), "CN=web,C=Spain")
    assert facts.issuer_text == read_certificate(ca).subject_text == "CN=Root,C=España"
    at = str(int(AT.timestamp()) + 60)
    assert "leaf: OK" in openssl("verify", "-attime", at, "-CAfile", "ca", "leaf", ca=ca, leaf=leaf)


def test_a_certificate_says_what_it_was_given(keys: MakeKey) -> None:
    ca_key, key = keys("ECDSA 384"), keys("ECDSA 256")
    ca = root(ca_key)
    facts = read_certificate(issue(WEB, key, (ca, ca_key)))
    assert (facts.not_before, facts.not_after) == (BEGIN, BEGIN + 30 * DAY)
    assert facts.usages == ("digital signature", "key encipherment")
    assert (facts.is_ca, facts.may_sign) == (False, False)
    assert facts.dns_names == WEB.dns_names
    assert facts.ip_addresses == ("::1",)
    assert (facts.subject_text, facts.issuer_text) == ("CN=web", "CN=Root")
    assert facts.public_key_der == public_key_der(key)
    assert facts.fingerprint == hashlib.sha256(facts.der).digest()
    authority = facts.parsed.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert authority.key_identifier == read_certificate(ca).subject_key_id != b""


def test_serial_numbers_are_random_and_positive(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    ca = root(key)
    serials = {read_certificate(issue(WEB, key, (ca, key))).serial_number for _ in range(50)}
    assert len(serials) == 50
    assert all(0 < serial < 2**159 for serial in serials)
    assert max(serial.bit_length() for serial in serials) > 140


def test_no_certificate_outlives_its_ca(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    ca = root(key, 10 * DAY)
    assert read_certificate(issue(WEB, key, (ca, key))).not_after == BEGIN + 10 * DAY
    with pytest.raises(CannotSign, match="expired at 2026-01-11T12:30:15Z"):
        issue(WEB, key, (ca, key), AT + 10 * DAY)


def test_only_a_ca_signs(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    leaf = issue(WEB, key, (root(key), key))
    with pytest.raises(CannotSign, match="not one of a CA"):
        issue(WEB, key, (leaf, key))


def test_an_intermediate_ca_keeps_its_name_constraints(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    constraints = NameConstraints(critical=True, excluded=NameSet(dns_domains=("bad.example",)))
    plan = CsrPlan(common_name="Intermediate", is_ca=True, name_constraints=constraints)
    facts = read_certificate(issue(plan, key, (root(key), key)))
    assert facts.name_constraints == constraints
    assert facts.may_sign
    assert facts.usages == ("digital signature", "key encipherment", "cert sign")


def test_alternative_names_are_critical_where_there_is_no_subject(
    keys: MakeKey, openssl: Callable[..., str]
) -> None:
    key = keys("ECDSA 256")
    ca = root(key)
    leaf = issue(CsrPlan(dns_names=("a.example",)), key, (ca, key))
    extension = read_certificate(leaf).parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert extension.critical
    at = ("-attime", str(int(AT.timestamp())))
    assert "OK" in openssl("verify", *at, "-x509_strict", "-CAfile", "ca", "leaf", ca=ca, leaf=leaf)


@pytest.mark.parametrize(
    ("plan", "is_ca", "usages", "sentence"),
    [
        (CsrPlan(common_name="a", usages=("server auth",)), False, (), "usages"),
        (CsrPlan(common_name="a", is_ca=True), False, (), "isCA true, but false"),
        (CsrPlan(common_name="a"), True, (), "usages"),
        (
            CsrPlan(common_name="a", name_constraints=NameConstraints(permitted=NameSet(dns_domains=("a",)))),
            False,
            (),
            "only a CA",
        ),
    ],
)
def test_a_request_that_contradicts_what_is_wanted_is_refused(
    plan: CsrPlan, is_ca: bool, usages: tuple[str, ...], sentence: str, keys: MakeKey
) -> None:
    key = keys("ECDSA 256")
    with pytest.raises(BadCsr, match=sentence):
        own(plan, key, is_ca=is_ca, usages=usages)


def test_usages_that_mean_the_same_do_not_contradict(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    csr = build_csr(CsrPlan(common_name="a", usages=("signing", "s/mime")), key)
    pem = own(csr, key, usages=("email protection", "digital signature"))
    assert read_certificate(pem).usages == ("digital signature", "email protection")


def test_a_request_without_usages_gets_those_that_are_wanted(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    csr = build_csr(CsrPlan(common_name="a", encode_usages=False), key)
    pem = own(csr, key, usages=("server auth",))
    assert read_certificate(pem).usages == ("server auth",)


def test_another_key_cannot_sign_a_request_for_itself(keys: MakeKey) -> None:
    with pytest.raises(CannotSign, match="this private key"):
        own(build_csr(WEB, keys("ECDSA 256")), keys("Ed25519"))


@pytest.mark.parametrize(
    "duration", [timedelta(0), -HOUR, timedelta(milliseconds=999), timedelta(days=4_000_000)]
)
def test_a_duration_that_no_certificate_can_have_is_refused(duration: timedelta, keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    with pytest.raises(CannotSign, match="duration"):
        own(WEB, key, duration)


def test_bad_usages_and_bad_addresses_are_refused(keys: MakeKey) -> None:
    key = keys("ECDSA 256")
    csr = build_csr(CsrPlan(common_name="a", encode_usages=False), key)
    with pytest.raises(BadUsage):
        own(csr, key, usages=("nonsense",))
    bad = Addresses(crl_distribution_points=("http://ä",))
    with pytest.raises(BadName):
        own(csr, key, addresses=bad)


def test_a_forged_request_is_not_signed(keys: MakeKey) -> None:
    # Somebody else's public key under our signature.
    honest = read_csr(build_csr(WEB, keys("Ed25519"))).parsed
    der = bytearray(honest.public_bytes(Encoding.DER))
    at = der.find(honest.public_key().public_bytes_raw())  # type: ignore[union-attr] # it is an Ed25519 key
    der[at] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM)
    key = keys("ECDSA 256")
    with pytest.raises(BadCsr, match="signature"):
        sign(
            forged,
            ca_cert=read_certificate(root(key)),
            ca_key=key, duration=HOUR, is_ca=False, usages=(), now=AT,
        )  # fmt: skip


def test_a_self_signed_certificate_keeps_the_hash_of_its_request(keys: MakeKey) -> None:
    key = keys("RSA 2048")
    csr = build_csr(CsrPlan(common_name="a", signature_algorithm="SHA384WithRSA"), key)
    pem = own(csr, key)
    chosen = read_certificate(pem).parsed.signature_hash_algorithm
    assert chosen is not None
    assert chosen.name == "sha384"


def test_reading_refuses_what_is_no_certificate_and_too_many(keys: MakeKey) -> None:
    for garbage in (b"", b"hello", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        with pytest.raises(BadCertificate):
            read_chain(garbage)
    pem = root(keys("ECDSA 256"))
    assert len(read_chain(b"a comment\n" + pem * 50)) == 50
    with pytest.raises(BadCertificate, match="too many"):
        read_chain(pem * 51)
    names = tuple(f"a{number}.example.com" for number in range(3000))
    csr = build_csr(CsrPlan(dns_names=names), key := keys("ECDSA 256"))
    large = own(csr, key)
    assert len(read_chain(large + pem)) == 2
    with pytest.raises(BadCertificate, match="too large"):
        read_chain(large * 2)


def test_facts_can_be_compared_and_show_no_bytes(keys: MakeKey) -> None:
    pem = root(keys("ECDSA 256"))
    facts = read_certificate(pem)
    assert facts == read_certificate(b"\n" + pem)
    assert facts.pem == pem
    assert "der=" not in repr(facts)
    assert isinstance(facts, CertificateFacts)


@pytest.mark.parametrize(
    ("plan", "subject"),
    [
        (CsrPlan(dns_names=("a.example",)), "SERIALNUMBER=1234567890"),
        (
            CsrPlan(common_name="a", subject=Subject(organizations=("O",), serial_number="7")),
            "O=O,CN=a,SERIALNUMBER=1234567890",
        ),
        (CsrPlan(literal_subject="CN=a,O=O"), "CN=a,O=O,SERIALNUMBER=1234567890"),
        (CsrPlan(common_name="a", is_ca=True), "CN=a,SERIALNUMBER=1234567890"),
    ],
)
def test_a_temporary_certificate_is_marked_in_its_subject(plan: CsrPlan, subject: str) -> None:
    key = generate(KeyPlan(KeyAlgorithm.ECDSA))
    csr = build_csr(marked(plan), key)
    life = timedelta(days=90)
    made = read_certificate(sign_temporarily(csr, duration=life, is_ca=plan.is_ca, usages=(), now=NOW))
    assert is_temporary(made)
    assert sorted(made.subject_text.split(",")) == sorted(subject.split(","))
    assert made.issuer_text == "CN=cert-manager.local"
    assert (made.dns_names, made.is_ca) == (plan.dns_names, plan.is_ca)
    assert (made.not_before, made.not_after) == (NOW, NOW + life)
    assert made.public_key_der == public_key_der(key)
