"""A Vault on the clock of the test, written from Vault's HTTP API reference (`sys/health`, `auth/token`,
`sys/capabilities-self`, `pki/sign/:name`). A real OpenBao, as in tests/issuers/vault, has a clock of its own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from certwright.controllers.servers import Servers
from certwright.kit.outgoing import HttpAnswer, HttpClient, ServerTls, ServerUnreachable
from certwright.kube.api.core import SECRETS
from certwright.kube.util.clock import TestClock
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr, read_csr
from certwright.pki.keys import KeyPlan, PrivateKey, generate
from certwright.pki.signing import self_sign, sign
from certwright.resources.issuer import IssuerSpec, VaultAuth, VaultIssuer
from certwright.resources.references import SecretKeySelector
from certwright.resources.table import CLUSTER_ISSUERS
from controllers.scene import make_cluster_issuer, make_secret
from support.world import START, World, make_world

SPEC = VaultIssuer(
    auth=VaultAuth(token_secret_ref=SecretKeySelector(name="token", key="token")),
    server="https://vault.example",
    path="pki/sign/web",
)
TOKEN = "/v1/auth/token/lookup-self"
HEALTH = "/v1/sys/health"
SIGN = "/v1/pki/sign/web"


@dataclass
class FakeVault:
    """`is_away`: it does not answer. `is_closed`: it answers health checks and knows no token. `is_broken`:
    it signs nothing. `calls` counts requests by path."""

    clock: TestClock
    is_away: bool = False
    is_closed: bool = False
    is_broken: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    key: PrivateKey = field(default_factory=lambda: generate(KeyPlan.of("ECDSA", 256)))
    ca_pem: bytes = b""

    async def send(
        self, method: str, url: str, *, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
    ) -> HttpAnswer:
        """See `HttpClient`."""
        del method, headers
        path = url.removeprefix(SPEC.server)
        self.calls[path] += 1
        if self.is_away:
            raise ServerUnreachable("vault.example: connection refused")
        if path == HEALTH:
            return HttpAnswer(200, (), b"{}")
        if self.is_closed:
            return HttpAnswer(403, (), b'{"errors": ["permission denied"]}')
        if self.is_broken and path == SIGN:
            return HttpAnswer(500, (), b'{"errors": ["internal error"]}')
        return HttpAnswer(200, (), json.dumps(self._answer(path, body)).encode())

    def _answer(self, path: str, body: bytes) -> Mapping[str, Any]:
        match path:
            case "/v1/auth/token/lookup-self":
                return {"data": {"ttl": 0, "renewable": False}}
            case "/v1/sys/capabilities-self":
                return {"capabilities": ["update"]}
            case "/v1/pki/sign/web":
                return {"data": self._sign(json.loads(body))}
        return {"data": {"type": "pki"}}

    def _sign(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        csr_pem = body["csr"].encode()
        leaf = sign(
            csr_pem,
            ca_cert=self.ca,
            ca_key=self.key,
            usages=read_csr(csr_pem).usages or (),
            is_ca=False,
            duration=timedelta(days=90),
            now=self.clock.now(),
        )
        return {"certificate": leaf.decode(), "issuing_ca": self.ca_pem.decode()}

    @property
    def ca(self) -> CertificateFacts:
        """Its CA certificate."""
        if not self.ca_pem:
            plan = CsrPlan(common_name="Vault CA", is_ca=True, usages=("cert sign",))
            self.ca_pem = self_sign(
                build_csr(plan, self.key),
                key=self.key,
                usages=("cert sign",),
                is_ca=True,
                duration=timedelta(days=3650),
                now=START,
            )
        return read_certificate(self.ca_pem)


@dataclass
class VaultWorld:
    """A world with the ClusterIssuer `vault`."""

    world: World
    vault: FakeVault


@asynccontextmanager
async def vault_world(**options: Any) -> AsyncIterator[VaultWorld]:
    """A world whose issuers reach that server; `options` are settings of the controllers."""
    async with make_world() as world:
        vault = FakeVault(world.clock)

        def client(_: Servers, _tls: ServerTls, _trust_fix: str, _rules: object = None) -> HttpClient:
            return vault

        with patch.object(Servers, "client", client):
            await world.start_controllers(**options)
            await world.create(SECRETS, make_secret("token", {"token": b"root"}, namespace="kube-system"))
            await world.add(CLUSTER_ISSUERS, make_cluster_issuer("vault", IssuerSpec(vault=SPEC)))
            yield VaultWorld(world, vault)
