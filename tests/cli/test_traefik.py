"""HTTP-01 through a real proxy, without Kubernetes: a CA's request goes through Traefik to our listener.

Four ways to the same listener: a plain Ingress, one of ingress-nginx's class, an edited Ingress, and an
HTTPRoute. OpenBao, a second CA, validates at port 80 only. Traefik also serves what was issued, and a renewed
certificate as soon as it is in the Secret.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from certwright.controllers.acme.routes import objects
from certwright.kube.api.core import SECRETS
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from cli.calls import Process
from cli.proxied import all_ready, create, create_host, create_issuer, server_of, until
from support import openbao, traefik
from support.pebble import Pebble, running_pebble
from support.programs import free_port

Json = dict[str, Any]
Start = Callable[..., Process]
SOLVERS: dict[str, Json] = {
    "plain": {"ingress": {"ingressClassName": "traefik"}},
    "nginx": {"ingress": {"ingressClassName": "nginx"}},
    "edit": {"ingress": {"name": "edit"}},
    "gate": {"gatewayHTTPRoute": {"parentRefs": [{"name": "gate"}]}},
}


def free_http_port() -> list[int]:
    """Port 80, if this process may listen there and no other does."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", 80))
        except OSError:
            return []
    return [80]


HTTP = free_http_port()
_SERVED_WITHIN_S = 2.0
pytestmark = pytest.mark.timeout(240)


async def create_all(client: Client, pebble: Pebble) -> None:
    """An issuer with the four solvers, an Ingress with TLS for each host, a Gateway, and the Certificates."""
    solvers: list[Json] = [
        {"http01": solver, "selector": {"dnsNames": [f"{name}.example.org"]}}
        for name, solver in SOLVERS.items()
    ]
    await create_issuer(client, "acme", pebble.directory, pebble.ca_bundle, solvers)
    listener = {"name": "web", "protocol": "HTTP", "port": pebble.http_port}
    listener["allowedRoutes"] = {"namespaces": {"from": "Same"}}
    await create(client, traefik.GATEWAYS, "gate", {"gatewayClassName": "traefik", "listeners": [listener]})
    await create(client, objects.SERVICES, "app", {"ports": [{"name": "http", "port": 80}]})
    for name in SOLVERS:
        await create_host(client, name, "acme")


async def served(port: int, host: str) -> str:
    """The certificate that Traefik serves for the host, as PEM."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    # Without the exchange of close_notify, which Traefik may not live to answer.
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()
    return ssl.DER_cert_to_PEM_cert(der)


async def stored(client: Client, name: str) -> str:
    """The first certificate of the Secret."""
    text = (await client.get(SECRETS, name, "default")).data["tls.crt"].decode()
    return text.partition("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"


async def test_a_ca_reaches_the_listener_through_traefik(start: Start, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment={"PEBBLE_WFE_NONCEREJECT": "0"}))
        flags = ["--http01-listen", f"127.0.0.1:{free_port()}", "--http01-cluster-address", "127.0.0.1"]
        flags += ["--http01-check-port", str(pebble.http_port)]
        flags += ["--acme-http01-solver-nameservers", pebble.names.address]
        process = start("serve", "--listen", "127.0.0.1:0", *flags)
        assert await asyncio.to_thread(process.line)
        kubeconfig = tmp_path / "certwright-data/kubeconfig"
        client = Client(connect(load(kubeconfig)), user_agent="test")
        stack.push_async_callback(client.close)
        await traefik.define_kinds(client)
        https_port = free_port()
        ports = [pebble.http_port, *HTTP]
        stack.enter_context(traefik.running_traefik(server_of(kubeconfig), ports, https_port))
        await create_all(client, pebble)
        if HTTP:
            bao = stack.enter_context(openbao.openbao())
            directory = openbao.acme_directory(bao, pebble.names.address)
            solvers = [{"http01": SOLVERS["plain"]}]
            await create_issuer(client, "bao", directory, bao.ca_pem, solvers)
            await create_host(client, "bao", "bao")
        await until(lambda: all_ready(client))
        for kind in (objects.SERVICES, objects.INGRESSES, objects.HTTP_ROUTES):
            left = (await client.list(kind, labels=f"{objects.SOLVER_LABEL}=true")).items
            assert left == [], kind.kind
        edited = await client.get(objects.INGRESSES, "edit", "default")
        assert [path["path"] for path in edited["spec"]["rules"][0]["http"]["paths"]] == ["/"]
        await check_renewal(client, start, https_port)


async def check_renewal(client: Client, start: Start, https_port: int) -> None:
    """A renewed certificate is served soon after it is in the Secret."""
    host, before = "plain.example.org", await stored(client, "plain")

    async def serves(expected: str) -> bool:
        return await served(https_port, host) == expected

    async def is_renewed() -> bool:
        return await stored(client, "plain") != before

    await until(lambda: serves(before))
    assert (await asyncio.to_thread(start("renew", "plain").rest)).status == 0
    await until(is_renewed)
    began, after = time.monotonic(), await stored(client, "plain")
    await until(lambda: serves(after))
    seconds = time.monotonic() - began
    print(f"a renewed certificate is served after {seconds:.2f} s")
    assert seconds < _SERVED_WITHIN_S
