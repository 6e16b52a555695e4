"""A shop: certificates in all states, signed by issuers of two kinds, and a second namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from certwright.diagnosis import related
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUERS
from controllers.scene import Scene, make_certificate, make_cluster_issuer
from support.world import World, make_world


@pytest.fixture
async def shop_world() -> AsyncIterator[World]:
    """Four certificates in two namespaces: `ca`, `www` and `api` ready, `lost` without its issuer."""
    async with make_world() as world:
        await Scene(world).add_ca()
        await world.client.create(related.NAMESPACES, {"metadata": {"name": "shop"}})
        spec = (await world.get(ISSUERS, "ca")).spec
        secret = await world.client.get(related.SECRETS, "ca", "default")
        copy = {"name": "ca", "namespace": "kube-system"}
        await world.client.create(
            related.SECRETS, {"metadata": copy, "type": secret["type"], "data": secret["data"]}
        )
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("office", spec))
        await world.create(CERTIFICATES, make_certificate("api", "ca"))
        for name, issuer in (("www", "office"), ("lost", "nowhere")):
            made = make_certificate(name, issuer, kind="ClusterIssuer", namespace="shop")
            await world.create(CERTIFICATES, made)
        await world.settle()
        yield world
