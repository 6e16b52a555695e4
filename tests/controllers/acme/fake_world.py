"""A certwright with an ACME issuer at a fake CA, on a clock that the test moves: for what no real CA does
when asked to. What can be proven with Pebble is proven with Pebble.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec

from acme.fake_ca import Authorization, FakeCa
from certwright.acme.protocol.errors import Unreachable
from certwright.acme.protocol.messages import Action, Request, Response, TlsOptions
from certwright.acme.solvers.contract import SolverError, Task
from certwright.acme.solvers.http01 import Responder
from certwright.controllers.acme.options import AcmeOptions
from certwright.kube.api import codec, conditions, errors
from certwright.kube.api.core import SECRETS
from certwright.kube.api.kinds import Kind
from certwright.kube.util import http_messages
from certwright.resources.acme import Challenge, Order
from certwright.resources.certificate import Certificate
from certwright.resources.issuer import ClusterIssuer
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ORDERS
from support.world import CONTROLLER, World, make_world

Handler = Callable[[http_messages.Request], Awaitable[http_messages.Response]]
HTTP01 = {"http01": {"ingress": {}}, "waitInsteadOfSelfCheck": "0s"}


class Shown(Responder):
    """A responder that does not listen: what it would show can be asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: dict[str, str] = {}
        self.refusal = ""

    async def present(self, task: Task) -> None:
        """See `Solver`. Refuses with the reason `refusal`, if there is one."""
        if self.refusal:
            raise SolverError(self.refusal)
        self.tokens[task.token] = task.key

    async def clean_up(self, task: Task) -> None:
        """See `Solver`."""
        self.tokens.pop(task.token, None)


@dataclass(slots=True)
class Cut:
    """Between the controllers and everything else: cuts them off after so many writes to the API and requests
    to the CA. The answer to the last one is lost."""

    left: int = 10**9
    count: int = 0
    was: str = ""

    def spend(self, what: str) -> bool:
        """Whether this was the last one."""
        self.left -= 1
        self.count += 1
        self.was = what
        return self.left == 0


