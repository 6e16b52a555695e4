"""Certificates with ML-DSA keys, behind the feature gate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from certwright.controllers.acme.options import AcmeOptions
from certwright.kube.api import conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.meta import ObjectMeta
from certwright.pki.certificates import read_chain
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import (
    KeyPlan,
    encode_private_key,
    generate,
    load_private_key,
    plan_of,
    public_key_der,
)
from certwright.resources.certificate import Certificate, JKSKeystore, Keystores, PrivateKeySpec
from certwright.resources.issuer import Issuer
from certwright.resources.operator_policy import OperatorPolicy
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest, CertificateRequestSpec
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from controllers.scene import Scene, make_ca_issuer, make_certificate, make_issuer
from support.programs import tool
from support.world import World, condition_of, make_world

GATE_ON = AcmeOptions(policy=OperatorPolicy(post_quantum=True))
ML_DSA = PrivateKeySpec(algorithm="ML-DSA")
RSA = PrivateKeySpec(algorithm="RSA")
ECDSA = PrivateKeySpec(algorithm="ECDSA")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A world with the gate on."""
    async with make_world(acme=GATE_ON) as made:
        yield made


async def add_ca(scene: Scene, name: str, issuer: str, key: PrivateKeySpec) -> None:
    """A CA with that key, and an Issuer of that name that signs with it."""
    await scene.issue(
        name, issuer, private_key=key, is_ca=True, common_name=name, dns_names=(), duration="87600h"
    )
    await scene.world.add(ISSUERS, make_ca_issuer(name, name))


async def judge(world: World, folder: Path) -> str:
    """The report of Go's crypto/x509 and crypto/tls about the Secret `web` and its request."""
    program = tool("postquantum", made_by="go-clients")
    for name, content in (await world.secret("web")).data.items():
        (folder / name).write_bytes(content)
    (request,) = (r for r in await Scene(world).requests() if r.metadata.name == "web-1")
    (folder / "request.pem").write_bytes(request.spec.request)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, folder, stdout=pipe, stderr=pipe)
    report, errors = await process.communicate()
    assert process.returncode == 0, (report + errors).decode()
    return report.decode()


def message(obj: Certificate | CertificateRequest | Issuer, kind: str) -> str:
    """The message of that condition of an object."""
    return condition_of(obj, kind).message


@pytest.mark.parametrize(
    ("root", "intermediate", "leaf"),
    [
        (ML_DSA, ML_DSA, ML_DSA),
        (RSA, ECDSA, PrivateKeySpec(algorithm="ML-DSA", size=44)),
        (PrivateKeySpec(algorithm="MLDSA87"), ECDSA, ECDSA),
        (ECDSA, PrivateKeySpec(algorithm="MLDSA44"), RSA),
    ],
    ids=["ML-DSA only", "ML-DSA below RSA and ECDSA", "below an ML-DSA root", "below an ML-DSA intermediate"],
)
async def test_go_accepts_chains_of_every_mix(
    root: PrivateKeySpec, intermediate: PrivateKeySpec, leaf: PrivateKeySpec, world: World, tmp_path: Path
) -> None:
    scene = Scene(world)
    await world.create(ISSUERS, make_issuer("self"))
    await add_ca(scene, "root", "self", root)
    await add_ca(scene, "intermediate", "root", intermediate)
    await scene.issue("web", "intermediate", private_key=leaf)
    assert await world.is_ready("web"), (await world.certificate("web")).status.conditions
    data = (await world.secret("web")).data
    assert [facts.subject_text for facts in read_chain(data["tls.crt"])][1:] == ["CN=intermediate"]
    assert [facts.subject_text for facts in read_chain(data["ca.crt"])] == ["CN=root"]
    report = await judge(world, tmp_path)
    assert "a TLS 1.3 handshake succeeds" in report
    assert "the signing request has that key and a valid signature" in report


@pytest.mark.parametrize(
    ("key", "algorithm", "shown"),
    [
        (ML_DSA, "", "ML-DSA-65"),
        (PrivateKeySpec(algorithm="ML-DSA", size=44), "PureMLDSA44", "ML-DSA-44"),
        (PrivateKeySpec(algorithm="MLDSA65", encoding="PKCS1"), "PureMLDSA65", "ML-DSA-65"),
        (PrivateKeySpec(algorithm="MLDSA87", size=87), "PureMLDSA87", "ML-DSA-87"),
    ],
)
async def test_a_self_signed_certificate_is_issued_once(
    key: PrivateKeySpec, algorithm: str, shown: str, world: World
) -> None:
    await world.create(ISSUERS, make_issuer("self"))
    await Scene(world).issue("web", "self", private_key=key, signature_algorithm=algorithm, common_name="web")
    assert await world.is_ready("web"), (await world.certificate("web")).status.conditions
    data = (await world.secret("web")).data
    (leaf,) = read_chain(data["tls.crt"])
    private = load_private_key(data["tls.key"])
    assert str(plan_of(private)) == shown
    assert public_key_der(private) == leaf.public_key_der
    assert leaf.usages == ("digital signature",)
    assert (await world.certificate("web")).status.revision == 1
    # After a restart, the key in the Secret still matches the spec.
    await world.start_controllers(acme=GATE_ON)
    assert (await world.certificate("web")).status.revision == 1


