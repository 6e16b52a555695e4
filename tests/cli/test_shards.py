"""Several `certwright controllers --shards N` at a real CA: they place as many orders together as one may,
and each answers the challenges of all behind one load balancer."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from certwright.kube.api import codec, conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ORDERS
from cli.calls import AT_WORK, Start, serve
from support.acme_proxy import NEW_ACCOUNT, NEW_ORDER, AcmeProxy, balancing, running_acme_proxy
from support.pebble import Pebble, running_pebble, serving
from support.programs import free_port

LIMIT, MANY = 10, 40
_WITHIN_S = 300
pytestmark = pytest.mark.timeout(3 * _WITHIN_S)


async def create(client: Client, kind: Kind[Any], name: str, spec: dict[str, Any]) -> None:
    meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    await client.create(kind, codec.from_dict(kind, manifest))


async def ready(client: Client) -> int:
    certificates = (await client.list(CERTIFICATES)).items
    return sum(conditions.is_true(item.status.conditions, "Ready") for item in certificates)


async def waiting(client: Client) -> int:
    """How many Orders wait for the CA's limit."""
    orders = (await client.list(ORDERS)).items
    return sum(f"allows {LIMIT} orders of this account" in order.status.reason for order in orders)


def issuer(ca: AcmeProxy | Pebble, solver: dict[str, Any], name: str = "acme") -> dict[str, Any]:
    return {
        "acme": {
            "server": ca.directory,
            "caBundle": base64.b64encode(ca.ca_bundle).decode(),
            "privateKeySecretRef": {"name": f"{name}-account"},
            "solvers": [solver],
        }
    }


def certificate(name: str, issuer_name: str = "acme") -> dict[str, Any]:
    return {
        "secretName": name,
        "dnsNames": [f"www.{name}.example"],
        "privateKey": {"algorithm": "ECDSA"},
        "issuerRef": {"name": issuer_name, "kind": "ClusterIssuer"},
    }


@pytest.mark.parametrize("shards", [1, 3])
async def test_processes_that_share_the_work_place_as_many_orders_as_one(
    start: Start, tmp_path: Path, shards: int
) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    async with AsyncExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment={"PEBBLE_WFE_NONCEREJECT": "0"}))
        stack.enter_context(serving(pages, "127.0.0.1", pebble.http_port))
        proxy = await stack.enter_async_context(running_acme_proxy(pebble))
        limits = {"newOrders": {"count": LIMIT, "window": "1h", "refills": False}}
        host = proxy.directory.split("/")[2]
        (tmp_path / "limits.yaml").write_text(json.dumps({"limits": {host: limits}}))
        await asyncio.to_thread(serve, start, "--controllers", "")
        client = Client(connect(load(tmp_path / "certwright-data/kubeconfig")), user_agent="test")
        stack.push_async_callback(client.close)
        flags = ["--kubeconfig", "certwright-data/kubeconfig", "--shards", str(shards)]
        flags += ["--acme-limits", "limits.yaml", "--webroot", str(pages)]
        flags += ["--http01-check-port", str(pebble.http_port)]
        flags += ["--acme-http01-solver-nameservers", pebble.names.address]
        names = [("--identity", f"node-{number}") for number in range(shards)]
        members = [start("controllers", *flags, *name) for name in names]
        for member in members:
            await asyncio.to_thread(member.lines_until, AT_WORK)
        await create(
            client, CLUSTER_ISSUERS, "acme", issuer(proxy, {"http01": {"webroot": {"path": str(pages)}}})
        )
        for number in range(MANY):
            await create(client, CERTIFICATES, f"web-{number}", certificate(f"web-{number}"))
        async with asyncio.timeout(_WITHIN_S):
            while (await ready(client), await waiting(client)) != (LIMIT, MANY - LIMIT):  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.1)
        assert (proxy.asked[NEW_ORDER], proxy.agreed[NEW_ACCOUNT]) == (LIMIT, 1)
        # Within half a minute the command knows of all that wait.
        async with asyncio.timeout(_WITHIN_S):
            while (await shown(start))["waiting"] != MANY - LIMIT:  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.5)
        assert (await shown(start))["used"] == LIMIT
        # Killed and started again under their names, they have forgotten nothing.
        for member in members:
            member.kill(signal.SIGKILL)
            member.rest()
        members = [start("controllers", *flags, *name) for name in names]
        for member in members:
            await asyncio.to_thread(member.lines_until, AT_WORK)
        await create(client, CERTIFICATES, "late", certificate("late"))
        async with asyncio.timeout(_WITHIN_S):
            while await waiting(client) != MANY - LIMIT + 1:  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.1)
        assert (proxy.asked[NEW_ORDER], await ready(client)) == (LIMIT, LIMIT)


async def shown(start: Start) -> dict[str, Any]:
    """What `certwright limits` says of the account's orders."""
    out = (await asyncio.to_thread(start("limits", "-o", "json").rest)).out
    (row,) = [limit for limit in json.loads(out) if limit["limit"] == "newOrders"]
    limit_row: dict[str, Any] = row
    return limit_row


async def test_every_replica_answers_every_challenge(start: Start, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment={"PEBBLE_WFE_NONCEREJECT": "0"}))
        ports = [(free_port(), free_port()) for _ in range(2)]
        await stack.enter_async_context(balancing(pebble.http_port, [http for http, _ in ports]))
        await stack.enter_async_context(balancing(pebble.tls_port, [tls for _, tls in ports]))
        await asyncio.to_thread(serve, start, "--controllers", "")
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
        await create(client, CLUSTER_ISSUERS, "http", issuer(pebble, {"http01": {"ingress": {}}}, "http"))
        tls_solver = {"tlsALPN01": {}, "waitInsteadOfSelfCheck": "0s"}
        await create(client, CLUSTER_ISSUERS, "tls", issuer(pebble, tls_solver, "tls"))
        for number in range(20):
            name, kind = f"web-{number}", ("http", "tls")[number % 2]
            await create(client, CERTIFICATES, name, certificate(name, kind))
        async with asyncio.timeout(_WITHIN_S):
            while await ready(client) < 20:  # noqa: ASYNC110 - as a user would
                await asyncio.sleep(0.1)
