"""A world with Ingresses and the kinds of the Gateway API, for the tests of the shims."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from certwright.controllers.shims.annotations import ShimOptions
from certwright.kube.api.core import CUSTOM_RESOURCE_DEFINITIONS
from certwright.kube.api.kinds import Kind
from certwright.resources.ingress import EXPERIMENTAL_LISTENER_SETS, GATEWAYS, LISTENER_SETS
from certwright.resources.table import CERTIFICATES
from controllers.scene import Scene
from support.world import World, make_world

Json = dict[str, Any]

ISSUER = "cert-manager.io/issuer"
CLUSTER_ISSUER = "cert-manager.io/cluster-issuer"


def untyped(kind: Kind[Any]) -> Kind[dict[str, Any]]:
    """The kind, its objects as JSON: what a user writes is more than what is read here."""
    return Kind(
        kind.group, kind.version, kind.kind, kind.plural, kind.singular, kind.namespaced, dict[str, Any]
    )


INGRESSES = Kind("networking.k8s.io", "v1", "Ingress", "ingresses", "ingress", True, dict[str, Any])


async def serve(world: World, *kinds: Kind[Any]) -> None:
    """Define these kinds of the Gateway API, with any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind in kinds:
        names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.singular}
        version = {
            "name": kind.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        definition = {
            "metadata": {
                "name": f"{kind.plural}.{kind.group}",
                "annotations": {"api-approved.kubernetes.io": "https://example.org"},
            },
            "spec": {"group": kind.group, "names": names, "scope": "Namespaced", "versions": [version]},
        }
        await world.client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)


class ShimScene(Scene):
    """A world with a CA issuer `ca`, and short words for what tests of the shims look at."""

    async def serve(self, *kinds: Kind[Any]) -> None:
        """Define these kinds of the Gateway API."""
        await serve(self.world, *kinds)
        await self.world.settle()

    async def ingress(self, *tls: Json, name: Any = "web", labels: Any = None, **annotations: str) -> Json:
        """Create an Ingress; `annotations` by their names after `cert-manager.io/`, with `_` for `-`."""
        made = {
            "metadata": _meta(name, labels, annotations),
            "spec": {"tls": list(tls), "rules": [{"host": "web.example.com"}]},
        }
        created: Json = await self.world.client.create(INGRESSES, made)
        await self.world.settle()
        return created

    async def gateway(self, *listeners: Json, name: Any = "gate", **annotations: str) -> Json:
        """Create a Gateway."""
        made = {
            "metadata": _meta(name, None, annotations),
            "spec": {"gatewayClassName": "x", "listeners": list(listeners)},
        }
        created: Json = await self.world.client.create(untyped(GATEWAYS), made)
        await self.world.settle()
        return created

    async def listener_set(
        self, *listeners: Json, kind: Any = LISTENER_SETS, name: Any = "more", **annotations: str
    ) -> Json:
        """Create a ListenerSet of the Gateway `gate`."""
        made = {
            "metadata": _meta(name, None, annotations),
            "spec": {"parentRef": {"name": "gate"}, "listeners": list(listeners)},
        }
        created: Json = await self.world.client.create(untyped(kind), made)
        await self.world.settle()
        return created

    async def change(self, kind: Kind[Any], name: str, patch: Json) -> None:
        """Patch one of them."""
        await self.world.patch(untyped(kind), name, patch)

    async def certificates(self) -> dict[str, Json]:
        """The Certificates but the CA's, as JSON."""
        certificates = (await self.world.client.list(untyped(CERTIFICATES), "default")).items
        return {
            certificate["metadata"]["name"]: certificate
            for certificate in certificates
            if certificate["metadata"]["name"] != "ca"
        }

    async def events_of(self, kind: str) -> list[tuple[str, str]]:
        """Reason and message of the Events about objects of that kind, the first ones first."""
        await self.world.manager.flush()
        events = await self.world.events()
        about = [event for event in events if event.involved_object.kind == kind]
        return [(event.reason, event.message) for event in about]

    async def messages(self, kind: str = "Ingress") -> str:
        """The messages of those Events, one a line."""
        return "\n".join(message for _, message in await self.events_of(kind))


def _meta(name: str, labels: Json | None, annotations: dict[str, str]) -> Json:
    prefixed = {
        key if "/" in key else f"cert-manager.io/{key.replace('_', '-')}": value
        for key, value in annotations.items()
    }
    return {"name": name, "namespace": "default", "annotations": prefixed, "labels": labels or {}}


def listener(hostname: str, secret: str, **more: Any) -> Json:
    """A listener for HTTPS."""
    tls = {"mode": "Terminate", "certificateRefs": [{"name": secret}]}
    return {"name": secret, "hostname": hostname, "port": 443, "protocol": "HTTPS", "tls": tls, **more}


@asynccontextmanager
async def shim_scene(*kinds: Kind[Any], **options: Any) -> AsyncIterator[ShimScene]:
    """A world with the CA issuer `ca`, which serves these kinds of the Gateway API."""
    async with make_world(controllers=False) as world:
        scene = ShimScene(world)
        await scene.serve(*kinds)
        await world.start_controllers(**{"shims": ShimOptions(), **options})
        await scene.add_ca()
        yield scene


GATEWAY_KINDS = (GATEWAYS, LISTENER_SETS, EXPERIMENTAL_LISTENER_SETS)

__all__ = ["GATEWAY_KINDS", "INGRESSES", "ShimScene", "World", "listener", "shim_scene", "untyped"]
