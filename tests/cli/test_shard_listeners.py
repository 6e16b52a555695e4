"""Two shards whose listeners are behind one load balancer, at a real CA: each answers for both."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.api import codec, conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from cli.calls import AT_WORK, Process
from support.balancer import balancing
from support.pebble import Pebble, running_pebble
from support.programs import free_port

Start = Callable[..., Process]
MANY = 20
_WITHIN_S = 120
pytestmark = pytest.mark.timeout(2 * _WITHIN_S)


async def create(client: Client, kind: Kind[Any], name: str, spec: dict[str, Any]) -> None:
    meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    await client.create(kind, codec.from_dict(kind, manifest))


def issuer(pebble: Pebble, name: str, solver: dict[str, Any]) -> dict[str, Any]:
    return {
        "acme": {
            "server": pebble.directory,
            "caBundle": base64.b64encode(pebble.ca_bundle).decode(),
            "privateKeySecretRef": {"name": f"{name}-account"},
            "solvers": [solver],
        }
    }


def certificate(name: str, issuer_name: str) -> dict[str, Any]:
    return {
        "secretName": name,
        "dnsNames": [f"{name}.example"],
        "privateKey": {"algorithm": "ECDSA"},
        "issuerRef": {"name": issuer_name, "kind": "ClusterIssuer"},
    }


async def ready(client: Client) -> int:
    certificates = (await client.list(CERTIFICATES)).items
    return sum(conditions.is_true(item.status.conditions, "Ready") for item in certificates)


async def test_every_replica_answers_every_challenge(start: Start, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment={"PEBBLE_WFE_NONCEREJECT": "0"}))
        ports = [(free_port(), free_port()) for _ in range(2)]
        await stack.enter_async_context(balancing(pebble.http_port, [http for http, _ in ports]))
        await stack.enter_async_context(balancing(pebble.tls_port, [tls for _, tls in ports]))
        server = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
        assert await asyncio.to_thread(server.line)
        client = Client(connect(load(tmp_path / "certwright-data/kubeconfig")), user_agent="test")
        stack.push_async_callback(client.close)
        flags = ["--kubeconfig", "certwright-data/kubeconfig", "--shards", "2"]
        flags += ["--http01-check-port", str(pebble.http_port)]
        flags += ["--acme-http01-solver-nameservers", pebble.names.address]
        members = []
        for http, tls in ports:
            listeners = ["--http01-listen", f"127.0.0.1:{http}", "--tlsalpn01-listen", f"127.0.0.1:{tls}"]
            members.append(start("controllers", *flags, *listeners, "--identity", f"node-{http}"))
        for member in members:
            await asyncio.to_thread(member.lines_until, AT_WORK)
        await create(client, CLUSTER_ISSUERS, "http", issuer(pebble, "http", {"http01": {"ingress": {}}}))
        tls_solver = {"tlsALPN01": {}, "waitInsteadOfSelfCheck": "0s"}
        await create(client, CLUSTER_ISSUERS, "tls", issuer(pebble, "tls", tls_solver))
        for number in range(MANY):
            name, kind = f"web-{number}", ("http", "tls")[number % 2]
            await create(client, CERTIFICATES, name, certificate(name, kind))
        async with asyncio.timeout(_WITHIN_S):
            while await ready(client) < MANY:  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.1)
