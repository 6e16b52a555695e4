"""The sample issuer of docs/external-issuers.md, with the rights of its manifest."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from certwright.kube.api import conditions
from certwright.kube.api.manifests import Document, read_documents
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.util.http_messages import Identity
from certwright.pki.certificates import read_chain
from certwright.pki.keys import encode_private_key
from certwright.resources.table import CERTIFICATES
from controllers.external_issuer import admin_creates
from controllers.scene import Scene
from issuers.authority import Authority, new_root
from support.world import START, World, make_world

FOLDER = Path(__file__).parents[2] / "examples" / "external-issuer"
ISSUER_USER = Identity(
    "system:serviceaccount:default:sample-issuer",
    groups=("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
)
PLURALS = {
    "CustomResourceDefinition": "customresourcedefinitions",
    "ServiceAccount": "serviceaccounts",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
    "SampleIssuer": "sampleissuers",
    "Certificate": "certificates",
}
ISSUERS = "/apis/sample.example.com/v1/namespaces/default/sampleissuers"
APPROVED_BY_OTHERS = "*,-certificaterequests-approver"


def load_sample() -> Any:
    """The module `issuer.py`."""
    spec = importlib.util.spec_from_file_location("sample_issuer", FOLDER / "issuer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["sample_issuer"] = module
    spec.loader.exec_module(module)
    return module


def documents(name: str) -> list[dict[str, Any]]:
    """The objects of a manifest of the example."""
    parsed = list(read_documents((FOLDER / name).read_text(), source=name))
    assert all(isinstance(document, Document) for document in parsed)
    return [document.content for document in parsed if isinstance(document, Document)]


async def apply(world: World, content: dict[str, Any]) -> None:
    """Create an object as the administrator."""
    version, meta = content["apiVersion"], content["metadata"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    place = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    await admin_creates(world, f"{base}{place}/{PLURALS[content['kind']]}", **content)


class Sample:
    """A world in which the sample issuer runs."""

    def __init__(self, world: World, root: Authority) -> None:
        self.world = world
        self.scene = Scene(world)
        self._root = root
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the program, with the rights of its ServiceAccount."""
        client = Client(LocalTransport(self.world.server.handle, ISSUER_USER), user_agent="sample-issuer")
        pair = (self._root.pem, encode_private_key(self._root.key))
        controller = load_sample().SampleController(client, self.world.clock, *pair)
        self._task = asyncio.create_task(controller.run())
        await self.world.settle()

    async def stop(self) -> None:
        """Stop it."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._task = None

    async def want(self, **changes: Any) -> None:
        """Create the Certificate of the example, with these changes of its spec."""
        await self._create(1, changes)

    async def add_issuer(self, **changes: Any) -> None:
        """Create the SampleIssuer of the example, with these changes of its spec."""
        await self._create(0, changes)

    async def _create(self, number: int, changes: dict[str, Any]) -> None:
        content = documents("certificate.yaml")[number]
        await apply(self.world, {**content, "spec": {**content["spec"], **changes}})
        await self.world.settle()

    async def issuing(self) -> tuple[str, str]:
        """Reason and message of the Certificate's condition Issuing."""
        condition = conditions.find((await self.world.certificate("by-sample")).status.conditions, "Issuing")
        return (condition.reason, condition.message) if condition is not None else ("", "")


@pytest.fixture
async def sample(request: pytest.FixtureRequest) -> AsyncIterator[Sample]:
    """The sample issuer, installed and running; a parameter is the list of the controllers."""
    async with make_world(enabled=getattr(request, "param", "*")) as world:
        for content in documents("install.yaml"):
            await apply(world, content)
        made = Sample(world, new_root("Sample CA"))
        await made.start()
        yield made
        await made.stop()


async def test_the_certificate_of_the_example_is_issued(sample: Sample) -> None:
    await sample.add_issuer()
    await sample.want()
    assert await sample.world.is_ready("by-sample")
    data = (await sample.world.secret("by-sample-tls")).data
    assert read_chain(data["tls.crt"])[0].issuer_text == "CN=Sample CA"
    assert read_chain(data["ca.crt"])[0].subject_text == "CN=Sample CA"


async def test_a_request_waits_for_its_issuer(sample: Sample) -> None:
    await sample.want()
    text = 'waiting for SampleIssuer "sample", which does not exist in this namespace'
    assert text in (await sample.issuing())[1]
    await sample.add_issuer()
    assert await sample.world.is_ready("by-sample")


async def test_a_name_that_the_issuer_does_not_sign_is_named_and_retried_after_a_change(
    sample: Sample,
) -> None:
    await sample.add_issuer()
    await sample.want(dnsNames=["web.example.test", "web.example.com"])
    reason, message = await sample.issuing()
    assert reason == "InvalidRequest"
    assert "remove web.example.com from spec.dnsNames" in message
    patch = {"spec": {"dnsNames": ["web.example.test"]}}
    await sample.world.patch(CERTIFICATES, "by-sample", patch)
    assert await sample.world.is_ready("by-sample")


async def test_a_closed_issuer_gets_the_next_request_when_it_is_open(sample: Sample) -> None:
    until = START + timedelta(hours=3)
    await sample.add_issuer(closedUntil=until.isoformat())
    await sample.want()
    assert (await sample.issuing())[0] == "IssuerUnavailable"
    # Without the annotation, the next attempt would follow after an hour.
    await sample.world.advance(timedelta(hours=2, minutes=59))
    assert len(await sample.scene.requests("by-sample")) == 1
    await sample.world.advance(timedelta(hours=1))
    assert await sample.world.is_ready("by-sample")


@pytest.mark.parametrize("sample", [APPROVED_BY_OTHERS], indirect=True)
@pytest.mark.parametrize("decision", ["Approved", "Denied"])
async def test_nothing_is_signed_before_it_is_approved(sample: Sample, decision: str) -> None:
    await sample.add_issuer()
    await sample.want()
    (request,) = await sample.scene.requests("by-sample")
    assert not request.status.certificate
    condition = {"type": decision, "status": "True", "reason": "test", "message": "by hand"}
    path = f"/apis/cert-manager.io/v1/namespaces/default/certificaterequests/{request.metadata.name}/status"
    body = msgspec.json.encode({"status": {"conditions": [condition]}})
    headers = {"content-type": "application/merge-patch+json"}
    await sample.world.client.raw("PATCH", path, body=body, headers=headers)
    await sample.world.settle()
    assert await sample.world.is_ready("by-sample") is (decision == "Approved")
    reason, message = await sample.issuing()
    assert ("denied" in message.lower()) is (decision == "Denied"), (reason, message)


async def test_an_answer_is_final_also_for_a_restarted_issuer(sample: Sample) -> None:
    await sample.add_issuer()
    await sample.want()
    (before,) = await sample.scene.requests("by-sample")
    await sample.stop()
    await sample.start()
    (after,) = await sample.scene.requests("by-sample")
    assert after == before
