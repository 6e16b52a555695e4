"""The scene that the browser looks at: a small shop with some forty certificates in all states.

A real `certwright serve` issues, renews and delivers them, and fails to. What needs a past is signed here
with the shop's CA, as if certwright had done so then, and found by the controllers as after a restart.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from certwright.cli.access import choose, connect, load
from certwright.kube.api.errors import ApiError, NotFound
from certwright.kube.client.rest import Client
from certwright.pki import keys, signing
from certwright.pki.certificates import CertificateFacts, read_certificate
from certwright.pki.csr import CsrPlan, build_csr
from certwright.pki.keys import KeyAlgorithm, KeyPlan
from cli.calls import Process
from support.programs import free_port

Json = dict[str, Any]
_DAY = timedelta(days=1)
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "ClusterIssuer": "/apis/cert-manager.io/v1/clusterissuers",
    "Issuer": "/apis/cert-manager.io/v1/namespaces/{}/issuers",
    "Certificate": "/apis/cert-manager.io/v1/namespaces/{}/certificates",
    "Event": "/api/v1/namespaces/{}/events",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "BadgeIssuer": "/apis/badges.example.com/v1/namespaces/{}/badgeissuers",
    "CertificateRequest": "/apis/cert-manager.io/v1/namespaces/{}/certificaterequests",
    "Delivery": "/apis/certwright.io/v1alpha1/namespaces/{}/deliveries",
}
_PAST = {
    "shop": ("web", "api", "checkout", "cart", "images", "search", "static", "admin", "feeds"),
    "office": ("mail", "calendar", "wiki", "chat", "vpn", "printer", "files", "time", "door"),
    "payments": ("gateway", "ledger", "fraud", "vault", "webhooks", "refunds", "tokens"),
    "lab": ("grafana", "registry", "builds", "staging", "demo"),
}
"""By namespace, certificates that were issued in the past and are in use."""


@dataclass
class Shop:
    """The server of the scene: `url` is that of the API, `folder` its data directory."""

    url: str
    folder: Path
    client: Client
    process: Process

    async def link(self, base: str = "") -> str:
        """A one-time link for the administrator; `base`: as seen through a proxy."""
        response = await self.client.raw("POST", "/ui/link")
        return f"{base or self.url + '/ui/'}{json.loads(response.body)['path']}"

    async def write(self, *objects: Json) -> None:
        """Create the objects, in this order."""
        for each in objects:
            await self.client.raw("POST", _path(each), body=json.dumps(each).encode(), headers=_JSON)

    async def patch(self, kind: str, namespace: str, name: str, change: Json, subresource: str = "") -> None:
        """Merge a change into an object, or into its `subresource` (with a slash before)."""
        path = f"{_PATHS[kind].format(namespace)}/{name}{subresource}"
        headers = {"content-type": "application/merge-patch+json"}
        await self.client.raw("PATCH", path, body=json.dumps(change).encode(), headers=headers)

    async def get(self, kind: str, namespace: str, name: str) -> Json:
        """An object."""
        response = await self.client.raw("GET", f"{_PATHS[kind].format(namespace)}/{name}")
        return dict(json.loads(response.body))

    async def until(
        self, kind: str, namespace: str, name: str, holds: Callable[[Json], bool], within_s: float = 60
    ) -> Json:
        """The object, once that holds."""
        deadline = time.monotonic() + within_s
        found: Json = {}
        while time.monotonic() < deadline:
            with contextlib.suppress(NotFound):
                if holds(found := await self.get(kind, namespace, name)):
                    return found
            await asyncio.sleep(0.2)
        raise AssertionError(found.get("status"))


_JSON = {"content-type": "application/json"}


def _path(each: Json) -> str:
    return _PATHS[each["kind"]].format(each["metadata"].get("namespace", ""))


def named(kind: str, namespace: str, name: str, spec: Json | None = None, **more: Any) -> Json:
    """An object of the scene; `more` are further fields of it."""
    groups = {
        "BadgeIssuer": "badges.example.com/v1",
        "Namespace": "v1",
        "Secret": "v1",
        "Event": "v1",
        "Delivery": "certwright.io/v1alpha1",
    }
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    version = groups.get(kind, "cert-manager.io/v1")
    content = {} if spec is None else {"spec": spec}
    return {"apiVersion": version, "kind": kind, "metadata": metadata} | content | more


def certificate(
    namespace: str, name: str, issuer: str = "ClusterIssuer/shop-ca", days: int = 90, **spec: Any
) -> Json:
    """A Certificate for NAME.shop.example; `issuer` is `Kind/name`."""
    kind, _, issuer_name = issuer.partition("/")
    default = {
        "secretName": f"{name}-tls",
        "dnsNames": [f"{name}.shop.example"],
        "duration": f"{days * 24}h",
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "issuerRef": {"name": issuer_name, "kind": kind},
    }
    return named("Certificate", namespace, name, default | spec)


class _Authority:
    """The shop's CA, made two years ago."""

    def __init__(self, now: datetime) -> None:
        self.key = keys.generate(KeyPlan(KeyAlgorithm.ECDSA, 256))
        request = build_csr(CsrPlan(common_name="Example Shop CA", is_ca=True), self.key)
        self.pem = signing.self_sign(
            request,
            key=self.key,
            duration=3650 * _DAY,
            is_ca=True,
            usages=(),
            now=now - 700 * _DAY,
        )

    @property
    def facts(self) -> CertificateFacts:
        """The CA's certificate."""
        return read_certificate(self.pem)

    def pair(self, asked: Json, begin: datetime) -> Json:
        """The Secret of a Certificate, as issued at that time."""
        meta, spec = asked["metadata"], asked["spec"]
        key = keys.generate(KeyPlan(KeyAlgorithm.ECDSA, 256))
        hours = int(spec["duration"].removesuffix("h"))
        pem = signing.sign(
            build_csr(CsrPlan(dns_names=tuple(spec["dnsNames"])), key),
            ca_cert=self.facts,
            ca_key=self.key,
            duration=timedelta(hours=hours),
            is_ca=False,
            usages=(),
            now=begin,
        )
        secret = _tls_secret(meta["namespace"], spec["secretName"], pem, key, self.pem)
        ref = spec["issuerRef"]
        secret["metadata"]["annotations"] = {
            "cert-manager.io/certificate-name": meta["name"],
            "cert-manager.io/issuer-name": ref["name"],
            "cert-manager.io/issuer-kind": ref["kind"],
            "cert-manager.io/issuer-group": "cert-manager.io",
        }
        return secret


