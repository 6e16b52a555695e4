"""Chains as clients judge them: `openssl verify -x509_strict` and Go's crypto/x509 are the judges."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from certwright.pki.certificates import CertificateFacts, read_certificate, read_der
from certwright.pki.chain import pem_of
from certwright.pki.keys import PrivateKey
from certwright.pki.verify import MAX_COMPARISONS, verify
from pki.conftest import NOW, Openssl
from support.go import build

DAY = timedelta(days=1)
SERVER, CODE = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CODE_SIGNING
CA_USAGE = {"key_cert_sign": True, "crl_sign": True}
LEAF_USAGE = {"digital_signature": True}
_BITS = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


@dataclass(frozen=True)
class Party:
    """A certificate and its key."""

    facts: CertificateFacts
    key: Any

    @property
    def parsed(self) -> x509.Certificate:
        return self.facts.parsed


@cache
def key(number: int) -> PrivateKey:
    """The key of that number."""
    del number
    return ec.generate_private_key(ec.SECP256R1())


@cache
def rsa_key(size: int) -> PrivateKey:
    """An RSA key of that size."""
    return rsa.generate_private_key(65537, size)


def name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])


def made(
    common_name: str,
    by: Party | None,
    own: Any,
    *,
    ca: bool | None = True,
    length: int | None = None,
    usage: dict[str, bool] | None = None,
    purposes: Sequence[ObjectIdentifier] = (),
    names: Sequence[x509.GeneralName] = (),
    constraints: tuple[Sequence[x509.GeneralName], Sequence[x509.GeneralName]] | None = None,
    dates: tuple[timedelta, timedelta] = (-DAY, 30 * DAY),
    signed_with: Any = None,
    critical: bool = True,
    without: Sequence[type[x509.ExtensionType]] = (),
    extra: Sequence[tuple[x509.ExtensionType, bool]] = (),
    subject: x509.Name | None = None,
    issuer: x509.Name | None = None,
) -> Party:
    """A certificate as a CA makes it, but for what is said."""
    issuer_key = signed_with or (by.key if by else own)
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.SubjectKeyIdentifier.from_public_key(own.public_key()), False)
    ]
    if ca is not None:
        extensions.append((x509.BasicConstraints(ca=ca, path_length=length), critical))
    bits = usage if usage is not None else CA_USAGE if ca else LEAF_USAGE
    if bits:
        extensions.append((x509.KeyUsage(**{bit: bits.get(bit, False) for bit in _BITS}), True))
    if by is not None:
        extensions.append((x509.AuthorityKeyIdentifier.from_issuer_public_key(by.key.public_key()), False))
    if names:
        extensions.append((x509.SubjectAlternativeName(list(names)), not common_name))
    if purposes:
        extensions.append((x509.ExtendedKeyUsage(list(purposes)), False))
    if constraints is not None:
        permitted, excluded = constraints
        extensions.append((x509.NameConstraints(list(permitted) or None, list(excluded) or None), True))
    builder = x509.CertificateBuilder(
        issuer_name=issuer or (by.parsed.subject if by else subject or name(common_name)),
        subject_name=subject or name(common_name),
        public_key=own.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=NOW.replace(microsecond=0) + dates[0],
        not_valid_after=NOW.replace(microsecond=0) + dates[1],
        extensions=[
            x509.Extension(value.oid, is_critical, value)
            for value, is_critical in (*extensions, *extra)
            if not isinstance(value, tuple(without))
        ],
    )
    certificate = builder.sign(issuer_key, hashes.SHA256())
    facts = read_der(certificate.public_bytes(serialization.Encoding.DER))
    return Party(facts, own)


Chain = tuple[list[Party], Party]
"""What is served, leaf first, and the root."""


def chain(
    *,
    root: dict[str, Any] | None = None,
    upper: dict[str, Any] | None = None,
    lower: dict[str, Any] | None = None,
    leaf: dict[str, Any] | None = None,
) -> Chain:
    """A root, two CAs below it, and the certificate of a server; each with what is said."""
    top = made("Root", None, **{"own": key(0), **(root or {})})
    second = made("Upper", top, **{"own": key(1), **(upper or {})})
    third = made("Lower", second, **{"own": key(2), **(lower or {})})
    end = {"own": key(3), "ca": False, "names": DNS, "purposes": [SERVER], **(leaf or {})}
    return [made(end.pop("common_name", "a.example.com"), third, **end), third, second], top


def dns(*values: str) -> list[x509.GeneralName]:
    return [x509.DNSName(value) for value in values]


def ip(*values: str) -> list[x509.GeneralName]:
    return [x509.IPAddress(ipaddress.ip_address(value)) for value in values]


def network(*values: str) -> list[x509.GeneralName]:
    return [x509.IPAddress(ipaddress.ip_network(value)) for value in values]


def email(*values: str) -> list[x509.GeneralName]:
    return [x509.RFC822Name(value) for value in values]


def uri(*values: str) -> list[x509.GeneralName]:
    return [x509.UniformResourceIdentifier(value) for value in values]


DNS = dns("a.example.com")
UNKNOWN = x509.UnrecognizedExtension(ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")


def only(permitted: Sequence[x509.GeneralName], names: Sequence[x509.GeneralName]) -> Chain:
    """A CA that permits only some names, and a certificate for some names, without a common name."""
    return chain(lower={"constraints": (permitted, ())}, leaf={"names": names, "common_name": ""})


def but(excluded: Sequence[x509.GeneralName], names: Sequence[x509.GeneralName]) -> Chain:
    """A CA that excludes some names, and a certificate for some names, without a common name."""
    return chain(lower={"constraints": ((), excluded)}, leaf={"names": names, "common_name": ""})


def unrelated() -> Chain:
    served, top = chain()
    return [served[0], made("Other", top, key(7))], top


def twice_named() -> Chain:
    """The intermediate CA has another key than the one that signed, under the same name."""
    served, top = chain()
    other = made("Lower", served[2], key(8), without=[x509.SubjectKeyIdentifier])
    return [served[0], other, served[2]], top


PRINTABLE = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Lower", _ASN1Type.PrintableString)])


def in_wrong_order() -> Chain:
    served, top = chain()
    return [served[0], served[2], served[1]], top


def cross_signed() -> Chain:
    """The certificates of two CAs for one intermediate CA: the one of an old root leads nowhere."""
    served, top = chain()
    old = made("Old root", None, key(9), dates=(-2 * DAY, -DAY))
    return [*served, made("Upper", old, key(1))], top


OK, REFUSED, FAULT, REMARK = "ok", "refused", "fault", "remark"
CASES: dict[str, tuple[str, Chain]] = {
    "sound": (OK, chain()),
    "cross-signed": (OK, cross_signed()),
    "path lengths that suffice": (OK, chain(root={"length": 2}, upper={"length": 1}, lower={"length": 0})),
    "RSA": (OK, chain(lower={"own": rsa_key(2048)})),
    "unrelated intermediate": (FAULT, unrelated()),
    "signed with another key": (REFUSED, chain(leaf={"signed_with": key(8)})),
    "signed by a CA of that name": (REFUSED, twice_named()),
    "not in order": (REMARK, in_wrong_order()),
    "issuer in another encoding": (REMARK, chain(leaf={"issuer": PRINTABLE})),
    "issuer in another encoding, signed with another key": (
        REFUSED,
        chain(leaf={"issuer": PRINTABLE, "signed_with": key(8)}),
    ),
    "precertificate": (REFUSED, chain(leaf={"extra": [(x509.PrecertPoison(), True)]})),
    "unknown critical extension": (FAULT, chain(leaf={"extra": [(UNKNOWN, True)]})),
    "unknown critical extension of a CA": (FAULT, chain(upper={"extra": [(UNKNOWN, True)]})),
    "unknown extension": (OK, chain(leaf={"extra": [(UNKNOWN, False)]})),
    "expired intermediate": (REFUSED, chain(lower={"dates": (-2 * DAY, -DAY)})),
    "intermediate not valid yet": (REFUSED, chain(lower={"dates": (DAY, 2 * DAY)})),
    "expired upper CA": (FAULT, chain(upper={"dates": (-2 * DAY, -DAY)})),
    "no CA": (REFUSED, chain(lower={"ca": False})),
    "no basicConstraints": (REFUSED, chain(lower={"ca": None, "usage": CA_USAGE})),
    "no keyCertSign": (REFUSED, chain(lower={"usage": {"crl_sign": True}})),
    "upper path length": (FAULT, chain(upper={"length": 0})),
    "path length of the root": (FAULT, chain(root={"length": 1})),
    "RSA of 1024 bits": (REMARK, chain(lower={"own": rsa_key(1024)})),
    "secp256k1": (REMARK, chain(lower={"own": ec.generate_private_key(ec.SECP256K1())})),
    "usages of the CA": (REMARK, chain(lower={"purposes": [CODE]})),
    "usages of the upper CA": (REMARK, chain(upper={"purposes": [CODE]})),
    "any usage of the CA": (
        REMARK,
        chain(lower={"purposes": [ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]}),
    ),
    "CA without keyUsage": (REMARK, chain(upper={"usage": {}})),
    "basicConstraints not critical": (REMARK, chain(upper={"critical": False})),
    "no authorityKeyIdentifier": (REMARK, chain(leaf={"without": [x509.AuthorityKeyIdentifier]})),
    "no subjectKeyIdentifier of a CA": (REMARK, chain(lower={"without": [x509.SubjectKeyIdentifier]})),
    "keyCertSign of a server": (REMARK, chain(leaf={"usage": CA_USAGE})),
    "permitted DNS": (OK, only(dns("example.com"), DNS)),
    "permitted DNS, exactly": (OK, only(dns("A.example.COM"), dns("a.Example.com"))),
    "permitted wildcard": (OK, only(dns("example.com"), dns("*.example.com"))),
    "permitted with a dot": (OK, only(dns(".example.com"), DNS)),
    "permitted with a dot, itself": (REFUSED, only(dns(".example.com"), dns("example.com"))),
    "not permitted DNS": (REFUSED, only(dns("example.com"), dns("a.example.org"))),
    "not permitted DNS of like letters": (REFUSED, only(dns("example.com"), dns("notexample.com"))),
    "not permitted second name": (REFUSED, only(dns("example.com"), dns("a.example.com", "b.example.org"))),
    "excluded DNS": (REFUSED, but(dns("example.com"), DNS)),
    "not excluded DNS": (OK, but(dns("b.example.com"), DNS)),
    "everything excluded": (REFUSED, but(dns(""), DNS)),
    "permitted IP": (OK, only(network("10.0.0.0/8"), ip("10.1.2.3"))),
    "not permitted IP": (REFUSED, only(network("10.0.0.0/8"), ip("11.1.2.3"))),
    "IPv6 where IPv4 is permitted": (REFUSED, only(network("10.0.0.0/8"), ip("fd00::1"))),
    "excluded IP": (REFUSED, but(network("fd00::/8"), ip("fd00::1"))),
    "not excluded IP": (OK, but(network("0.0.0.0/0"), ip("fd00::1"))),
    "another type than the permitted one": (OK, only(network("10.0.0.0/8"), DNS)),
    "permitted mailbox": (OK, only(email("me@example.com"), email("me@EXAMPLE.com"))),
    "not permitted mailbox": (REFUSED, only(email("me@example.com"), email("ME@example.com"))),
    "permitted host of mail": (OK, only(email("example.com"), email("me@example.com"))),
    "not permitted host of mail": (REFUSED, only(email("example.com"), email("me@a.example.com"))),
    "permitted domain of mail": (OK, only(email(".example.com"), email("me@a.example.com"))),
    "permitted URI": (OK, only(uri("a.example.com"), uri("https://a.example.com:8443/x"))),
    "permitted domain of URI": (OK, only(uri(".example.com"), uri("spiffe://a.example.com/x"))),
    "not permitted URI": (REFUSED, only(uri("a.example.com"), uri("https://b.example.com/"))),
    "excluded URI": (REFUSED, but(uri("a.example.com"), uri("https://a.example.com/"))),
    "constraints of the upper CA": (FAULT, chain(upper={"constraints": (dns("example.org"), ())})),
    "constraints of the root": (FAULT, chain(root={"constraints": (dns("example.org"), ())})),
}


def level(served: Sequence[CertificateFacts], top: CertificateFacts) -> tuple[str, str]:
    """What our verification says, and why."""
    result = verify(served, [top], NOW)
    texts = "; ".join((result.refusal, *result.faults, *result.remarks))
    if result.refusal:
        return REFUSED, texts
    return FAULT if result.faults else REMARK if result.remarks else OK, texts


@pytest.mark.parametrize(("expected", "case"), CASES.values(), ids=CASES)
def test_a_chain_is_judged_as_by_openssl(expected: str, case: Chain, openssl: Openssl) -> None:
    served, top = [party.facts for party in case[0]], case[1].facts
    judged, why = level(served, top)
    assert judged == expected, why
    said = openssl(
        "verify", "-x509_strict", "-auth_level", "2", "-purpose", "sslserver",
        "-attime", str(int(NOW.timestamp())), "-CAfile", "root", "-untrusted", "rest", "leaf",
        check=False, root=top.pem, rest=pem_of(served[1:]), leaf=served[0].pem,
    )  # fmt: skip
    if expected == OK:
        assert "leaf: OK" in said
    elif expected == REFUSED:
        assert "leaf: OK" not in said, why


def test_go_accepts_what_is_verified_and_refuses_what_is_refused() -> None:
    program = build("verifychain", "verify-chain")
    questions = [
        {
            "chain": pem_of([party.facts for party in served]).decode(),
            "roots": top.facts.pem.decode(),
            "time": int(NOW.timestamp()),
        }
        for _, (served, top) in CASES.values()
    ]
    asked = "\n".join(map(json.dumps, questions))
    done = subprocess.run([program], input=asked, capture_output=True, text=True, check=True, timeout=60)
    answers = dict(zip(CASES, done.stdout.splitlines(), strict=True))
    # Go lets a host of mail mean the hosts below it too, against RFC 5280 §4.2.1.10.
    del answers["not permitted host of mail"]
    wrong = {
        case: answers[case]
        for case, (expected, _) in CASES.items()
        if case in answers
        if (expected == OK) != (answers[case] == "ok") and expected in (OK, REFUSED)
    }
    assert wrong == {}


def test_the_chain_is_put_in_order_and_keeps_what_belongs_to_it() -> None:
    served, top = cross_signed()
    other = made("Other", None, key(7))
    given = [served[0], served[2], other, served[3], served[1]]
    result = verify([party.facts for party in given], [top.facts], NOW)
    assert result.chain == tuple(party.facts for party in served)


def test_constraints_of_directory_names_are_those_of_the_subject() -> None:
    def subject(*values: str) -> x509.Name:
        oids = (NameOID.COUNTRY_NAME, NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME)
        return x509.Name([x509.NameAttribute(oid, value) for oid, value in zip(oids, values, strict=False)])

    base = [x509.DirectoryName(subject("DE", "Example  Org"))]
    for organization, accepted in (("example org", True), ("Example", False)):
        leaf = {"names": DNS, "subject": subject("DE", organization, "a")}
        served, top = chain(lower={"constraints": (base, ())}, leaf=leaf)
        assert (level([party.facts for party in served], top.facts)[0] == OK) is accepted


def test_a_certificate_that_only_names_itself_as_its_issuer_is_refused() -> None:
    party = made("a.example.com", None, key(3), ca=False, signed_with=key(4))
    assert "not signed with its own key" in verify([party.facts], [], NOW).refusal
    assert verify([made("a.example.com", None, key(3), ca=False).facts], [], NOW).refusal == ""


def test_few_of_many_findings_are_shown() -> None:
    served, top = only(dns("example.com"), dns(*(f"a{number}.example.org" for number in range(1000))))
    _, why = level([party.facts for party in served], top.facts)
    assert why.endswith('and not "a4.example.org"; and 995 more')


def test_comparisons_of_name_constraints_are_limited() -> None:
    count = int(MAX_COMPARISONS**0.5) + 10
    bases, names = (
        [f"b{number}.example" for number in range(count)],
        [f"n{number}.example" for number in range(count)],
    )
    served, top = but(dns(*bases), dns(*names))
    assert "more name constraints" in level([party.facts for party in served], top.facts)[1]


def test_a_ca_below_a_path_length_of_0_is_remarked() -> None:
    served, top = chain(lower={"length": 0}, leaf={"ca": True})
    assert level([party.facts for party in served], top.facts)[0] == REMARK


def test_a_signature_with_sha_1_is_a_fault(openssl: Openssl) -> None:
    root = made("Root", None, rsa_key(2048))
    pem = rsa_key(2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    files = {"ca": root.facts.pem, "key": pem}
    openssl("req", "-new", "-key", "key", "-subj", "/CN=a", "-out", "csr", **files)
    openssl(
        "x509", "-req", "-in", "csr", "-CA", "ca", "-CAkey", "key", "-CAcreateserial", "-sha1",
        "-out", "leaf", "-days", "9000",
    )  # fmt: skip
    signed = read_certificate(openssl("x509", "-in", "leaf").encode())
    judged, why = level([signed], root.facts)
    assert (judged, "SHA1" in why, "version 1" in why) == (FAULT, True, True)
