"""Traefik, a reverse proxy that reads Ingresses and the Gateway API from our server, on loopback.

`make servers` installs it. It reads plain Ingresses of the class `traefik`, those of ingress-nginx (class
`nginx`) and Gateways of the class `traefik`, each by its own provider.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from certwright.kube.api.core import CUSTOM_RESOURCE_DEFINITIONS
from certwright.kube.api.kinds import Kind
from certwright.kube.client.rest import Client
from support.go_modules import GATEWAY_API, folder_of
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
_ADMISSION = "admissionregistration.k8s.io"
_BUNDLED: Mapping[str, Kind[Json]] = {
    kind.kind: kind
    for kind in (
        CUSTOM_RESOURCE_DEFINITIONS,
        Kind(
            _ADMISSION,
            "v1",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            "validatingadmissionpolicy",
            False,
            dict,
        ),
        Kind(
            _ADMISSION,
            "v1",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicybinding",
            False,
            dict,
        ),
    )
}
_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """An API server: its URL, a token of its administrator, and its CA certificate."""

    url: str
    token: str
    ca_pem: bytes


async def define_kinds(client: Client) -> None:
    """The definitions and policies of the Gateway API's standard bundle, and the classes of Traefik's
    providers."""
    definitions = []
    for path in sorted((folder_of(GATEWAY_API) / "config" / "crd" / "standard").glob("*.yaml")):
        for content in yaml.safe_load_all(path.read_text()):
            kind = _BUNDLED[content["kind"]]
            await client.apply(kind, content, field_manager="test", force=False)
            if kind is CUSTOM_RESOURCE_DEFINITIONS:
                definitions.append(content["metadata"]["name"])
    async with asyncio.timeout(_WITHIN_S):
        while not await _are_established(client, definitions):  # noqa: ASYNC110 - the server does it
            await asyncio.sleep(0.02)
    for name, controller in (("traefik", "traefik.io/ingress-controller"), ("nginx", "k8s.io/ingress-nginx")):
        await client.create(INGRESS_CLASSES, {"metadata": {"name": name}, "spec": {"controller": controller}})
    gateways = {"metadata": {"name": "traefik"}, "spec": {"controllerName": "traefik.io/gateway-controller"}}
    await client.create(GATEWAY_CLASSES, gateways)


async def _are_established(client: Client, names: Sequence[str]) -> bool:
    """Whether the server serves these definitions."""
    for name in names:
        definition = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        conditions = definition.get("status", {}).get("conditions", [])
        if not any(
            condition["type"] == "Established" and condition["status"] == "True" for condition in conditions
        ):
            return False
    return True


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
