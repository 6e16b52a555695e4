"""A DNS webhook as cert-manager has them: an HTTPS server that takes ChallengePayloads, and writes to BIND.

It is reached as in a cluster: by an APIService, through the API server.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import dns.asyncquery
import dns.rcode
import dns.tsigkeyring
import dns.update
import trustme
from aiohttp import web

from support.bind import Bind

GROUP, SOLVER = "acme.example.org", "records"
_VERSION = "webhook.acme.cert-manager.io/v1alpha1"
_NAMESPACE, _SERVICE = "cert-manager", "records-webhook"
Json = dict[str, Any]


@dataclass(slots=True)
class DnsWebhook:
    """`asked` holds the requests, oldest first; `refuses` is the reason for which it does nothing. Where
    `waits_for` is given it says yes, and writes the record when that is set."""

    bind: Bind
    asked: list[Json] = field(default_factory=list)
    users: list[str] = field(default_factory=list)
    refuses: str = ""
    waits_for: asyncio.Event | None = None
    shown: set[tuple[str, str]] = field(default_factory=set)
    port: int = 0
    ca_pem: bytes = b""
    _late: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one payload."""
        payload = await request.json()
        request_body = payload["request"]
        self.asked.append(request_body)
        self.users.append(request.headers.get("x-remote-user", ""))
        response: Json = {"uid": request_body["uid"], "success": not self.refuses}
        if self.refuses:
            response["status"] = {"message": self.refuses, "reason": "InternalError", "code": 500}
        elif self.waits_for is None:
            await self._obey(request_body)
        else:
            task = asyncio.create_task(self._obey_later(request_body, self.waits_for))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
        return web.json_response({"apiVersion": _VERSION, "kind": "ChallengePayload", "response": response})

    async def _obey_later(self, challenge: Json, moment: asyncio.Event) -> None:
        await moment.wait()
        await self._obey(challenge)

    async def _obey(self, challenge: Json) -> None:
        record, value = challenge["resolvedFQDN"], challenge["key"]
        key = "hmacsha256"
        ring = dns.tsigkeyring.from_text({key: self.bind.secrets[key]})
        update = dns.update.UpdateMessage(challenge["resolvedZone"], keyring=ring, keyalgorithm="hmac-sha256")
        if challenge["action"] == "Present":
            update.add(record, 60, "TXT", value)
            self.shown.add((record, value))
        else:
            update.delete(record, "TXT", value)
            self.shown.discard((record, value))
        answer = await dns.asyncquery.tcp(update, "127.0.0.1", port=self.bind.port, timeout=60)
        assert answer.rcode() == dns.rcode.NOERROR, answer

    def manifests(self) -> list[tuple[str, Json]]:
        """What its chart installs, by path: the Service, the APIService, and who may ask it. The Service
        leads out of the cluster, for no Pods run here."""
        meta: Json = {"name": _SERVICE}
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": _SERVICE}
        subject = {"kind": "ServiceAccount", "name": "cert-manager", "namespace": "cert-manager"}
        api_service = {
            "metadata": {"name": f"v1alpha1.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": "v1alpha1",
                "groupPriorityMinimum": 1000,
                "versionPriority": 15,
                "service": {"name": _SERVICE, "namespace": _NAMESPACE, "port": self.port},
                "caBundle": base64.b64encode(self.ca_pem).decode(),
            },
        }
        service = {"metadata": meta, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        rules = [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["create"]}]
        return [
            ("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}}),
            (f"/api/v1/namespaces/{_NAMESPACE}/services", service),
            ("/apis/apiregistration.k8s.io/v1/apiservices", api_service),
            (f"{rbac}/clusterroles", {"metadata": meta, "rules": rules}),
            (f"{rbac}/clusterrolebindings", {"metadata": meta, "roleRef": role, "subjects": [subject]}),
        ]


@asynccontextmanager
async def running_dns_webhook(bind: Bind) -> AsyncIterator[DnsWebhook]:
    """A webhook on a free port, whose certificate is for its Service."""
    authority = trustme.CA()
    webhook = DnsWebhook(bind, ca_pem=authority.cert_pem.bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(f"{_SERVICE}.{_NAMESPACE}.svc").configure_cert(context)
    app = web.Application()
    app.router.add_post(f"/apis/{GROUP}/v1alpha1/{SOLVER}", webhook.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        webhook.port = runner.addresses[0][1]
        yield webhook
    finally:
        await runner.cleanup()
