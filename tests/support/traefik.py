"""Traefik, a reverse proxy that reads Ingresses and the Gateway API from our server, on loopback.

`make servers` installs it. It reads plain Ingresses of the class `traefik`, those of ingress-nginx (class
`nginx`) and Gateways of the class `traefik`, each by its own provider.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from certwright.kube.api.core_kinds import CUSTOM_RESOURCE_DEFINITIONS
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from support.programs import environment_of, spawn, stop, wait_for_port

Json = dict[str, Any]
_GATEWAY = "gateway.networking.k8s.io"
INGRESS_CLASSES: Kind[Json] = Kind(
    "networking.k8s.io", "v1", "IngressClass", "ingressclasses", "ingressclass", False, dict
)
GATEWAY_CLASSES: Kind[Json] = Kind(
    _GATEWAY, "v1", "GatewayClass", "gatewayclasses", "gatewayclass", False, dict
)
GATEWAYS: Kind[Json] = Kind(_GATEWAY, "v1", "Gateway", "gateways", "gateway", True, dict)
_KINDS = (
    GATEWAY_CLASSES,
    GATEWAYS,
    *(
        Kind(_GATEWAY, version, kind, f"{kind.lower()}s", kind.lower(), True, dict)
        for kind, version in (
            ("HTTPRoute", "v1"),
            ("GRPCRoute", "v1"),
            ("TLSRoute", "v1"),
            ("ListenerSet", "v1"),
            ("ReferenceGrant", "v1beta1"),
        )
    ),
    Kind(_GATEWAY, "v1", "BackendTLSPolicy", "backendtlspolicies", "backendtlspolicy", True, dict),
)


@dataclass(frozen=True, slots=True)
class Server:
    """An API server: its URL, a token of its administrator, and its CA certificate."""

    url: str
    token: str
    ca_pem: bytes


async def define_kinds(client: Client) -> None:
    """The classes of Traefik's providers, and the kinds of the Gateway API, with any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for kind in _KINDS:
        version = {
            "name": kind.version,
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
        }
        names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.singular}
        meta = {
            "name": f"{kind.plural}.{kind.group}",
            "annotations": {"api-approved.kubernetes.io": "https://example.org"},
        }
        scope = "Namespaced" if kind.namespaced else "Cluster"
        spec = {"group": kind.group, "names": names, "scope": scope, "versions": [version]}
        await client.create(CUSTOM_RESOURCE_DEFINITIONS, {"metadata": meta, "spec": spec})
    for name, controller in (("traefik", "traefik.io/ingress-controller"), ("nginx", "k8s.io/ingress-nginx")):
        await client.create(INGRESS_CLASSES, {"metadata": {"name": name}, "spec": {"controller": controller}})
    gateways = {"metadata": {"name": "traefik"}, "spec": {"controllerName": "traefik.io/gateway-controller"}}
    await client.create(GATEWAY_CLASSES, gateways)


@contextlib.contextmanager
def running_traefik(
    server: Server, http_ports: Sequence[int], https_port: int, *, throttle: str = "50ms"
) -> Iterator[None]:
    """A Traefik that listens there, once it does. It applies changes at most once in `throttle`; its own
    default is 2 s."""
    program = environment_of("servers") / "bin" / "traefik"
    with tempfile.TemporaryDirectory(prefix="traefik-") as name:
        folder = Path(name)
        (folder / "ca.crt").write_bytes(server.ca_pem)
        access = {
            "endpoint": server.url,
            "token": server.token,
            "certAuthFilePath": str(folder / "ca.crt"),
            "throttleDuration": throttle,
        }
        config: Json = {
            "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
            "log": {"level": "INFO"},
            "providers": {
                "providersThrottleDuration": throttle,
                "kubernetesIngress": access,
                "kubernetesIngressNGINX": access,
                "kubernetesGateway": access,
            },
            "entryPoints": {
                **{f"web{port}": {"address": f"127.0.0.1:{port}"} for port in http_ports},
                "websecure": {"address": f"127.0.0.1:{https_port}", "http": {"tls": {}}},
            },
        }
        (folder / "traefik.yaml").write_text(json.dumps(config))
        log = folder / "log"
        with log.open("wb") as out:
            command = [str(program), f"--configFile={folder / 'traefik.yaml'}"]
            process = spawn(command, out, env={"KUBECONFIG": ""})
            try:
                wait_for_port(http_ports[0], process, log)
                yield
            finally:
                stop(process)
