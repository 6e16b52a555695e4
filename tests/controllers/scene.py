"""Builders, and short words for what tests of the controllers look at."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.certificate import Certificate, CertificateSpec, PrivateKeySpec
from certwright.resources.issuer import CAIssuer, ClusterIssuer, Issuer, IssuerSpec, SelfSignedIssuer
from certwright.resources.references import IssuerReference
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from support.world import World

SELF_SIGNED = IssuerSpec(self_signed=SelfSignedIssuer())
CA = IssuerSpec(ca=CAIssuer(secret_name="ca"))
ECDSA = PrivateKeySpec(algorithm="ECDSA")


def make_issuer(name: str, spec: IssuerSpec = SELF_SIGNED, namespace: str = "default") -> Issuer:
    """An Issuer, self-signed where nothing else is said."""
    return Issuer(metadata=ObjectMeta(name=name, namespace=namespace), spec=spec)


def make_ca_issuer(name: str, secret_name: str) -> Issuer:
    """A CA Issuer."""
    return make_issuer(name, IssuerSpec(ca=CAIssuer(secret_name=secret_name)))


def make_cluster_issuer(name: str, spec: IssuerSpec) -> ClusterIssuer:
    """A ClusterIssuer."""
    return ClusterIssuer(metadata=ObjectMeta(name=name), spec=spec)


def make_certificate(
    name: str,
    issuer: str,
    *,
    kind: str = "",
    namespace: str = "default",
    annotations: Mapping[str, str] = MappingProxyType({}),
    **spec: Any,
) -> Certificate:
    """A Certificate for `<name>.example.com` with an ECDSA key, stored in a Secret of its own name."""
    spec = {
        "dns_names": (f"{name}.example.com",),
        "secret_name": name,
        "private_key": ECDSA,
        "issuer_ref": IssuerReference(name=issuer, kind=kind),
        **spec,
    }
    meta = ObjectMeta(name=name, namespace=namespace, annotations=dict(annotations))
    return Certificate(metadata=meta, spec=CertificateSpec(**spec))


def make_secret(name: str, data: dict[str, bytes], namespace: str = "default", **meta: Any) -> Secret:
    """A Secret as a user makes it: without the label that the controllers set."""
    return Secret(metadata=SecretMeta(name=name, namespace=namespace, **meta), type="Opaque", data=data)


class Scene:
    """A world, and short words for what tests of the controllers look at."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def add_ca(self) -> None:
        """An Issuer `ca` that is ready to sign, for ten years."""
        await self.world.create(ISSUERS, make_issuer("root"))
        ca = make_certificate(
            "ca", "root", is_ca=True, common_name="Test CA", dns_names=(), duration="87600h"
        )
        await self.world.create(CERTIFICATES, ca)
        await self.world.add(ISSUERS, make_ca_issuer("ca", "ca"))
        self.world.recording.writes.clear()

    async def issue(self, name: str = "web", issuer: str = "ca", **spec: Any) -> Certificate:
        """Create a Certificate and let everything run."""
        await self.world.add(CERTIFICATES, make_certificate(name, issuer, **spec))
        return await self.world.certificate(name)

    async def issue_many(self, count: int, issuer: str = "ca", **spec: Any) -> list[Certificate]:
        """Create the Certificates `web-0` and so on, and let everything run."""
        names = [f"web-{number}" for number in range(count)]
        for name in names:
            await self.world.create(CERTIFICATES, make_certificate(name, issuer, **spec))
        await self.world.settle()
        return [await self.world.certificate(name) for name in names]

    async def change_spec(self, name: str, **changes: Any) -> None:
        """Change fields (by their names on the wire) of a Certificate's spec."""
        await self.world.patch(CERTIFICATES, name, {"spec": changes})

    async def requests(self, certificate: str = "web") -> list[CertificateRequest]:
        """The requests of a Certificate."""
        requests = (await self.world.client.list(CERTIFICATE_REQUESTS, "default")).items
        return [r for r in requests if r.metadata.name.startswith(f"{certificate}-")]

    async def next_keys(self) -> list[Secret]:
        """All next-key Secrets."""
        label = "cert-manager.io/next-private-key=true"
        return (await self.world.client.list(SECRETS, labels=label)).items
