"""Worlds with one issuer that is ready, and what cert-manager's helpers check after each issue.

Source: cert-manager `test/e2e/framework/helper/validation`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from certwright.kube.api import conditions, errors
from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import CAIssuer, IssuerSpec, SelfSignedIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.table import (
    CERTIFICATE_REQUESTS,
    CERTIFICATE_SIGNING_REQUESTS,
    CERTIFICATES,
    CLUSTER_ISSUERS,
    ISSUERS,
)
from conformance import openssl
from controllers.scene import make_certificate, make_cluster_issuer, make_issuer
from issuers.authority import new_root
from support.world import World, make_world

SUITES: Final = ("CA, Issuer", "CA, ClusterIssuer", "SelfSigned, Issuer", "SelfSigned, ClusterIssuer")
CLUSTER_NAMESPACE: Final = "kube-system"
ISSUER: Final = "signer"
DOMAIN: Final = "web.example.com"
# The labels of PEM: of PKCS#8, and of what came before it for each algorithm.
_LABELS: Final = {"": "PRIVATE KEY", "RSA": "RSA PRIVATE KEY", "ECDSA": "EC PRIVATE KEY"}


@dataclass(frozen=True, slots=True)
class Suite:
    """A world with one issuer that is ready."""

    world: World
    reference: IssuerReference
    is_ca: bool

    @property
    def secrets_in(self) -> str:
        """The namespace where the issuer's Secrets lie."""
        return CLUSTER_NAMESPACE if self.reference.kind == "ClusterIssuer" else "default"

    async def issue(self, **spec: Any) -> None:
        """Create the Certificate `web` and let everything run."""
        made = make_certificate("web", ISSUER, **{**spec, "issuer_ref": self.reference})
        await self.world.create(CERTIFICATES, made)
        await self.world.settle()

    async def clean(self) -> None:
        """Take away what a test has made, so that the next one can use the same world."""
        client = self.world.client
        for kind, name in ((CERTIFICATES, "web"), (SECRETS, "web"), (SECRETS, "key")):
            namespace = self.secrets_in if name == "key" else "default"
            with contextlib.suppress(errors.NotFound):
                await client.delete(kind, name, namespace)
        with contextlib.suppress(errors.NotFound):
            await client.delete(CERTIFICATE_SIGNING_REQUESTS, "r")
        await self.world.settle()
        for request in (await client.list(CERTIFICATE_REQUESTS)).items:
            await client.delete(CERTIFICATE_REQUESTS, request.metadata.name, request.metadata.namespace)
        await self.world.settle()


@contextlib.asynccontextmanager
async def open_suite(name: str, *, enabled: str = "*") -> AsyncIterator[Suite]:
    """The suite of that name, one of `SUITES`, with these controllers."""
    what, kind = name.split(", ")
    specs = {
        "CA": IssuerSpec(ca=CAIssuer(secret_name="ca")),
        "SelfSigned": IssuerSpec(self_signed=SelfSignedIssuer()),
    }
    is_cluster = kind == "ClusterIssuer"
    async with make_world(cluster_resource_namespace=CLUSTER_NAMESPACE, enabled=enabled) as world:
        meta = SecretMeta(name="ca", namespace=CLUSTER_NAMESPACE if is_cluster else "default")
        secret = Secret(metadata=meta, type="kubernetes.io/tls", data=new_root("Root").secret())
        await world.create(SECRETS, secret)
        if is_cluster:
            await world.create(CLUSTER_ISSUERS, make_cluster_issuer(ISSUER, specs[what]))
        else:
            await world.create(ISSUERS, make_issuer(ISSUER, specs[what]))
        await world.settle()
        yield Suite(world, IssuerReference(name=ISSUER, kind=kind), what == "CA")


def suite_fixtures(names: Sequence[str], *, enabled: str = "*") -> tuple[Any, Any]:
    """The fixtures `opened` and `suite` of a module: one world for all tests of a suite, because to make one
    takes longer than a test; and the world with nothing left of the test before."""

    @pytest_asyncio.fixture(scope="module", loop_scope="module", params=names, name="opened")
    async def open_one(request: pytest.FixtureRequest) -> AsyncIterator[Suite]:
        async with open_suite(str(request.param), enabled=enabled) as made:
            yield made

    @pytest_asyncio.fixture(loop_scope="module", name="suite")
    async def clean_one(opened: Suite) -> AsyncIterator[Suite]:
        yield opened
        await opened.clean()

    return open_one, clean_one


async def validate(suite: Suite) -> CertificateFacts:
    """Check all that cert-manager's helpers check; the leaf."""
    certificate, secret = await suite.world.certificate("web"), await suite.world.secret("web")
    leaf = read_chain(secret.data["tls.crt"])[0]
    check_status(certificate, leaf)
    check_secret(certificate, secret, leaf)
    check_key(certificate, secret, leaf)
    check_names(certificate, leaf)
    check_terms(certificate, leaf)
    await check_trust(suite, secret)
    return leaf