@dataclass(slots=True)
class _CutTransport:
    ca: FakeCa
    cut: Cut
    silent: set[Action]
    others: list[FakeCa]

    async def send(self, request: Request) -> Response:
        if self.cut.left <= 0:
            raise Unreachable("cut off")
        asked = next((ca for ca in self.others if request.url.startswith(ca.base)), self.ca)
        response = asked.answer(request)
        if self.cut.spend(str(request.action)):
            raise Unreachable("cut off")
        if request.action in self.silent:
            await asyncio.get_running_loop().create_future()
        return response

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class FakeWorld:
    """The parts, and the few verbs that tests are written in. Nobody ever gets an answer to what is
    `silent`."""

    world: World
    ca: FakeCa
    shown: Shown
    options: dict[str, Any] = field(default_factory=dict)
    cut: Cut = field(default_factory=Cut)
    silent: set[Action] = field(default_factory=set)
    others: list[FakeCa] = field(default_factory=list)
    handler: Handler = field(init=False)

    def __post_init__(self) -> None:
        self.handler = self.world.recording.handler
        self.world.recording.handler = self._handle
        self.ca.sees = self._sees

    async def start(self, **settings: Any) -> None:
        """Start the controllers (again), as another process would: nothing is remembered or shown."""
        await self.world.stop_controllers()
        self.shown = Shown()
        self.cut = Cut()
        await self.world.advance(timedelta(seconds=2))
        await self.world.start_controllers(acme=self._acme(), **settings)

    def _acme(self) -> AcmeOptions:
        def transport(_tls: TlsOptions) -> _CutTransport:
            return _CutTransport(self.ca, self.cut, self.silent, self.others)

        return AcmeOptions(**{"make_transport": transport, "responder": self.shown, **self.options})

    async def _handle(self, request: http_messages.Request) -> http_messages.Response:
        ours = request.user == CONTROLLER and request.method != "GET" and "/events" not in request.target
        if not ours:
            return await self.handler(request)
        if self.cut.left <= 0:
            raise errors.Unreachable("cut off")
        response = await self.handler(request)
        if response.status < 400 and self.cut.spend(f"{request.method} {request.target.partition('?')[0]}"):
            raise errors.Unreachable("cut off")
        return response

    def _sees(self, authorization: Authorization, _kind: str) -> bool:
        return authorization.token in self.shown.tokens

    def second_ca(self) -> FakeCa:
        """Another CA, at `https://second.example`."""
        made = FakeCa(self.world.clock.now, base="https://second.example")
        made.sees = self._sees
        made.tokens = "second-token"
        self.others.append(made)
        return made

    async def create(self, kind: Kind[Any], name: str, spec: dict[str, Any]) -> None:
        """Make an object as the administrator, and let everybody do what that means."""
        meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
        manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
        await self.world.create(kind, codec.from_dict(kind, manifest))
        await self.world.settle()

    async def issuer(self, name: str = "acme", **acme: Any) -> ClusterIssuer:
        """Make a ClusterIssuer at the CA."""
        spec = {
            "server": self.ca.directory,
            "email": "admin@example.org",
            "privateKeySecretRef": {"name": f"{name}-account"},
            "solvers": [HTTP01],
            **acme,
        }
        await self.create(CLUSTER_ISSUERS, name, {"acme": spec})
        return await self.world.get(CLUSTER_ISSUERS, name)

    async def issue(
        self,
        name: str = "web",
        *dns_names: str,
        issuer: str = "acme",
        after: timedelta | None = None,
        **spec: Any,
    ) -> None:
        """Make a Certificate, and let that time pass."""
        certificate_spec = {
            "secretName": name,
            "dnsNames": list(dns_names or ("a.example.org",)),
            "issuerRef": {"name": issuer, "kind": "ClusterIssuer"},
            "privateKey": {"algorithm": "ECDSA"},
            **spec,
        }
        await self.create(CERTIFICATES, name, certificate_spec)
        if after is not None:
            await self.world.advance(after)

    async def renew(self, name: str) -> None:
        """Demand a new certificate, as `certwright renew` and `cmctl renew` do."""
        before = (await self.certificate(name)).status.conditions
        mark = {"type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "now"}
        kept = [msgspec.to_builtins(condition) for condition in before if condition.type != "Issuing"]
        patch = {"status": {"conditions": [*kept, mark]}}
        await self.world.client.patch(CERTIFICATES, name, "default", patch, subresource="status")
        await self.world.settle()

    def decide(self) -> None:
        """Have the CA give its verdicts on all names, also of those that were `slow`."""
        self.ca.slow.clear()
        for authorization in self.ca.authorizations.values():
            self.ca.decide(authorization)

    async def ready_of(self, name: str = "acme") -> tuple[str, str, str]:
        """The `Ready` condition of the issuer: status, reason, message."""
        issuer = await self.world.get(CLUSTER_ISSUERS, name)
        condition = conditions.find(issuer.status.conditions, "Ready")
        return (condition.status, condition.reason, condition.message) if condition else ("", "", "")

    async def certificate(self, name: str = "web") -> Certificate:
        """The Certificate."""
        return await self.world.certificate(name)

    async def message_of(self, condition: str = "Issuing", name: str = "web") -> str:
        """The message of a condition of the Certificate."""
        current = conditions.find((await self.certificate(name)).status.conditions, condition)
        return current.message if current else ""

    async def orders(self) -> list[Order]:
        """All Orders."""
        return (await self.world.client.list(ORDERS)).items

    async def challenges(self) -> list[Challenge]:
        """All Challenges."""
        return (await self.world.client.list(CHALLENGES)).items

    async def requests(self) -> list[CertificateRequest]:
        """All CertificateRequests."""
        return (await self.world.client.list(CERTIFICATE_REQUESTS)).items

    async def secret_names(self) -> list[str]:
        """The Secrets of the namespace."""
        return sorted(s.metadata.name for s in (await self.world.client.list(SECRETS, "default")).items)


@asynccontextmanager
async def fake_world(**options: Any) -> AsyncIterator[FakeWorld]:
    """A running one; `options` are those of `AcmeOptions`."""
    async with make_world(controllers=False) as world:
        made = FakeWorld(world, FakeCa(world.clock.now), Shown(), options)
        await made.start()
        yield made
