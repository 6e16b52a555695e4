"""DNS-01 by a webhook of cert-manager's kind: a real HTTPS server behind an APIService, at a real CA."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import dns.asyncquery
import dns.rcode
import dns.tsigkeyring
import dns.update
import pytest
import pytest_asyncio
import trustme
from aiohttp import web

from certwright.kube.api import conditions
from certwright.resources.table import CERTIFICATE_REQUESTS, CHALLENGES
from support.acme_world import AcmeWorld, acme_world
from support.bind import Bind, running_bind
from support.pebble import running_pebble
from support.programs import free_port
from support.world import CONTROLLER

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


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def bind() -> Iterator[Bind]:
    """The zone example.org."""
    with running_bind() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def webhook(bind: Bind) -> AsyncIterator[DnsWebhook]:
    """The webhook."""
    async with running_dns_webhook(bind) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(bind: Bind, webhook: DnsWebhook) -> AsyncIterator[AcmeWorld]:
    """A world in which the webhook is installed, and an issuer uses it."""
    with running_pebble(names=bind.address) as pebble:
        async with acme_world(pebble, bind=bind) as made:
            for path, manifest in webhook.manifests():
                await post(made, path, manifest)
            await made.issuer("webhook", solvers=[solver()])
            yield made


async def post(world: AcmeWorld, path: str, manifest: Mapping[str, Any]) -> None:
    """Make an object that we have no type for."""
    body = json.dumps(manifest).encode()
    await world.client.raw("POST", path, body=body, headers={"content-type": "application/json"})


def solver(group: str = GROUP, name: str = SOLVER) -> dict[str, object]:
    """A solver of an issuer."""
    webhook = {"groupName": group, "solverName": name, "config": {"zone": "example.org"}}
    return {"dns01": {"webhook": webhook}}


async def reason_of(world: AcmeWorld, certificate: str, words: str) -> str:
    """The reason of the Challenge of a certificate, once `words` are in it and in what the request says."""
    request = await world.until(
        CERTIFICATE_REQUESTS, f"{certificate}-1", lambda r: words in str(r.status.conditions)
    )
    ready = conditions.find(request.status.conditions, "Ready")
    assert ready is not None
    named = [c.metadata.name for c in (await world.client.list(CHALLENGES)).items]
    (name,) = [name for name in named if name.startswith(certificate)]
    challenge = await world.until(CHALLENGES, name, lambda c: words in c.status.reason)
    assert challenge.status.reason in ready.message
    return challenge.status.reason


async def test_a_webhook_shows_the_records_and_takes_them_away(world: AcmeWorld, webhook: DnsWebhook) -> None:
    await world.certificate("hooked", "*.hooked.example.org", "more.example.org", issuer="webhook")
    leaf = (await world.chain_of("hooked"))[0]
    assert sorted(leaf.dns_names) == ["*.hooked.example.org", "more.example.org"]
    assert webhook.shown == set()
    asked = [call for call in webhook.asked if call["dnsName"] == "hooked.example.org"]
    assert [call["action"] for call in asked] == ["Present", "CleanUp"]
    assert asked[0]["uid"] == asked[1]["uid"]
    assert asked[0]["resolvedFQDN"] == "_acme-challenge.hooked.example.org."
    assert asked[0]["config"] == {"zone": "example.org"}
    assert asked[0]["resourceNamespace"] == "kube-system"
    assert set(webhook.users) == {CONTROLLER.name}


async def test_what_a_webhook_refuses_is_told_and_tried_again(world: AcmeWorld, webhook: DnsWebhook) -> None:
    webhook.refuses = "the zone example.org is not yours"
    await world.certificate("refused", "refused.example.org", issuer="webhook")
    expected = (
        "Error presenting challenge: the webhook refused Present for _acme-challenge.refused.example.org: "
        "the zone example.org is not yours"
    )
    assert await reason_of(world, "refused", "is not yours") == expected
    webhook.refuses = ""
    await world.chain_of("refused")
    assert webhook.shown == set()


async def test_a_provider_that_is_slow_is_waited_for_and_that_is_told(
    world: AcmeWorld, webhook: DnsWebhook
) -> None:
    written = webhook.waits_for = asyncio.Event()
    await world.certificate("slow", "slow.example.org", issuer="webhook")
    # A first look may be too short for a busy machine: that there is no record yet is told by a later one.
    reason = await reason_of(world, "slow", "has no TXT record at _acme-challenge.slow.example.org yet")
    assert reason.startswith("Waiting for DNS-01 challenge propagation: ")
    webhook.waits_for = None
    written.set()
    assert (await world.chain_of("slow"))[0].dns_names == ("slow.example.org",)


async def test_a_webhook_that_is_none_is_told(world: AcmeWorld) -> None:
    await world.issuer("nothing", solvers=[solver(name="nothing")])
    await world.certificate("nothing", "nothing.example.org", issuer="nothing")
    assert await reason_of(world, "nothing", "no webhook") == (
        f"Error presenting challenge: no webhook is at /apis/{GROUP}/v1alpha1/nothing; install it, with its "
        f'APIService "v1alpha1.{GROUP}", or correct groupName and solverName of the solver'
    )


async def test_a_webhook_that_may_not_be_asked_or_is_away_is_told(
    world: AcmeWorld, webhook: DnsWebhook
) -> None:
    services = "/apis/apiregistration.k8s.io/v1/apiservices"
    away = {
        "group": "away.example.org",
        "version": "v1alpha1",
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "service": {"name": "records-webhook", "namespace": "cert-manager", "port": free_port()},
        "insecureSkipTLSVerify": True,
    }
    await post(world, services, {"metadata": {"name": "v1alpha1.away.example.org"}, "spec": away})
    await world.issuer("away", solvers=[solver("away.example.org")])
    await world.certificate("away", "away.example.org", issuer="away")
    forbidden = await reason_of(world, "away", "refused access")
    assert 'cannot create resource "records" in API group "away.example.org"' in forbidden
    assert (
        "; bind the ClusterRole of its chart to certwright's ServiceAccount, and let the webhook" in forbidden
    )
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/records-webhook"
    rules = [{"apiGroups": [GROUP, "away.example.org"], "resources": ["*"], "verbs": ["create"]}]
    patch = json.dumps({"rules": rules}).encode()
    headers = {"content-type": "application/merge-patch+json"}
    await world.client.raw("PATCH", role, body=patch, headers=headers)
    assert "connection refused" in await reason_of(world, "away", "connection refused")
