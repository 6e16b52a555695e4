"""HTTP-01 through a real proxy, without Kubernetes: a CA's request goes through Traefik to our listener.

Four ways to the same listener: a plain Ingress, one of ingress-nginx's class, an edited Ingress, and an
HTTPRoute. OpenBao, a second CA, validates at port 80 only. Traefik also serves what was issued, and a renewed
certificate as soon as it is in the Secret. A replica is killed meanwhile, and the other completes the order.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from certwright.controllers.acme.routes import objects
from certwright.controllers.acme.routes.objects import ENDPOINT_SLICES, SERVICE_NAME_LABEL, SOLVER_LABEL
from certwright.kube.api import codec, conditions
from certwright.kube.api.core import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, SECRETS
from certwright.kube.api.kinds import Kind
from certwright.kube.client.kubeconfig import connect, load
from certwright.kube.client.rest import Client
from certwright.resources.acme import Challenge
from certwright.resources.table import CERTIFICATES, CHALLENGES, CLUSTER_ISSUERS, ORDERS
from cli.calls import AT_WORK, Start, serve
from support import openbao
from support.go import GATEWAY_API, folder_of
from support.pebble import Pebble, running_pebble
from support.programs import environment_of, free_port, running

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
        command = [str(program), f"--configFile={folder / 'traefik.yaml'}"]
        with running(command, folder / "log", http_ports[0], env={"KUBECONFIG": ""}):
            yield


_WITHIN_S = 60.0


def server_of(path: Path) -> Server:
    """The server and the administrator's token of a kubeconfig."""
    config = yaml.safe_load(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    return Server(cluster["server"], user["token"], base64.b64decode(cluster["certificate-authority-data"]))


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


Json = dict[str, Any]
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
    await create(client, GATEWAYS, "gate", {"gatewayClassName": "traefik", "listeners": [listener]})
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
        await asyncio.to_thread(serve, start, *flags)
        kubeconfig = tmp_path / "certwright-data/kubeconfig"
        client = Client(connect(load(kubeconfig)), user_agent="test")
        stack.push_async_callback(client.close)
        await define_kinds(client)
        https_port = free_port()
        ports = [pebble.http_port, *HTTP]
        stack.enter_context(running_traefik(server_of(kubeconfig), ports, https_port))
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


_NAMESPACE, _SERVICE, _SLICE = "certwright", "certwright-http01", "certwright-http01-a"
_REPLICAS = ("127.0.0.1", "127.0.0.2")
_TERMS = {"lease-duration": "4s", "renew-deadline": "3s", "retry-period": "1s"}


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
        await asyncio.to_thread(serve, start, "--controllers", "")
        kubeconfig = tmp_path / "certwright-data/kubeconfig"
        client = Client(connect(load(kubeconfig)), user_agent="test")
        stack.push_async_callback(client.close)
        await define_kinds(client)
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
        stack.enter_context(running_traefik(server_of(kubeconfig), [pebble.http_port], free_port()))
        await until(lambda: all_ready(client))
        assert [order.status.state for order in (await client.list(ORDERS)).items] == ["valid"]
