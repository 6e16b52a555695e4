"""A sample external issuer: it signs the CertificateRequests whose issuerRef names a SampleIssuer.

The contract that it follows is in docs/external-issuers.md. It signs with a CA from two files:

    certwright apply -f examples/external-issuer/install.yaml
    .venv/bin/python examples/external-issuer/issuer.py ca.crt ca.key
    certwright apply -f examples/external-issuer/certificate.yaml

The server is found by $KUBECONFIG, or in ./certwright-data.
"""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import datetime
from pathlib import Path

from certwright.kube.api import conditions
from certwright.kube.api.kinds import Kind
from certwright.kube.api.meta import Condition, ObjectKey, ObjectMeta, Struct
from certwright.kube.client import kubeconfig
from certwright.kube.client.cache import key_of
from certwright.kube.client.informer import Informer
from certwright.kube.client.rest import Client
from certwright.kube.runtime.controller import Controller, Result
from certwright.kube.runtime.queue import WorkQueue
from certwright.kube.util.clock import Clock, SystemClock
from certwright.pki import signing
from certwright.pki.certificates import read_certificate
from certwright.pki.csr import read_csr
from certwright.pki.errors import PkiError
from certwright.pki.keys import load_private_key
from certwright.resources.request import CertificateRequest
from certwright.resources.table import CERTIFICATE_REQUESTS

GROUP = "sample.example.com"


class SampleSpec(Struct, frozen=True, kw_only=True):
    """What the issuer signs, and from when."""

    domain: str
    closed_until: datetime | None = None


class SampleIssuer(Struct, frozen=True, kw_only=True):
    """The issuer that a request refers to."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SampleSpec


SAMPLE_ISSUERS = Kind(GROUP, "v1", "SampleIssuer", "sampleissuers", "sampleissuer", True, SampleIssuer)


class SampleController:
    """Signs with the CA of these PEM texts. `requests` and `issuers` follow the API server."""

    def __init__(self, client: Client, clock: Clock, ca_pem: bytes, key_pem: bytes) -> None:
        self._client = client
        self._clock = clock
        self._ca, self._key = read_certificate(ca_pem), load_private_key(key_pem)
        # The API server selects: requests for other issuers are not even sent.
        group = f"spec.issuerRef.group={GROUP}"
        self.requests = Informer(client, CERTIFICATE_REQUESTS, clock, fields=group)
        self.issuers = Informer(client, SAMPLE_ISSUERS, clock)
        self.queue: WorkQueue[ObjectKey] = WorkQueue(clock)
        self.requests.add_handler(lambda old, new: self.queue.add(key_of(new or old)))
        self.issuers.add_handler(lambda _old, _new: self._enqueue_all())

    def _enqueue_all(self) -> None:
        for request in self.requests.cache.values():
            self.queue.add(request.metadata.key)

    async def run(self) -> None:
        """Work until cancelled."""
        controller = Controller("sample-issuer", self.reconcile, self.queue)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.requests.run())
            group.create_task(self.issuers.run())
            await asyncio.gather(self.requests.synced.wait(), self.issuers.synced.wait())
            group.create_task(controller.run())

    async def reconcile(self, key: ObjectKey) -> Result:
        """One pass over one request."""
        request = self.requests.cache.get(key)
        if request is None or is_finished(request):
            return Result()
        if conditions.is_true(request.status.conditions, "Denied"):
            await self._write(
                request, Condition("Ready", "False", "Denied", "an approver denied the request")
            )
        elif conditions.is_true(request.status.conditions, "Approved"):
            await self._answer(request)
        return Result()

    async def _answer(self, request: CertificateRequest) -> None:
        reference = request.spec.issuer_ref
        issuer = self.issuers.cache.get(ObjectKey(request.metadata.namespace, reference.name))
        if issuer is None:
            text = f'waiting for SampleIssuer "{reference.name}", which does not exist in this namespace'
            await self._write(request, Condition("Ready", "False", "Pending", text))
            return
        until = issuer.spec.closed_until
        if until is not None and self._clock.now() < until:
            await self._fail(request, "IssuerUnavailable", "wait until the issuer is open", until)
            return
        names = read_csr(request.spec.request).dns_names
        if wrong := [name for name in names if not name.endswith(f".{issuer.spec.domain}")]:
            await self._fail(request, "InvalidRequest", f"remove {wrong[0]} from spec.dnsNames")
            return
        try:
            chain = self._sign(request)
        except PkiError as error:
            await self._fail(request, "InvalidRequest", f"change the request: {error}")
            return
        ready = Condition("Ready", "True", "Issued", "Certificate issued")
        await self._write(request, ready, certificate=chain, ca=self._ca.pem)

    def _sign(self, request: CertificateRequest) -> bytes:
        spec = request.spec
        return signing.sign(
            spec.request,
            ca_cert=self._ca,
            ca_key=self._key,
            duration=spec.requested_duration,
            is_ca=spec.is_ca,
            usages=spec.usages,
            now=self._clock.now(),
        )

    async def _fail(
        self, request: CertificateRequest, cause: str, fix: str, not_before: datetime | None = None
    ) -> None:
        meta = request.metadata
        if not_before is not None:
            # BEFORE the failure, which makes certwright read it.
            patch = {"metadata": {"annotations": {"certwright.io/not-before": not_before.isoformat()}}}
            request = await self._client.patch(CERTIFICATE_REQUESTS, meta.name, meta.namespace, patch)
        ready = Condition("Ready", "False", "Failed", f"The request failed ({cause}): {fix}")
        await self._write(request, Condition("FailureCause", "True", cause, fix), ready)

    async def _write(self, request: CertificateRequest, *new: Condition, **status: bytes) -> None:
        now, held = self._clock.now(), request.status.conditions
        for condition in new:
            held = conditions.with_condition(held, condition, now)
        if held == request.status.conditions:
            return
        failed = {"failureTime": now.replace(microsecond=0)} if new[-1].reason in ("Failed", "Denied") else {}
        # With the version that was read: a status that has changed since is not overwritten.
        meta = {"resourceVersion": request.metadata.resource_version}
        body = {"metadata": meta, "status": {"conditions": held, **failed, **status}}
        name, namespace = request.metadata.name, request.metadata.namespace
        self.requests.put(
            await self._client.patch(CERTIFICATE_REQUESTS, name, namespace, body, subresource="status")
        )


def is_finished(request: CertificateRequest) -> bool:
    """Whether the request has its final answer, which never changes."""
    ready = conditions.find(request.status.conditions, "Ready")
    return ready is not None and ready.reason in ("Issued", "Failed", "Denied")


async def main(ca_pem: bytes, key_pem: bytes) -> None:
    """Find the server, and work until Ctrl-C."""
    files = kubeconfig.from_environment(os.environ.get("KUBECONFIG", ""))
    transport = kubeconfig.connect(kubeconfig.load(files or Path("certwright-data/kubeconfig")))
    client = Client(transport, user_agent="sample-issuer")
    try:
        await SampleController(client, SystemClock(), ca_pem, key_pem).run()
    finally:
        await transport.close()


if __name__ == "__main__":
    asyncio.run(main(*(Path(name).read_bytes() for name in sys.argv[1:3])))
