"""A webhook server for tests: real HTTPS, answers that a test chooses, and a record of what it was asked."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trustme
from aiohttp import web

from kube.apiserver.callers import Api
from support.waiting import until

Json = dict[str, Any]
Answer = Callable[[Json], Json | web.Response | Awaitable[Json | web.Response]]
"""From the request of a review to the response, less its uid; or to any HTTP answer."""

HOOKS = "/apis/admissionregistration.k8s.io/v1"
CONFIG_MAP_CREATES: Json = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
    "operations": ["CREATE"],
}


def allow(_request: Json) -> Json:
    """Yes."""
    return {"allowed": True}


def patch(*operations: Json) -> Json:
    """Yes, with a change."""
    encoded = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": encoded}


def add_label(name: str) -> Answer:
    """An answer that sets a label, and says nothing when it is there."""

    def answer(request: Json) -> Json:
        labels = request["object"]["metadata"].get("labels")
        if labels is None:
            return patch({"op": "add", "path": "/metadata/labels", "value": {name: "yes"}})
        if name in labels:
            return allow(request)
        return patch({"op": "add", "path": f"/metadata/labels/{name}", "value": "yes"})

    return answer


class WebhookServer:
    """Answers reviews by path; `reviews` are those that came, oldest first."""

    def __init__(self, authority: trustme.CA) -> None:
        self._authority = authority
        self.port = 0
        self.answers: dict[str, Answer] = {}
        self.reviews: list[Json] = []
        self.targets: list[str] = []
        self.names_asked: list[str | None] = []

    @property
    def requests(self) -> list[Json]:
        """What the reviews asked."""
        return [review["request"] for review in self.reviews]

    @property
    def ca_bundle(self) -> str:
        """What a client must trust, as a configuration says it."""
        return base64.b64encode(self._authority.cert_pem.bytes()).decode()

    def client_config(self, path: str = "/") -> Json:
        """Where a webhook of this server listens."""
        return {"url": f"https://localhost:{self.port}{path}", "caBundle": self.ca_bundle}

    def hook(self, name: str = "check.test.dev", path: str = "/", **more: Any) -> Json:
        """A webhook that is asked about new ConfigMaps."""
        return {
            "name": name,
            "clientConfig": self.client_config(path),
            "rules": [CONFIG_MAP_CREATES],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }

    def sni_seen(self, _socket: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        """Note which host a client asked for in TLS."""
        self.names_asked.append(name)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one review."""
        self.targets.append(request.path_qs)
        review = await request.json()
        self.reviews.append(review)
        answer = self.answers.get(request.path, allow)(review["request"])
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, web.Response):
            return answer
        response = {"uid": review["request"]["uid"], **answer}
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )


@asynccontextmanager
async def running(*names: str) -> AsyncIterator[WebhookServer]:
    """A server on a free port, whose certificate is for `localhost` and `names`."""
    authority = trustme.CA()
    server = WebhookServer(authority)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", *names).configure_cert(context)
    context.sni_callback = server.sni_seen
    app = web.Application()
    app.router.add_post("/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    server.port = runner.addresses[0][1]
    try:
        yield server
    finally:
        assert runner.server is not None
        there = [connection.transport for connection in runner.server.connections]
        sockets = [transport.get_extra_info("socket") for transport in there if transport is not None]
        await runner.cleanup()
        # A TLS connection takes some turns to end; one that a loop leaves behind fails some other test.
        await until(lambda: all(connection.fileno() < 0 for connection in sockets))


async def register(api: Api, kind: str, *hooks: Json, name: str = "hooks") -> Json:
    """Store a configuration; `kind` is `Validating` or `Mutating`."""
    plural = f"{kind.lower()}webhookconfigurations"
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": list(hooks),
    }
    return await api.ok("POST", f"{HOOKS}/{plural}", body)