def _tls_secret(namespace: str, name: str, pem: bytes, key: keys.PrivateKey, ca: bytes) -> Json:
    content = {
        "tls.crt": pem,
        "tls.key": keys.encode_private_key(key, keys.KeyEncoding.PKCS8),
        "ca.crt": ca,
    }
    data = {field: base64.b64encode(value).decode() for field, value in content.items()}
    return named("Secret", namespace, name, type="kubernetes.io/tls", data=data)


def objects(port: int, now: datetime) -> list[Json]:
    """Everything in the scene. No server listens on `port`."""
    ca = _Authority(now)
    found: list[Json] = [named("Namespace", "", name) for name in (*_PAST, "cert-manager")]
    found += [
        _tls_secret("kube-system", "shop-ca", ca.pem, ca.key, ca.pem),
        _tls_secret("cert-manager", "shop-ca", ca.pem, ca.key, ca.pem),
        named("ClusterIssuer", "", "shop-ca", {"ca": {"secretName": "shop-ca"}}),
        named("ClusterIssuer", "", "selfsigned", {"selfSigned": {}}),
        named("ClusterIssuer", "", "letsencrypt", _acme(f"https://127.0.0.1:{port}/directory")),
        named("Issuer", "payments", "vault", {"ca": {"secretName": "vault-ca-of-bank"}}),
    ]
    number = 0
    for namespace, names in _PAST.items():
        for name in names:
            number += 1
            asked = certificate(namespace, name)
            # Spread over the two thirds of a life after which it is renewed.
            found += [ca.pair(asked, now - ((number * 37) % 58) * _DAY - timedelta(hours=number)), asked]
    # Let's Encrypt cannot be reached: one certificate has ended meanwhile, one should have been renewed.
    for name, age in (("outlet", 92), ("events", 71)):
        asked = certificate("shop", name, "ClusterIssuer/letsencrypt")
        found += [ca.pair(asked, now - age * _DAY), asked]
    # Nobody approves requests to issuers of others by themselves.
    found.append(named("BadgeIssuer", "office", "reception"))
    badges = {"group": "badges.example.com", "kind": "BadgeIssuer", "name": "reception"}
    found += [
        certificate("office", "badges", issuerRef=badges),
        certificate("office", "visitors", issuerRef=badges),
        certificate("office", "intranet", "Issuer/offfice-ca"),
        certificate("payments", "acquirer", "Issuer/vault"),
        certificate("lab", "root", "ClusterIssuer/selfsigned", 3650, isCA=True, commonName="Example Lab CA"),
        named("Issuer", "lab", "lab-ca", {"ca": {"secretName": "root-tls"}}),
        certificate("lab", "sensors", "Issuer/lab-ca", 7),
        certificate("lab", "robot", "Issuer/lab-ca", 30),
        named("Delivery", "shop", "web", {"certificateRef": {"name": "web"}, "root": "shop", "path": "web"}),
        named("Delivery", "shop", "api", {"certificateRef": {"name": "api"}, "root": "shop", "path": "api"}),
        named(
            "Delivery",
            "shop",
            "checkout",
            {
                "certificateRef": {"name": "checkout"},
                "root": "shop",
                "path": "checkout",
                "servedAt": [{"address": f"127.0.0.1:{port}"}],
            },
        ),
    ]
    return found


