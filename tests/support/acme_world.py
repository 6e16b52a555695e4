"""A certwright with ACME issuers in one process, on the wall clock: an ACME server has a clock of its own.

The API server and the controllers are the real ones, and so is the ACME server.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from certwright.acme.solvers.http01 import Responder
from certwright.acme.solvers.tlsalpn01 import Listener
from certwright.admission import certificate_kinds
from certwright.controllers.acme.options import AcmeOptions
from certwright.controllers.manager import ControllerManager
from certwright.controllers.settings import Settings
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import NotFound
from certwright.kube.api.kinds import Kind
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import Clock, SystemClock
from certwright.kube.util.executor import Threads
from certwright.pki.certificates import CertificateFacts, read_chain
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.acme import Challenge
from certwright.resources.certificate import Certificate
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS
from support.pebble import Pebble
from support.world import ADMIN, CONTROLLER, Recording, T

_WITHIN_S = 120.0


class Zones(Protocol):
    """A name server with zones of its own: `Bind`, `PowerDnsServer`."""

    @property
    def address(self) -> str:
        """Host and port."""

    @property
    def port(self) -> int:
        """The port."""


@dataclass(slots=True)
class AcmeWorld:
    """The parts, and the few verbs that tests are written in."""

    pebble: Pebble
    client: Client
    recording: Recording
    options: AcmeOptions
    clock: Clock
    enabled: str = "*"
    controllers: ControllerManager | None = None
    _executor: Threads | None = None

    async def start_controllers(self) -> ControllerManager:
        """Start them (again), with empty caches."""
        await self.stop_controllers()
        client = Client(
            LocalTransport(self.recording.handle, CONTROLLER), user_agent="certwright-controllers"
        )
        self._executor = Threads()
        settings = Settings(acme=self.options, enabled=self.enabled)
        self.controllers = ControllerManager(client, self.clock, self._executor, settings)
        self.controllers.start()
        await self.controllers.wait_synced()
        return self.controllers

    async def stop_controllers(self) -> None:
        """Stop them as a crash would."""
        if self.controllers is not None:
            await self.controllers.close()
            self.controllers = None
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    async def issuer(self, name: str = "acme", **acme: Any) -> None:
        """Make a ClusterIssuer at the Pebble; HTTP-01 by our listener unless `solvers` says otherwise."""
        spec = {
            "server": self.pebble.directory,
            "caBundle": _base64(self.pebble.ca_bundle),
            "email": "admin@example.org",
            "privateKeySecretRef": {"name": f"{name}-account"},
            "solvers": [{"http01": {"ingress": {}}}],
            **acme,
        }
        await self.create(CLUSTER_ISSUERS, {"metadata": {"name": name}, "spec": {"acme": spec}})

    async def certificate(self, name: str, *dns_names: str, issuer: str = "acme", **spec: Any) -> None:
        certificate_spec = {
            "secretName": name,
            "dnsNames": list(dns_names),
            "issuerRef": {"name": issuer, "kind": "ClusterIssuer"},
            "privateKey": {"algorithm": "ECDSA"},
            **spec,
        }
        meta = {"name": name, "namespace": "default"}
        await self.create(CERTIFICATES, {"metadata": meta, "spec": certificate_spec})

    async def create(self, kind: Kind[T], obj: dict[str, Any]) -> T:
        """Create an object as the administrator."""
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        return await self.client.create(kind, codec.from_dict(kind, manifest))

    async def until(
        self, kind: Kind[T], name: str, true_of: Callable[[T], bool], *, within_s: float = _WITHIN_S
    ) -> T:
        """The object as soon as it is as wanted. Raises `AssertionError` with what it is like otherwise."""
        namespace = "default" if kind.namespaced else ""
        last: T | None = None
        try:
            async with asyncio.timeout(within_s):
                while True:
                    with contextlib.suppress(NotFound):
                        last = await self.client.get(kind, name, namespace)
                        if true_of(last):
                            return last
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{kind.kind} {name} is not as wanted after {within_s} s: {last}") from None

    async def verdict(self, name: str) -> tuple[str, str, str]:
        """Status, reason and message of the condition Ready of an issuer, as soon as it has one."""
        issuer = await self.until(
            CLUSTER_ISSUERS, name, lambda i: conditions.find(i.status.conditions, "Ready") is not None
        )
        ready = conditions.find(issuer.status.conditions, "Ready")
        assert ready is not None
        return ready.status, ready.reason, ready.message

    async def ready(self, name: str, *, within_s: float = _WITHIN_S) -> Certificate:
        """The Certificate as soon as it is Ready."""
        return await self.until(
            CERTIFICATES, name, lambda c: conditions.is_true(c.status.conditions, "Ready"), within_s=within_s
        )

    async def chain_of(self, name: str, *, within_s: float = _WITHIN_S) -> tuple[CertificateFacts, ...]:
        """The chain of a Certificate that is Ready: it belongs to the key beside it, no Challenge is left."""
        await self.ready(name, within_s=within_s)
        secret = await self.client.get(SECRETS, name, "default")
        chain = read_chain(secret.data["tls.crt"])
        assert public_key_der(load_private_key(secret.data["tls.key"])) == chain[0].public_key_der
        await self.settled(name)
        return chain

    async def settled(self, name: str) -> None:
        """Return when a successful Certificate has left no Challenge."""
        async with asyncio.timeout(_WITHIN_S):
            while await self._challenges_of(name):  # noqa: ASYNC110 - what a user would do
                await asyncio.sleep(0.01)

    async def _challenges_of(self, name: str) -> list[Challenge]:
        challenges = (await self.client.list(CHALLENGES)).items
        return [challenge for challenge in challenges if challenge.metadata.name.startswith(name)]

    async def secret(self, name: str, data: Mapping[str, bytes], namespace: str = "default") -> None:
        encoded = {key: _base64(value) for key, value in data.items()}
        await self.create(SECRETS, {"metadata": {"name": name, "namespace": namespace}, "data": encoded})

    @property
    def object_writes(self) -> list[str]:
        """What the controllers have written, events left out."""
        return [f"{write.method} {write.path}" for write in self.recording.object_writes()]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@asynccontextmanager
async def acme_world(
    pebble: Pebble,
    *,
    bind: Zones | None = None,
    clock: Clock | None = None,
    listen_on: str = "127.0.0.1",
    enabled: str = "*",
    **options: Any,
) -> AsyncIterator[AcmeWorld]:
    """A world whose listeners are where the Pebble looks; with `bind` names are resolved there. The `clock`
    is ours alone: Pebble's is the wall clock."""
    clock = clock or SystemClock()
    responder, listener = Responder(), Listener()
    server = ApiServer(
        MemoryStore(),
        clock,
        authenticator=lambda _: None,
        bookmark_every_s=None,
        extensions=certificate_kinds(),
    )
    names = (bind.address,) if bind is not None else (pebble.names.address,)
    made = AcmeOptions(
        **{
            "http01_check_port": pebble.http_port,
            "tlsalpn01_check_port": pebble.tls_port,
            "http01_nameservers": names,
            "dns01_nameservers": names,
            "dns01_recursive_only": bind is None,
            "dns01_authority_port": bind.port if bind is not None else 53,
            "responder": responder,
            "listener": listener,
            **options,
        }
    )
    recording = Recording(server.handle)
    client = Client(LocalTransport(recording.handle, ADMIN), user_agent="test")
    world = AcmeWorld(pebble, client, recording, made, clock, enabled)
    async with contextlib.AsyncExitStack() as stack:
        for close in (listener.close, responder.close, server.close, world.stop_controllers):
            stack.push_async_callback(close)
        await responder.listen(listen_on, pebble.http_port)
        await listener.listen(listen_on, pebble.tls_port)
        await server.start(custom_resource_definitions())
        await world.start_controllers()
        yield world