def check_status(certificate: Certificate, leaf: CertificateFacts) -> None:
    """Ready, of this generation, with the dates that the certificate has."""
    ready = conditions.find(certificate.status.conditions, "Ready")
    assert ready is not None
    assert (ready.status, ready.reason) == ("True", "Ready"), certificate.status.conditions
    assert ready.observed_generation == certificate.metadata.generation
    assert conditions.find(certificate.status.conditions, "Issuing") is None
    assert certificate.status.not_after == leaf.not_after
    assert certificate.status.not_before == leaf.not_before
    assert certificate.status.renewal_time is not None
    assert leaf.not_before < certificate.status.renewal_time < leaf.not_after


def check_secret(certificate: Certificate, secret: Secret, leaf: CertificateFacts) -> None:
    """The keys of its data, its label, whose it is and from which issuer."""
    reference = certificate.spec.issuer_ref
    assert set(secret.data) == {"tls.crt", "tls.key", "ca.crt"}
    assert secret.type == "kubernetes.io/tls"
    assert secret.metadata.labels["controller.cert-manager.io/fao"] == "true"
    expected = {
        "certificate-name": "web",
        "issuer-name": reference.name,
        "issuer-kind": reference.kind,
        "issuer-group": "cert-manager.io",
        "common-name": certificate.spec.common_name or leaf.common_name,
        "alt-names": ",".join(certificate.spec.dns_names),
        "ip-sans": ",".join(certificate.spec.ip_addresses),
        "uri-sans": ",".join(certificate.spec.uris),
    }
    for name, value in expected.items():
        assert secret.metadata.annotations[f"cert-manager.io/{name}"] == value


def check_key(certificate: Certificate, secret: Secret, leaf: CertificateFacts) -> None:
    """The key is as the spec wants it, in the encoding wanted, and the certificate's."""
    key, spec = load_private_key(secret.data["tls.key"]), certificate.spec.key
    assert public_key_der(key) == leaf.public_key_der
    label = "" if spec.encoding_or_default == "PKCS8" else spec.algorithm_or_default
    assert secret.data["tls.key"].startswith(f"-----BEGIN {_LABELS[label]}-----".encode())
    match spec.algorithm_or_default:
        case "RSA":
            assert isinstance(key, rsa.RSAPrivateKey)
            assert key.key_size == spec.size_or_default
        case "ECDSA":
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            assert key.curve.key_size == spec.size_or_default
        case _:
            assert isinstance(key, ed25519.Ed25519PrivateKey)


def check_names(certificate: Certificate, leaf: CertificateFacts) -> None:
    """Subject and alternative names."""
    spec = certificate.spec
    assert set(leaf.dns_names) == set(spec.dns_names)
    assert set(leaf.ip_addresses) == set(spec.ip_addresses)
    assert set(leaf.uris) == set(spec.uris)
    assert set(leaf.email_addresses) == set(spec.email_addresses)
    assert [(name.oid, name.utf8_value) for name in leaf.other_names] == [
        (name.oid, name.utf8_value) for name in spec.other_names
    ]
    if spec.literal_subject:
        return
    assert leaf.common_name == spec.common_name
    # Several of one kind are one set in the name, and DER sorts it.
    assert set(leaf.subject.organizations) == set(spec.subject.organizations if spec.subject else ())


def check_terms(certificate: Certificate, leaf: CertificateFacts) -> None:
    """How long, what for, and whether it may sign."""
    spec = certificate.spec
    assert leaf.is_ca == spec.is_ca
    assert abs(leaf.not_after - leaf.not_before - spec.requested_duration) <= timedelta(seconds=30)
    usages = set(spec.usages) or {"digital signature", "key encipherment"}
    same = {"signing": "digital signature"}
    usages = {same.get(usage, usage) for usage in usages} | ({"cert sign"} if spec.is_ca else set())
    assert set(leaf.usages) == usages
    basic = leaf.parsed.extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical


async def check_trust(suite: Suite, secret: Secret) -> None:
    """`ca.crt` is a root, and the chain leads to it: OpenSSL says so too."""
    chain, (ca, *more) = read_chain(secret.data["tls.crt"]), read_chain(secret.data["ca.crt"])
    assert not more
    assert ca.subject_text == ca.issuer_text
    if suite.is_ca:
        assert ca.subject_text == "CN=Root"
        assert chain[-1].issuer_text == "CN=Root"
    else:
        assert secret.data["ca.crt"] == secret.data["tls.crt"]
    await openssl.verify(secret.data["tls.crt"], secret.data["ca.crt"], suite.world.clock.now())
