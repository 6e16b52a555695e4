"""HTTP-01 through a real proxy while a replica is killed: the order is completed by the other replica."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from certwright.controllers.acme.routes import objects
from certwright.controllers.acme.routes.objects import ENDPOINT_SLICES, SERVICE_NAME_LABEL, SOLVER_LABEL
from certwright.kube.api.core import NAMESPACES
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.acme import Challenge
from certwright.resources.table import CHALLENGES, ORDERS
from cli.calls import AT_WORK, Process
from cli.proxied import all_ready, create, create_host, create_issuer, server_of, until
from support import traefik
from support.pebble import running_pebble
from support.programs import free_port

Json = dict[str, Any]
Start = Callable[..., Process]
_NAMESPACE, _SERVICE, _SLICE = "certwright", "certwright-http01", "certwright-http01-a"
_REPLICAS = ("127.0.0.1", "127.0.0.2")
_TERMS = {"lease-duration": "4s", "renew-deadline": "3s", "retry-period": "1s"}
pytestmark = pytest.mark.timeout(240)


def replica_flags(address: str, port: int, check_port: int, names: str) -> list[str]:
    """The flags of a replica that listens at the address."""
    return [
        *("--kubeconfig", "certwright-data/kubeconfig"),
        *("--http01-listen", f"{address}:{port}", "--http01-cluster-address", address),
        *("--http01-cluster-service", f"{_NAMESPACE}/{_SERVICE}"),
        *("--http01-check-port", str(check_port), "--acme-http01-solver-nameservers", names),
        *(word for name, value in _TERMS.items() for word in (f"--leader-election-{name}", value)),
    ]


async def publish(client: Client, port: int, ready: tuple[str, ...]) -> None:
    """Write the EndpointSlice of the replicas' Service, as Kubernetes does."""
    endpoint_slice = {
        "metadata": {"name": _SLICE, "namespace": _NAMESPACE, "labels": {SERVICE_NAME_LABEL: _SERVICE}},
        "addressType": "IPv4",
        "endpoints": [
            {"addresses": [replica], "conditions": {"ready": replica in ready}} for replica in _REPLICAS
        ],
        "ports": [{"name": "http01", "port": port, "protocol": "TCP"}],
    }
    await client.apply(ENDPOINT_SLICES, endpoint_slice, field_manager="test", force=True)


async def leads_to(client: Client, addresses: tuple[str, ...]) -> bool:
    """Whether the proxy is given exactly these addresses for challenges."""
    slices = (await client.list(ENDPOINT_SLICES, "default", labels=f"{SOLVER_LABEL}=true")).items
    given = [
        address
        for endpoint_slice in slices
        for part in endpoint_slice["endpoints"]
        for address in part["addresses"]
    ]
    return sorted(given) == list(addresses)


async def is_presented(client: Client) -> bool:
    """Whether the only Challenge is presented."""
    challenges: list[Challenge] = list((await client.list(CHALLENGES)).items)
    return len(challenges) == 1 and challenges[0].status.presented


async def test_an_order_is_completed_after_the_replica_at_work_is_killed(
    start: Start, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment={"PEBBLE_WFE_NONCEREJECT": "0"}))
        process = start("serve", "--listen", "127.0.0.1:0", "--controllers", "")
        assert await asyncio.to_thread(process.line)
        kubeconfig = tmp_path / "certwright-data/kubeconfig"
        client = Client(connect(load(kubeconfig)), user_agent="test")
        stack.push_async_callback(client.close)
        await traefik.define_kinds(client)
        port = free_port()
        await create(client, NAMESPACES, _NAMESPACE, {})
        await publish(client, port, _REPLICAS)
        flags = [
            replica_flags(replica, port, pebble.http_port, pebble.names.address) for replica in _REPLICAS
        ]
        first = start("controllers", *flags[0])
        await asyncio.to_thread(first.lines_until, AT_WORK)
        start("controllers", *flags[1])
        await create_issuer(
            client,
            "acme",
            pebble.directory,
            pebble.ca_bundle,
            [{"http01": {"ingress": {"ingressClassName": "traefik"}}}],
        )
        await create(client, objects.SERVICES, "app", {"ports": [{"name": "http", "port": 80}]})
        await create_host(client, "web", "acme")
        # No proxy yet, so that the self-check of the first replica fails.
        await until(lambda: is_presented(client))
        await until(lambda: leads_to(client, _REPLICAS))
        first.kill(signal.SIGKILL)
        await publish(client, port, _REPLICAS[1:])
        await until(lambda: leads_to(client, _REPLICAS[1:]))
        stack.enter_context(traefik.running_traefik(server_of(kubeconfig), [pebble.http_port], free_port()))
        await until(lambda: all_ready(client))
        assert [order.status.state for order in (await client.list(ORDERS)).items] == ["valid"]