def _acme(server: str) -> Json:
    solvers = [{"http01": {"ingress": {"ingressClassName": "nginx"}}}]
    account = {"server": server, "email": "certificates@shop.example", "solvers": solvers}
    return {"acme": account | {"privateKeySecretRef": {"name": "letsencrypt-account"}}}


@asynccontextmanager
async def server(folder: Path, *flags: str) -> AsyncIterator[Shop]:
    """An empty server with controllers."""
    folder.joinpath("delivered").mkdir()
    words = ("serve", "--data-dir", "data", "--listen", "127.0.0.1:0", "--delivery-root", "shop=delivered")
    process = Process(*words, "--deployed-check-allow", "127.0.0.1:*", *flags, cwd=folder)
    try:
        line = await asyncio.to_thread(process.line)
        assert line.startswith("certwright is ready at https://"), process.rest().err
        choice = choose(folder / "data" / "kubeconfig", {}, folder)
        access = load(choice, None)
        client = Client(connect(choice, access), user_agent="dashboard-tests")
        try:
            yield Shop(access.server.rstrip("/"), folder / "data", client, process)
        finally:
            await client.close()
    finally:
        process.close()


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[Shop]:
    """The shop, when all that can be issued is, and what cannot has failed."""
    async with server(folder) as opened:
        # Another project's issuer, whose controller is not there.
        await opened.write(_BADGES)
        await opened.until("CustomResourceDefinition", "", "badgeissuers.badges.example.com", _is_served)
        for each in objects(free_port(), datetime.now(UTC)):
            with contextlib.suppress(ApiError) if each["kind"] == "Namespace" else contextlib.nullcontext():
                await opened.write(each)
        await opened.until("CertificateRequest", "office", "visitors-1", lambda found: True)
        denied = {"type": "Denied", "status": "True", "reason": "Policy", "message": "ask at the reception"}
        denied["lastTransitionTime"] = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        change = {"status": {"conditions": [denied]}}
        await opened.patch("CertificateRequest", "office", "visitors-1", change, "/status")
        await opened.until("Certificate", "lab", "robot", is_ready)
        await opened.until("Delivery", "shop", "api", lambda found: "status" in found)
        yield opened


_BADGES = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "badgeissuers.badges.example.com"},
    "spec": {
        "group": "badges.example.com",
        "scope": "Namespaced",
        "names": {"plural": "badgeissuers", "singular": "badgeissuer", "kind": "BadgeIssuer"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


def _is_served(found: Json) -> bool:
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def is_ready(found: Json) -> bool:
    """Whether its condition Ready holds."""
    conditions = found.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
