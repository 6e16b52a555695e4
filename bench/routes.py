"""HTTP-01 for 200 annotated Ingresses at once through Traefik, beside a bare client with its own listener.

`certwright serve`, Traefik and Pebble are processes on loopback. The CA's requests go through Traefik to the
listener of certwright, by one Ingress for each challenge; those of the bare client go to its listener.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from bench.acme import over_http
from bench.acme_floor import Floor, open_account
from certwright.acme.protocol.transport import TlsOptions
from certwright.acme.solvers.http01 import Responder
from certwright.controllers.acme.routes import objects
from certwright.kube.api import codec, conditions
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from support.pebble import Pebble, running_pebble
from support.programs import free_port, spawn, stop, wait_for
from support.traefik import Server, define_kinds, running_traefik

NUMBER = 200
ROUNDS = 2
_WITHIN_S = 300.0
_THROTTLE = "2s"  # Traefik's default.
_CALM = {"PEBBLE_WFE_NONCEREJECT": "0"}


async def bare(number: int) -> float:
    """Seconds until the bare client has that many certificates."""
    responder = Responder()
    with running_pebble(environment=_CALM) as pebble:
        await responder.listen("127.0.0.1", pebble.http_port)
        client = await open_account(pebble.directory, over_http(TlsOptions(pebble.ca_bundle)))
        try:
            return await Floor(client, responder, "http-01").take(
                [[f"a{n}.example.org"] for n in range(number)]
            )
        finally:
            await client.close()
            await responder.close()


async def through_traefik(number: int) -> float:
    """Seconds from the first Ingress until all their Certificates are Ready."""
    with contextlib.ExitStack() as stack:
        pebble = stack.enter_context(running_pebble(environment=_CALM))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flags = ["--data-dir", str(folder / "data"), "--listen", "127.0.0.1:0"]
        flags += ["--http01-listen", f"127.0.0.1:{free_port()}", "--http01-cluster-address", "127.0.0.1"]
        flags += ["--http01-check-port", str(pebble.http_port)]
        flags += ["--acme-http01-solver-nameservers", pebble.names.address]
        command = [sys.executable, "-m", "certwright", "serve", *flags]
        log = folder / "log"
        process = spawn(command, stack.enter_context(log.open("wb")))
        stack.callback(stop, process)
        wait_for(lambda: "certwright is ready" in log.read_text(), process, log, what="start")
        client = Client(connect(load(folder / "data/kubeconfig")), user_agent="bench")
        try:
            await define_kinds(client)
            server = _server(folder / "data/kubeconfig")
            stack.enter_context(running_traefik(server, [pebble.http_port], free_port(), throttle=_THROTTLE))
            await _create_issuer(client, pebble)
            began = time.perf_counter()
            await asyncio.gather(*(_create_ingress(client, f"web-{n}") for n in range(number)))
            async with asyncio.timeout(_WITHIN_S):
                while await _ready(client) < number:  # noqa: ASYNC110 - another process does it
                    await asyncio.sleep(0.2)
            return time.perf_counter() - began
        finally:
            await client.close()


def _server(path: Path) -> Server:
    config = yaml.safe_load(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    ca_pem = base64.b64decode(cluster["certificate-authority-data"])
    return Server(cluster["server"], user["token"], ca_pem)


async def _create_issuer(client: Client, pebble: Pebble) -> None:
    spec = {
        "server": pebble.directory,
        "caBundle": base64.b64encode(pebble.ca_bundle).decode(),
        "privateKeySecretRef": {"name": "account"},
        "solvers": [{"http01": {"ingress": {"ingressClassName": "traefik"}}}],
    }
    manifest = {"metadata": {"name": "acme"}, "spec": {"acme": spec}}
    await client.create(CLUSTER_ISSUERS, codec.from_dict(CLUSTER_ISSUERS, manifest))


async def _create_ingress(client: Client, name: str) -> None:
    host = f"{name}.example.org"
    backend = {"service": {"name": "app", "port": {"number": 80}}}
    spec: dict[str, Any] = {
        "ingressClassName": "traefik",
        "tls": [{"hosts": [host], "secretName": name}],
        "rules": [
            {"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
        ],
    }
    annotations = {
        "cert-manager.io/cluster-issuer": "acme",
        "cert-manager.io/private-key-algorithm": "ECDSA",
    }
    meta = {"name": name, "namespace": "default", "annotations": annotations}
    await client.create(objects.INGRESSES, {"metadata": meta, "spec": spec})


async def _ready(client: Client) -> int:
    certificates = (await client.list(CERTIFICATES)).items
    return sum(conditions.is_true(certificate.status.conditions, "Ready") for certificate in certificates)


def main() -> None:
    """Print the seconds of each round."""
    for number in range(ROUNDS):
        took = asyncio.run(bare(NUMBER)), asyncio.run(through_traefik(NUMBER))
        print(f"round {number + 1}: bare client {took[0]:.1f} s, through Traefik {took[1]:.1f} s", flush=True)
