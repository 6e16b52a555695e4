"""Objects for certificates that a CA validates through a proxy, and what tests wait for."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from certwright.controllers.acme.routes import objects
from certwright.kube.api import codec, conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS
from support import traefik

Json = dict[str, Any]
_WITHIN_S = 60.0


def server_of(path: Path) -> traefik.Server:
    """The server and the administrator's token of a kubeconfig."""
    config = yaml.safe_load(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return traefik.Server(
        cluster["server"], user["token"], base64.b64decode(cluster["certificate-authority-data"])
    )


async def create(client: Client, kind: Kind[Any], name: str, spec: Json) -> None:
    meta = {"name": name} | ({"namespace": "default"} if kind.namespaced else {})
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    await client.create(kind, codec.from_dict(kind, manifest) if kind.type is not dict else manifest)


async def create_issuer(client: Client, name: str, server: str, ca: bytes, solvers: list[Json]) -> None:
    acme = {
        "server": server,
        "caBundle": base64.b64encode(ca).decode(),
        "privateKeySecretRef": {"name": f"account-{name}"},
        "solvers": solvers,
    }
    await create(client, CLUSTER_ISSUERS, name, {"acme": acme})


async def create_host(client: Client, name: str, issuer: str) -> None:
    """An Ingress with TLS, and the Certificate."""
    host = f"{name}.example.org"
    backend = {"service": {"name": "app", "port": {"number": 80}}}
    path = {"path": "/", "pathType": "Prefix", "backend": backend}
    ingress = {
        "ingressClassName": "nginx" if name == "nginx" else "traefik",
        "tls": [{"hosts": [host], "secretName": name}],
        "rules": [{"host": host, "http": {"paths": [path]}}],
    }
    await create(client, objects.INGRESSES, name, ingress)
    certificate = {
        "secretName": name,
        "dnsNames": [host],
        "privateKey": {"algorithm": "ECDSA"},
        "issuerRef": {"name": issuer, "kind": "ClusterIssuer"},
    }
    await create(client, CERTIFICATES, name, certificate)


async def all_ready(client: Client) -> bool:
    """Whether all Certificates are Ready."""
    certificates = (await client.list(CERTIFICATES)).items
    return all(conditions.is_true(certificate.status.conditions, "Ready") for certificate in certificates)


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, as a user would."""
    async with asyncio.timeout(_WITHIN_S):
        while not await done():  # noqa: ASYNC110 - another process does it
            await asyncio.sleep(0.02)
