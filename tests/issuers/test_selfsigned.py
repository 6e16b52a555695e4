"""The `selfSigned` issuer."""

from __future__ import annotations

import msgspec
import pytest

from certwright.issuers.contract import Failed, Pending, SigningRequest
from certwright.pki.certificates import read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyPlan, encode_private_key, generate
from conformance.check_issuer import KEY_SECRET, Setup


async def test_it_is_always_ready_and_has_nothing_to_say(self_setup: Setup) -> None:
    checked = await self_setup.issuer.check(self_setup.view, self_setup.tools)
    assert (checked.ready, checked.reason, checked.message) == (True, "IsReady", "")


@pytest.mark.parametrize("algorithm", ["RSA", "ECDSA", "Ed25519"])
async def test_a_certificate_is_its_own_ca(algorithm: str, self_setup: Setup) -> None:
    plan = CsrPlan(common_name="Root", is_ca=True)
    outcome = await self_setup.signed(self_setup.request(plan, key=generate(KeyPlan.of(algorithm))))
    assert outcome.ca_pem == outcome.chain_pem
    facts = read_certificate(outcome.chain_pem)
    assert facts.issuer_text == facts.subject_text == "CN=Root"
    assert facts.may_sign
    assert outcome.warnings == ()


async def test_without_a_subject_it_signs_and_warns(self_setup: Setup) -> None:
    outcome = await self_setup.signed(self_setup.request(CsrPlan(dns_names=("a.example",))))
    (remark,) = outcome.warnings
    assert remark.reason == "BadConfig"
    assert "empty subject" in remark.message


async def test_without_the_annotation_it_fails(self_setup: Setup) -> None:
    signing = self_setup.request()
    request = msgspec.structs.replace(
        signing.request, metadata=msgspec.structs.replace(signing.request.metadata, annotations={})
    )
    outcome = await self_setup.sign(SigningRequest(request, self_setup.get_secret))
    text = 'Annotation "cert-manager.io/private-key-secret-name" missing or reference empty'
    assert outcome == Failed("MissingAnnotation", text)


async def test_it_waits_for_the_secret_with_the_key(self_setup: Setup) -> None:
    signing = self_setup.request()
    key = self_setup.secrets.pop(KEY_SECRET)
    outcome = await self_setup.sign(signing)
    text = "Referenced secret default/next-key not found"
    assert outcome == Pending("MissingSecret", text, secrets=("next-key",))
    self_setup.secrets[KEY_SECRET] = key
    await self_setup.signed(signing)


@pytest.mark.parametrize("data", [{}, {"tls.key": b""}, {"tls.key": b"nonsense"}])
async def test_it_waits_for_a_key_that_can_be_read(data: dict[str, bytes], self_setup: Setup) -> None:
    signing = self_setup.request()
    self_setup.secrets[KEY_SECRET] = data
    outcome = await self_setup.pending(signing)
    assert outcome.reason == "ErrorParsingKey"
    assert outcome.secrets == ("next-key",)


async def test_another_key_than_the_requests_fails(self_setup: Setup) -> None:
    signing = self_setup.request()
    self_setup.secrets[KEY_SECRET] = {"tls.key": encode_private_key(generate(KeyPlan.of("ECDSA")))}
    outcome = await self_setup.failed(signing)
    assert outcome.reason == "ErrorKeyMatch"
    assert outcome.message.endswith("CSR not signed by referenced private key")


async def test_a_request_that_contradicts_itself_fails(self_setup: Setup) -> None:
    key = generate(KeyPlan.of("ECDSA"))
    self_setup.request(key=key)
    csr = build_csr(CsrPlan(common_name="a", is_ca=True), key)
    outcome = await self_setup.failed(self_setup.request_with(csr, CsrPlan(common_name="a")))
    assert outcome.reason == "ErrorGenerating"
    assert "isCA" in outcome.message
