"""An ACME issuer at a fake CA."""

from __future__ import annotations

from acme.fake_ca import FakeCa
from certwright.kube.api import codec
from certwright.resources.table import CLUSTER_ISSUERS, ISSUERS
from support.world import World


async def create_issuer(world: World, ca: FakeCa, namespace: str = "default") -> None:
    """Make an Issuer `acme` that proves names by HTTP-01, and does not look for the proof itself. Without a
    namespace it is a ClusterIssuer."""
    spec = {
        "server": ca.directory,
        "privateKeySecretRef": {"name": "account"},
        "solvers": [{"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}],
    }
    meta = {"name": "acme", "namespace": namespace}
    obj = {"apiVersion": ISSUERS.api_version, "kind": "Issuer", "metadata": meta, "spec": {"acme": spec}}
    if namespace:
        await world.create(ISSUERS, codec.from_dict(ISSUERS, obj))
    else:
        obj |= {"kind": "ClusterIssuer", "metadata": {"name": "acme"}}
        await world.create(CLUSTER_ISSUERS, codec.from_dict(CLUSTER_ISSUERS, obj))
    await world.settle()
