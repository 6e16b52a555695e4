"""A validating webhook that says yes, for benchmarks: real HTTPS on the loopback."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trustme
from aiohttp import web


async def _say_yes(request: web.Request) -> web.Response:
    review = await request.json()
    answer = {"uid": review["request"]["uid"], "allowed": True}
    return web.json_response({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": answer})


@asynccontextmanager
async def webhook() -> AsyncIterator[dict[str, Any]]:
    """A running webhook; gives the configuration by which an API server asks it about new ConfigMaps."""
    authority, app = trustme.CA(), web.Application()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    app.router.add_post("/", _say_yes)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    hook = {
        "name": "yes.bench.dev",
        "clientConfig": {
            "url": f"https://localhost:{runner.addresses[0][1]}/",
            "caBundle": base64.b64encode(authority.cert_pem.bytes()).decode(),
        },
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    try:
        yield {"metadata": {"name": "bench"}, "webhooks": [hook]}
    finally:
        await runner.cleanup()
