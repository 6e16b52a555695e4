"""The front proxy: aggregated servers trust the user that it names, and those of no other client."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import aiohttp
import trustme
from aiohttp import web

from certwright import app
from certwright.app.server import RunningServer
from certwright.kube.api.core import CONFIG_MAPS
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.clock import TestClock
from certwright.kube.util.connections import tls_context
from certwright.kube.util.http_messages import Identity
from certwright.pki.certificates import read_certificate
from support.world import eventually

Json = dict[str, Any]
GROUP = "acme.example.org"
TRUST = "extension-apiserver-authentication"
HOST = "records.default.svc"


class ExtensionServer:
    """Authenticates as k8s.io/apiserver's delegated authentication does: by the ConfigMap."""

    def __init__(self, trust: dict[str, str]) -> None:
        self.trust = trust
        self.authority = trustme.CA()
        self.port = 0

    def _user_of(self, request: web.Request) -> Json:
        """Source: apiserver `pkg/authentication/request/headerrequest`."""
        settings = {
            name: json.loads(value) for name, value in self.trust.items() if not name.endswith("ca-file")
        }
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        names = [value for part in (certificate or {}).get("subject", ()) for key, value in part]
        if not set(names) & set(settings["requestheader-allowed-names"]):
            return {"user": "system:anonymous"}
        (prefix,) = settings["requestheader-extra-headers-prefix"]
        return {
            "user": request.headers[settings["requestheader-username-headers"][0]],
            "uid": request.headers.get(settings["requestheader-uid-headers"][0]),
            "groups": request.headers.getall(settings["requestheader-group-headers"][0]),
            "extra": {
                unquote(name[len(prefix) :]): value
                for name, value in request.headers.items()
                if name.startswith(prefix)
            },
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async def handle(request: web.Request) -> web.Response:
            return web.json_response(self._user_of(request))

        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.authority.issue_cert(HOST).configure_cert(context)
        context.load_verify_locations(cadata=self.trust["requestheader-client-ca-file"])
        context.verify_mode = ssl.CERT_OPTIONAL
        extension = web.Application()
        extension.router.add_route("*", f"/apis/{GROUP}/v1alpha1/records", handle)
        runner = web.AppRunner(extension)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
            await site.start()
            self.port = runner.addresses[0][1]
            yield
        finally:
            await runner.cleanup()

    def manifests(self) -> list[tuple[str, Json]]:
        spec = {
            "group": GROUP,
            "version": "v1alpha1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "service": {"name": "records", "namespace": "default", "port": self.port},
            "caBundle": base64.b64encode(self.authority.cert_pem.bytes()).decode(),
        }
        service = {"type": "ExternalName", "externalName": "localhost"}
        return [
            ("/api/v1/namespaces/default/services", {"metadata": {"name": "records"}, "spec": service}),
            (
                "/apis/apiregistration.k8s.io/v1/apiservices",
                {"metadata": {"name": f"v1alpha1.{GROUP}"}, "spec": spec},
            ),
        ]


@asynccontextmanager
async def served(folder: Path, clock: TestClock | None = None) -> AsyncIterator[RunningServer]:
    none = app.ControllerOptions(controllers="")
    server = await app.start_server(app.ServeOptions(data_dir=folder, port=0, controllers=none), clock=clock)
    try:
        yield server
    finally:
        await server.close()


async def trust_of(client: Client) -> dict[str, str]:
    """The published settings."""

    async def is_published() -> bool:
        return any(
            found.metadata.name == TRUST for found in (await client.list(CONFIG_MAPS, "kube-system")).items
        )

    await eventually(is_published)
    return dict((await client.get(CONFIG_MAPS, TRUST, "kube-system")).data)


async def test_an_aggregated_server_learns_the_user_from_the_proxy_only(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        client = server.client("test")
        trust = await trust_of(client)
        extension = ExtensionServer(trust)
        async with extension.running():
            for path, obj in extension.manifests():
                await client.raw("POST", path, body=json.dumps(obj).encode())
            user = Identity(
                "jane", uid="u1", groups=("system:masters", "x"), extra={"example.org/id%": ("a",)}
            )
            jane = Client(LocalTransport(server._api.handle, user), user_agent="test")
            path = f"/apis/{GROUP}/v1alpha1/records"
            # What a client says of itself is not passed on.
            forged = {"x-remote-user": "root", "x-remote-group": "system:masters", "X-Remote-Extra-a": "b"}
            answer = await jane.raw("GET", path, headers=forged)
            assert json.loads(answer.body) == {
                "user": "jane",
                "uid": "u1",
                "groups": ["system:masters", "x"],
                "extra": {"example.org/id%": "a"},
            }
            # The CA of clients is another one, so that none of their certificates passes for the proxy's.
            assert (tmp_path / "pki/ca.crt").read_text() == trust["client-ca-file"]
            assert trust["client-ca-file"] != trust["requestheader-client-ca-file"]
            direct = tls_context(ca_pem=extension.authority.cert_pem.bytes())
            async with (
                aiohttp.ClientSession() as session,
                session.get(
                    f"https://127.0.0.1:{extension.port}{path}",
                    ssl=direct,
                    server_hostname=HOST,
                    headers=forged,
                ) as response,
            ):
                assert await response.json() == {"user": "system:anonymous"}


async def test_the_published_trust_follows_the_ca_and_is_restored(tmp_path: Path) -> None:
    clock = TestClock(datetime.now(UTC))
    async with served(tmp_path, clock) as server:
        client = server.client("test")
        trust = await trust_of(client)
        other, path = (
            trustme.CA().cert_pem.bytes().decode(),
            f"/api/v1/namespaces/kube-system/configmaps/{TRUST}",
        )
        own = trust["requestheader-client-ca-file"]
        # Another server's CA stays beside this one's, and nothing else does.
        change = {
            "requestheader-client-ca-file": other,
            "requestheader-allowed-names": "[]",
            "client-ca-file": "x",
        }
        headers = {"content-type": "application/merge-patch+json"}
        await client.raw("PATCH", path, body=json.dumps({"data": change}).encode(), headers=headers)
        expected = {**trust, "requestheader-client-ca-file": other + own}

        async def is_restored() -> bool:
            return (await trust_of(client)) == expected

        await eventually(is_restored)
        await client.raw("DELETE", path)
        expected = trust
        await eventually(is_restored)
        # The client certificate is renewed before it ends, and the clock is set back then.
        former = server._api._aggregated.pair_pem
        start = clock.now()
        for moment in (start + timedelta(days=300), start):
            clock.set_now(moment)

            async def is_valid_now() -> bool:
                clock.advance(timedelta(seconds=31))
                facts = read_certificate(server._api._aggregated.pair_pem)
                return facts.not_before <= clock.now() < facts.not_after - timedelta(days=100)

            await eventually(is_valid_now)
            assert server._api._aggregated.pair_pem != former