async def test_the_key_is_kept_or_replaced_as_the_rotation_policy_says(world: World) -> None:
    scene = Scene(world)
    await world.create(ISSUERS, make_issuer("self"))
    never = PrivateKeySpec(algorithm="ML-DSA", rotation_policy="Never")
    await scene.issue("web", "self", private_key=never)
    first = (await world.secret("web")).data["tls.key"]
    await scene.change_spec("web", dnsNames=["www.example.com"])
    assert (await world.secret("web")).data["tls.key"] == first
    await scene.change_spec("web", privateKey={"algorithm": "ML-DSA", "rotationPolicy": "Always"})
    await scene.change_spec("web", dnsNames=["web.example.com"])
    assert (await world.secret("web")).data["tls.key"] != first
    assert (await world.certificate("web")).status.revision == 3


async def test_a_jks_keystore_is_written(world: World) -> None:
    await world.create(ISSUERS, make_issuer("self"))
    keystores = Keystores(jks=JKSKeystore(create=True, password="secret"))
    await Scene(world).issue("web", "self", private_key=ML_DSA, keystores=keystores)
    assert await world.is_ready("web")
    assert "keystore.jks" in (await world.secret("web")).data


def request_of(issuer: str) -> CertificateRequest:
    """A CertificateRequest by hand for an ML-DSA key."""
    csr = build_csr(CsrPlan(dns_names=("web.example.com",)), generate(KeyPlan.of("ML-DSA", 65)))
    spec = CertificateRequestSpec(issuer_ref=IssuerReference(name=issuer), request=csr)
    return CertificateRequest(metadata=ObjectMeta(name="by-hand", namespace="default"), spec=spec)


async def test_a_signing_request_made_elsewhere_is_signed(world: World) -> None:
    await Scene(world).add_ca()
    await world.add(CERTIFICATE_REQUESTS, request_of("ca"))
    signed = await world.get(CERTIFICATE_REQUESTS, "by-hand")
    assert conditions.is_true(signed.status.conditions, "Ready"), signed.status.conditions
    assert read_chain(signed.status.certificate)[0].is_ml_dsa


async def test_without_the_gate_a_certificate_waits_with_the_reason() -> None:
    # This API server has no policy, like one in a cluster that has our CRDs.
    async with make_world() as world:
        await world.create(ISSUERS, make_issuer("self"))
        await world.add(CERTIFICATES, make_certificate("web", "self", private_key=ML_DSA))
        assert message(await world.certificate("web"), "Issuing") == (
            "spec.privateKey.algorithm: ML-DSA is an alpha feature; have certwright started with "
            "--feature-gates PostQuantum=true, or write RSA, ECDSA or Ed25519"
        )
        assert await Scene(world).requests() == []
        await world.start_controllers(acme=GATE_ON)
        assert await world.is_ready("web")


async def test_without_the_gate_a_request_fails_with_the_reason() -> None:
    async with make_world() as world:
        await Scene(world).add_ca()
        await world.add(CERTIFICATE_REQUESTS, request_of("ca"))
        refused = await world.get(CERTIFICATE_REQUESTS, "by-hand")
        assert "ML-DSA is an alpha feature; have certwright started with" in message(refused, "Ready")


async def test_without_the_gate_an_ml_dsa_ca_is_not_ready() -> None:
    async with make_world(acme=GATE_ON) as world:
        await world.create(ISSUERS, make_issuer("self"))
        await add_ca(Scene(world), "root", "self", ML_DSA)
        assert conditions.is_true((await world.get(ISSUERS, "root")).status.conditions, "Ready")
        await world.start_controllers()
        issuer = await world.get(ISSUERS, "root")
        assert message(issuer, "Ready") == (
            'Error getting keypair for CA issuer: the CA key in secret "root": ML-DSA is an alpha feature; '
            "have certwright started with --feature-gates PostQuantum=true"
        )


async def test_a_key_at_rest_still_fits_its_certificate(world: World) -> None:
    scene = Scene(world)
    await scene.add_ca()
    await scene.issue("web", private_key=ML_DSA)
    await world.advance(timedelta(days=1))
    await scene.change_spec(
        "web", secretTemplate={"labels": {"a": "b"}}, additionalOutputFormats=[{"type": "DER"}]
    )
    secret = await world.secret("web")
    assert secret.metadata.labels["a"] == "b"
    assert "key.der" in secret.data
    await world.advance(timedelta(days=70))
    certificate = await world.certificate("web")
    assert certificate.status.revision == 2, certificate.status.conditions
    assert await world.is_ready("web")


async def test_a_temporary_certificate_has_the_key(world: World) -> None:
    notes = {"cert-manager.io/issue-temporary-certificate": "true"}
    await world.add(CERTIFICATES, make_certificate("web", "missing", private_key=ML_DSA, annotations=notes))
    (leaf,) = read_chain((await world.secret("web")).data["tls.crt"])
    assert leaf.is_ml_dsa
    assert leaf.usages == ("digital signature",)


async def test_a_key_that_is_not_the_certificates_is_noticed(world: World) -> None:
    scene = Scene(world)
    await scene.add_ca()
    await scene.issue("web", private_key=ML_DSA)
    other = encode_private_key(generate(KeyPlan.of("ML-DSA")))
    await world.patch(SECRETS, "web", {"data": {"tls.key": other}})
    certificate, data = await world.certificate("web"), (await world.secret("web")).data
    assert certificate.status.revision == 2
    assert public_key_der(load_private_key(data["tls.key"])) == read_chain(data["tls.crt"])[0].public_key_der
