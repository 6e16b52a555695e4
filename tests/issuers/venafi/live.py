"""The Issuer of a fake Certificate Manager, and Certificates of it, in a world on the wall clock."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from certwright.kube.api.core import SECRETS, Secret, SecretMeta
from certwright.resources.issuer import IssuerSpec
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import make_certificate, make_issuer
from issuers.venafi.conftest import secret_of, spec_of
from support.venafi.server import FakeVenafi
from support.world import LiveWorld


async def add_issuer(world: LiveWorld, fake: FakeVenafi, product: str = "tpp") -> None:
    """The Issuer `venafi` and its Secret."""
    meta = SecretMeta(name="login", namespace="default")
    await world.create(SECRETS, Secret(metadata=meta, data=secret_of(product, fake)))
    await world.create(ISSUERS, make_issuer("venafi", IssuerSpec(venafi=spec_of(product, fake))))


async def add_certificate(world: LiveWorld, name: str, annotations: Mapping[str, str] | None = None) -> None:
    """A Certificate of that issuer."""
    made = make_certificate(name, "venafi", common_name=f"{name}.example.com")
    meta = msgspec.structs.replace(made.metadata, annotations=annotations or {})
    await world.create(CERTIFICATES, msgspec.structs.replace(made, metadata=meta))
