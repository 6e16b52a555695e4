"""The `ca` issuer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from msgspec.structs import replace

from certwright.issuers import table
from certwright.issuers.ca import CA
from certwright.issuers.contract import Checked, Failed, Outcome, Pending, Signed
from certwright.pki import usages
from certwright.pki.certificates import read_certificate, read_chain
from certwright.pki.csr import CsrPlan
from certwright.pki.keys import KeyPlan, PrivateKey, encode_private_key, generate
from certwright.resources.causes import Cause
from conformance.check_issuer import Setup
from issuers.authority import Authority, new_root
from support.real import require

T = TypeVar("T")
START = datetime(2025, 12, 1, tzinfo=UTC)
MakeSetup = Callable[[dict[str, bytes] | None], Setup]


async def check(setup: Setup) -> Checked:
    return await setup.issuer.check(setup.view, setup.tools)


async def test_a_good_pair_is_verified_in_cert_managers_words(ca_setup: MakeSetup, root: Authority) -> None:
    setup = ca_setup(root.secret())
    checked = await check(setup)
    assert (checked.ready, checked.reason, checked.message) == (
        True,
        "KeyPairVerified",
        "Signing CA verified",
    )
    assert checked.secrets == ("ca-pair",)
    # It looks again when the CA expires.
    assert checked.retry_after == root.facts.not_after - setup.now


async def test_a_missing_secret_is_named(ca_setup: MakeSetup) -> None:
    setup = ca_setup(None)
    checked = await check(setup)
    assert not checked.ready
    assert checked.reason == "ErrGetKeyPair"
    assert checked.message == 'Error getting keypair for CA issuer: secret "ca-pair" not found'
    outcome = await setup.sign(setup.request())
    assert outcome == Pending(
        "SecretMissing", "Referenced secret default/ca-pair not found", secrets=("ca-pair",)
    )


@pytest.mark.parametrize("key", ["tls.crt", "tls.key"])
async def test_missing_data_is_named(key: str, ca_setup: MakeSetup, root: Authority) -> None:
    secret = root.secret()
    del secret[key]
    setup = ca_setup(secret)
    checked = await check(setup)
    assert checked.reason == "ErrGetKeyPair"
    assert checked.message == f'Error getting keypair for CA issuer: no data for "{key}" in secret "ca-pair"'
    outcome = await setup.pending()
    assert outcome.reason == "SecretInvalidData"
    assert outcome.message.startswith("Failed to parse signing CA keypair from secret default/ca-pair: ")


async def test_a_pair_that_is_no_ca_is_refused(ca_setup: MakeSetup) -> None:
    checked = await check(ca_setup(new_root("leaf", is_ca=False).secret()))
    assert checked.reason == "ErrInvalidKeyPair"
    assert checked.message == "Error getting keypair for CA issuer: certificate is not a CA"


async def test_an_expired_ca_says_so_and_its_requests_wait(ca_setup: MakeSetup, root: Authority) -> None:
    setup = ca_setup(root.secret())
    assert (await check(setup)).ready
    setup.now = root.facts.not_after
    checked = await check(setup)
    assert checked.reason == "ErrInvalidKeyPair"
    assert 'the CA certificate in secret "ca-pair" expired at 2026-12-01T00:00:00Z' in checked.message
    outcome = await setup.pending()
    assert "expired" in outcome.message


async def test_a_key_of_another_certificate_is_refused(ca_setup: MakeSetup, root: Authority) -> None:
    secret = root.secret() | {"tls.key": encode_private_key(generate(KeyPlan.of("ECDSA")))}
    checked = await check(ca_setup(secret))
    assert checked.reason == "ErrInvalidKeyPair"
    assert "is not the key of the certificate" in checked.message


async def test_certificates_that_are_no_chain_are_refused(ca_setup: MakeSetup, root: Authority) -> None:
    checked = await check(ca_setup(root.secret(new_root("Stranger"))))
    assert checked.reason == "ErrGetKeyPair"
    assert "not one chain" in checked.message


async def test_a_root_signs_with_its_addresses_and_is_the_ca(ca_setup: MakeSetup, root: Authority) -> None:
    setup = ca_setup(root.secret())
    outcome = await setup.signed()
    assert outcome.ca_pem == root.pem
    assert outcome.warnings == ()
    (leaf,) = read_chain(outcome.chain_pem)
    points = leaf.parsed.extensions.get_extension_for_class(x509.CRLDistributionPoints).value
    assert "http://crl.example/a.crl" in str(points)
    access = leaf.parsed.extensions.get_extension_for_class(x509.AuthorityInformationAccess).value
    assert [a.access_location.value for a in access] == ["http://ocsp.example", "http://ca.example/ca.crt"]


async def test_an_intermediate_with_its_chain_comes_with_the_leaf(
    ca_setup: MakeSetup, root: Authority, intermediate: Authority
) -> None:
    lowest = intermediate.issue("Lowest")
    setup = ca_setup(lowest.secret(intermediate, root))
    outcome = await setup.signed()
    assert [c.common_name for c in read_chain(outcome.chain_pem)] == ["web", "Lowest", "Intermediate"]
    assert outcome.ca_pem == root.pem


async def test_a_root_that_is_kept_in_ca_crt_becomes_the_ca(
    ca_setup: MakeSetup, root: Authority, intermediate: Authority
) -> None:
    setup = ca_setup(intermediate.secret(ca=root))
    outcome = await setup.signed()
    assert [c.common_name for c in read_chain(outcome.chain_pem)] == ["web", "Intermediate"]
    assert outcome.ca_pem == root.pem


async def test_without_a_root_the_highest_certificate_is_the_ca(
    ca_setup: MakeSetup, intermediate: Authority
) -> None:
    for secret in (intermediate.secret(), intermediate.secret(ca=new_root("Stranger"))):
        setup = ca_setup(secret)
        outcome = await setup.signed()
        assert [c.common_name for c in read_chain(outcome.chain_pem)] == ["web", "Intermediate"]
        assert outcome.ca_pem == intermediate.pem


async def test_a_new_pair_in_the_secret_is_used_at_once(ca_setup: MakeSetup, root: Authority) -> None:
    setup = ca_setup(root.secret())
    await setup.signed()
    other = new_root("Other")
    setup.secrets["ca-pair"] = other.secret()
    outcome = await setup.signed()
    assert read_certificate(outcome.chain_pem).issuer_text == "CN=Other"
    assert outcome.ca_pem == other.pem


async def test_parsed_pairs_are_kept_but_not_without_end(ca_setup: MakeSetup, root: Authority) -> None:
    setup = ca_setup(root.secret())
    for number in range(300):
        await setup.issuer.check(replace(setup.view, uid=f"uid-{number}"), setup.tools)
    assert isinstance(setup.issuer, CA)
    assert len(setup.issuer._pairs) == 256
    assert setup.issuer._pairs.get("uid-299") is not None
    assert setup.issuer._pairs.get("uid-0") is None


async def test_a_ca_is_signed_where_one_is_asked_for(ca_setup: MakeSetup, root: Authority) -> None:
    setup = ca_setup(root.secret())
    outcome = await setup.signed(setup.request(CsrPlan(common_name="Below", is_ca=True)))
    facts = read_certificate(outcome.chain_pem)
    assert facts.may_sign
    assert facts.not_after == setup.now.replace(microsecond=0) + timedelta(hours=24)


async def test_a_cluster_issuers_secret_is_named_without_a_namespace(ca_setup: MakeSetup) -> None:
    setup = ca_setup(None)
    setup.view = replace(setup.view, kind="ClusterIssuer", namespace="")
    outcome = await setup.pending()
    assert outcome.message == "Referenced secret ca-pair not found"


async def test_a_bad_request_fails_with_the_reason_signing_error(
    ca_setup: MakeSetup, root: Authority
) -> None:
    setup = ca_setup(root.secret())
    outcome = await setup.failed(setup.request_with(b"nonsense"))
    assert outcome.reason == "SigningError"
    assert outcome.message.startswith("Error signing certificate: error decoding certificate request PEM")
    assert outcome.cause is Cause.INVALID_REQUEST
    assert "spec.usages" in outcome.advice


async def verified(setup: Setup, plan: CsrPlan) -> Outcome:
    """What becomes of a request once what the CA has signed is verified."""
    signing = setup.request(plan)
    return await table.verified(await setup.sign(signing), signing, setup.tools)


@pytest.mark.parametrize(
    ("length", "is_ca", "remark"),
    [(0, True, "path length 0"), (0, False, ""), (1, True, "")],
    ids=["no CA below it", "a leaf below it", "a CA below one that allows it"],
)
async def test_a_ca_below_one_that_allows_none_is_signed_with_a_warning(
    length: int, is_ca: bool, remark: str, ca_setup: MakeSetup
) -> None:
    setup = ca_setup(root_of_others(x509.BasicConstraints(ca=True, path_length=length)))
    outcome = await verified(setup, CsrPlan(common_name="Below", is_ca=is_ca))
    assert isinstance(outcome, Signed)
    assert [warning.reason for warning in outcome.warnings] == (["BadConfig"] if remark else [])
    assert all(remark in warning.message for warning in outcome.warnings)


async def test_a_name_that_the_ca_may_not_sign_is_refused(ca_setup: MakeSetup) -> None:
    constraints = x509.NameConstraints([x509.DNSName("example.com")], None)
    setup = ca_setup(root_of_others(x509.BasicConstraints(ca=True, path_length=None), constraints))
    assert isinstance(await verified(setup, CsrPlan(dns_names=("a.example.com",))), Signed)
    outcome = await verified(setup, CsrPlan(dns_names=("a.example.org",)))
    assert isinstance(outcome, Failed)
    assert outcome.message == (
        'No client would accept the certificate: the CA certificate "CN=Bounded" permits only '
        '"example.com", and not "a.example.org"'
    )


async def test_a_cross_certificate_beside_the_chain_of_a_ca_is_accepted(
    ca_setup: MakeSetup, root: Authority
) -> None:
    key, other = generate(KeyPlan.of("ECDSA")), new_root("Old root")
    lower, cross = (authority.issue("Lower", key=key) for authority in (root, other))
    setup = ca_setup(lower.secret(cross, root))
    assert (await check(setup)).ready
    outcome = await setup.signed()
    assert outcome.ca_pem == root.pem


def old_ca(folder: Path) -> dict[str, bytes]:
    """The Secret of a root of X.509 version 1, as `openssl x509 -req` makes it."""
    key = encode_private_key(generate(KeyPlan.of("ECDSA")))
    (folder / "key").write_bytes(key)
    for arguments in ("req -new -key key -subj /CN=Old -out csr", "x509 -req -in csr -signkey key -out pem"):
        command = [require("openssl"), *arguments.split()]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return {"tls.crt": (folder / "pem").read_bytes(), "tls.key": key}


async def test_a_ca_of_version_1_is_refused(ca_setup: MakeSetup, tmp_path: Path) -> None:
    checked = await check(ca_setup(old_ca(tmp_path)))
    assert "certificate is not a CA: it is of X.509 version 1" in checked.message


def csr_of(key: Any, *names: x509.GeneralName, has_names: bool = True) -> bytes:
    """A signing request as other programs make it."""
    extensions = [x509.SubjectAlternativeName(list(names))] if has_names else []
    return (
        x509.CertificateSigningRequestBuilder(
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")]),
            [x509.Extension(value.oid, False, value) for value in extensions],
        )
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def _rsa_key(bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


EC_KEY = ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("csr", "sentence"),
    [
        (csr_of(_rsa_key(1024), has_names=False), "an RSA key of 1024 bits"),
        (csr_of(ec.generate_private_key(ec.SECP256K1()), has_names=False), "secp256k1"),
        (csr_of(EC_KEY), "the subjectAltName extension has no name"),
        (csr_of(EC_KEY, x509.DNSName("a.com\0.evil.example")), "is not a DNS name"),
        (csr_of(EC_KEY, x509.DNSName("")), "is not a DNS name"),
        (csr_of(EC_KEY, x509.UniformResourceIdentifier("https://a/ b")), "is not a URI"),
    ],
    ids=["small RSA", "another curve", "no name", "NUL", "empty name", "a blank"],
)
async def test_keys_and_names_that_no_spec_may_have_are_not_signed(
    csr: bytes, sentence: str, ca_setup: MakeSetup, root: Authority
) -> None:
    setup = ca_setup(root.secret())
    outcome = await setup.failed(setup.request_with(csr))
    assert sentence in outcome.message
    assert outcome.cause is Cause.INVALID_REQUEST


def root_of_others(*extensions: x509.ExtensionType) -> dict[str, bytes]:
    """The Secret of a root with these extensions, as other programs make them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Bounded")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, START, START + timedelta(days=900))
    usage, _ = usages.extensions(("cert sign",))
    assert usage is not None
    for extension in (*extensions, usage):
        builder = builder.add_extension(extension, critical=True)
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = builder.add_extension(key_id, critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return {"tls.crt": pem, "tls.key": encode_private_key(key)}


@dataclass
class Recorder:
    """An executor that computes immediately, and records the flow of each work."""

    flows: list[Hashable] = field(default_factory=list)

    async def run(self, work: Callable[[], T], flow: Hashable) -> T:
        self.flows.append(flow)
        return work()


async def test_signatures_that_take_long_are_work_of_the_namespace_and_a_secret_is_parsed_once(
    ca_setup: MakeSetup,
) -> None:
    setup, recorder = ca_setup(new_root("Root", algorithm="RSA").secret()), Recorder()
    tools = replace(setup.tools, executor=recorder)
    for _ in range(2):
        assert (await setup.issuer.check(setup.view, tools)).ready
        assert isinstance(await setup.issuer.sign(setup.view, setup.request(), tools), Signed)
    # The pair is parsed, and two certificates are signed.
    assert recorder.flows == ["default"] * 3


async def test_why_a_pair_is_unusable_is_remembered(ca_setup: MakeSetup, root: Authority) -> None:
    bad_key = b"-----BEGIN PRIVATE KEY-----\n" * 18_000
    setup, recorder = ca_setup(root.secret() | {"tls.key": bad_key}), Recorder()
    tools = replace(setup.tools, executor=recorder)
    for _ in range(3):
        assert not (await setup.issuer.check(setup.view, tools)).ready
    assert recorder.flows == ["default"]


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (ec.generate_private_key(ec.SECP256K1()), "curve secp256k1 is not supported"),
        (ec.generate_private_key(ec.SECP224R1()), "curve secp224r1 is not supported"),
        (rsa.generate_private_key(public_exponent=65537, key_size=1024), "RSA key of 1024 bits"),  # noqa: S505
    ],
    ids=["secp256k1", "P-224", "RSA 1024"],
)
async def test_a_ca_key_whose_signatures_clients_refuse_makes_the_issuer_not_ready(
    key: PrivateKey, sentence: str, ca_setup: MakeSetup, root: Authority
) -> None:
    checked = await check(ca_setup(root.secret() | {"tls.key": encode_private_key(key, "PKCS8")}))
    assert not checked.ready
    assert sentence in checked.message
