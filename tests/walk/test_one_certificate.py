"""The walk of one certificate (docs/walk.md), performed: each stop, in order, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from certwright.kube.api import codec, conditions
from certwright.kube.api.core import SECRETS, Secret
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.manifests import Document, read_documents
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.informer import Informer
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.certificates import read_certificate
from certwright.pki.csr import read_csr
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import Certificate
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, ISSUERS
from support.world import CONTROLLER, START, World, condition_of, make_world

ISSUER = """
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: root, namespace: default}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: ca, namespace: default}
spec:
  isCA: true
  commonName: Example CA
  secretName: ca
  duration: 87600h
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: root}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: ca, namespace: default}
spec: {ca: {secretName: ca}}
"""
CERTIFICATE = """
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: web, namespace: default}
spec:
  secretName: web-tls
  dnsNames: [web.example.com]
  usages: [server auth]
  privateKey: {algorithm: ECDSA}
  issuerRef: {name: ca}
"""


@dataclass
class Stop:
    """What there is right after one write."""

    write: str
    certificate: Certificate
    requests: list[CertificateRequest]
    secrets: dict[str, Secret]

    def issuing(self) -> str | None:
        """The reason of Issuing=True, None where it is not."""
        condition = conditions.find(self.certificate.status.conditions, "Issuing")
        return condition.reason if condition and condition.status == "True" else None

    def ready(self) -> tuple[str, str]:
        """Status and reason of Ready."""
        condition = condition_of(self.certificate, "Ready")
        return condition.status, condition.reason


@dataclass
class Walker:
    """Stands before the API server and looks around after each write of the controllers."""

    world: World
    handler: Callable[[Request], Awaitable[Response]]
    stops: list[Stop] = field(default_factory=list)

    async def handle(self, request: Request) -> Response:
        """Serve, then look."""
        response = await self.handler(request)
        ours = request.user == CONTROLLER and request.method != "GET"
        if ours and response.status < 400 and "/events" not in request.target:
            where = request.target.partition("?")[0].rpartition("/namespaces/default/")[2]
            self.stops.append(await self._look(f"{request.method} {where}"))
        return response

    async def _look(self, write: str) -> Stop:
        client = self.world.client
        requests = (await client.list(CERTIFICATE_REQUESTS, "default")).items
        secrets = (await client.list(SECRETS, "default")).items
        return Stop(
            write,
            await self.world.certificate("web"),
            [r for r in requests if r.metadata.name.startswith("web")],
            {s.metadata.name: s for s in secrets if s.metadata.name.startswith("web")},
        )


async def apply(world: World, text: str) -> None:
    """Stop 1: YAML is read and sent."""
    kinds: dict[str, AnyKind] = {"Issuer": ISSUERS, "Certificate": CERTIFICATES}
    for document in read_documents(text, source="walk.yaml"):
        assert isinstance(document, Document)
        kind = kinds[document.content["kind"]]
        await world.client.create(kind, codec.from_dict(kind, document.content))
    await world.settle()


async def test_one_certificate_from_yaml_to_its_renewal() -> None:
    async with make_world() as world:
        await apply(world, ISSUER)
        await world.stop_controllers()

        # 1-3: read, sent, defaulted, checked, stored, with a revision.
        await apply(world, CERTIFICATE)
        stored = await world.certificate("web")
        assert int(stored.metadata.resource_version) > 0
        assert (stored.metadata.generation, stored.status.conditions) == (1, ())

        # 4-6: streamed, reflected into a local copy, and its key is queued, once.
        await check_copy_and_queue(world)

        world.recording.writes.clear()
        walker = Walker(world, world.recording.handler)
        world.recording.handler = walker.handle
        await world.start_controllers()
        check_stops(walker.stops)
        assert len(world.recording.object_writes()) <= 7
        assert len(world.recording.event_writes()) <= 3

        # 13: and it wakes itself again.
        await world.advance_to(START + timedelta(days=60, hours=15))
        assert (await world.certificate("web")).status.revision == 2


async def check_copy_and_queue(world: World) -> None:
    """Stops 4 to 6, with a copy and a queue of our own."""
    informer = Informer(world.client, CERTIFICATES, world.clock)
    queue: WorkQueue[ObjectKey] = WorkQueue(world.clock)
    informer.add_handler(lambda _, new: queue.add(new.metadata.key) if new else None)
    running = asyncio.create_task(informer.run())
    await world.settle()
    key = ObjectKey("default", "web")
    assert informer.cache.get(key) == await world.certificate("web")
    assert {await queue.take(), await queue.take()} == {key, ObjectKey("default", "ca")}
    assert len(queue) == 0
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def check_stops(stops: list[Stop]) -> None:
    """Stops 7 to 12: what each write left."""
    decided, key_made, requested, signed, kept, judged, tidied = stops

    # 7, "must it be issued?", with the name of the next key chosen and the readiness told in the same write.
    assert decided.write == "PATCH certificates/web/status"
    assert (decided.issuing(), decided.ready()) == ("DoesNotExist", ("False", "DoesNotExist"))
    next_key = decided.certificate.status.next_private_key_secret_name
    assert next_key
    assert decided.secrets == {}

    # 8, a next private key.
    assert key_made.write == "POST secrets"
    assert list(key_made.secrets) == [next_key]
    secret = key_made.secrets[next_key]
    assert secret.metadata.labels["cert-manager.io/next-private-key"] == "true"
    public = public_key_der(load_private_key(secret.data["tls.key"]))

    # 9, a request carrying a CSR for that key.
    assert requested.write == "POST certificaterequests"
    assert [r.metadata.name for r in requested.requests] == ["web-1"]
    csr = read_csr(requested.requests[0].spec.request)
    assert (csr.public_key_der, csr.dns_names) == (public, ("web.example.com",))

    # 10, approved, then signed, in one write.
    assert signed.write == "PATCH certificaterequests/web-1/status"
    assert [(c.type, c.status) for c in signed.requests[0].status.conditions] == [
        ("Approved", "True"),
        ("Ready", "True"),
    ]
    assert signed.issuing() == "DoesNotExist"

    # 11, key and chain stored together.
    assert kept.write == "PATCH secrets/web-tls"
    target = kept.secrets["web-tls"]
    assert target.data["tls.crt"] == signed.requests[0].status.certificate
    assert public_key_der(load_private_key(target.data["tls.key"])) == public

    # 12, judged by the same rules.
    assert judged.write == "PATCH certificates/web/status"
    assert (judged.issuing(), judged.ready()) == (None, ("True", "Ready"))
    leaf = read_certificate(target.data["tls.crt"])
    status = judged.certificate.status
    assert (status.revision, status.not_before, status.not_after) == (1, leaf.not_before, leaf.not_after)
    assert status.renewal_time is not None
    assert timedelta(0) <= status.renewal_time - (START + timedelta(days=60)) <= timedelta(hours=15)

    assert tidied.write == f"DELETE secrets/{next_key}"
    assert list(tidied.secrets) == ["web-tls"]
