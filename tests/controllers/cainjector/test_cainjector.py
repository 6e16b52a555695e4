"""CA bundles in webhook configurations, CustomResourceDefinitions and APIServices."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from certwright.controllers.cainjector.sources import MOST_FORMER, merged
from certwright.controllers.cainjector.targets import (
    API_SERVICES,
    DEFINITIONS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    Target,
    untyped,
)
from certwright.kube.api.core import SECRETS
from certwright.kube.api.errors import Forbidden
from certwright.kube.api.kinds import Kind
from certwright.kube.apiserver.representations.responses import failure
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.certificates import read_chain
from certwright.resources.table import CERTIFICATES, ISSUERS
from controllers.scene import Scene, make_ca_issuer, make_certificate, make_secret
from issuers.authority import new_root
from support.world import START, make_world

Json = dict[str, Any]
FROM = "cert-manager.io/inject-ca-from"
FROM_SECRET = "cert-manager.io/inject-ca-from-secret"
FROM_API_SERVER = "cert-manager.io/inject-apiserver-ca"
SERVICE = {"name": "hook", "namespace": "default"}


class Injection(Scene):
    """A world with the CA issuer `ca`, the Certificate `web` of it, and objects with annotations."""

    async def add(self, kind: Kind[Target], annotations: Json, *, name: str = "it") -> None:
        """Create an object of that kind."""
        made = make(kind, name)
        made["metadata"]["annotations"] = annotations
        await self.world.client.create(untyped(kind), made)
        await self.world.settle()

    async def bundles(self, kind: Kind[Target], name: str = "it") -> list[bytes]:
        """Its CA bundles."""
        obj = await self.world.client.get(untyped(kind), name)
        if kind is DEFINITIONS:
            clients = [obj["spec"]["conversion"]["webhook"]["clientConfig"]]
        elif kind is API_SERVICES:
            clients = [obj["spec"]]
        else:
            clients = [hook["clientConfig"] for hook in obj["webhooks"]]
        return [b64decode(client.get("caBundle", "")) for client in clients]

    async def failures(self) -> list[str]:
        """The messages of the Events about failures."""
        await self.world.manager.flush()
        events = await self.world.events()
        return [event.message for event in events if event.reason == "CAInjectionFailed"]

    async def ca(self) -> bytes:
        """The CA of `web`."""
        return (await self.world.secret("web")).data["ca.crt"]


def make(kind: Kind[Target], name: str) -> Json:
    """An object that calls a webhook; two of them, where it can."""
    client: Json = {"service": SERVICE}
    if kind is DEFINITIONS:
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"type": "object"}},
        }
        conversion = {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
        }
        names = {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"}
        spec = {
            "group": "example.org",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
            "conversion": conversion,
        }
        return {"metadata": {"name": "things.example.org"}, "spec": spec}
    if kind is API_SERVICES:
        service: Json = {
            **client,
            "group": "metrics.example.org",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        return {"metadata": {"name": "v1.metrics.example.org"}, "spec": service}
    hook = {"clientConfig": client, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    return {
        "metadata": {"name": name},
        "webhooks": [{"name": f"{letter}.example.org", **hook} for letter in ("a", "b")],
    }


NAMES = {DEFINITIONS: "things.example.org", API_SERVICES: "v1.metrics.example.org"}


@pytest.fixture
async def scene() -> AsyncIterator[Injection]:
    """With the API server's CA, which is that of `ca`."""
    async with make_world() as world:
        made = Injection(world)
        await made.add_ca()
        await made.issue("web")
        yield made


@pytest.mark.parametrize(
    "kind", [VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS, DEFINITIONS, API_SERVICES], ids=lambda kind: kind.kind
)
async def test_the_ca_of_a_certificate_is_injected(scene: Injection, kind: Kind[Target]) -> None:
    await scene.add(kind, {FROM: "default/web"})
    bundles = await scene.bundles(kind, NAMES.get(kind, "it"))
    assert set(bundles) == {await scene.ca()}
    scene.world.recording.writes.clear()
    await scene.world.start_controllers()
    assert scene.world.recording.object_writes() == []


async def test_the_field_belongs_to_the_field_manager_of_cert_manager(scene: Injection) -> None:
    await scene.add(VALIDATING_WEBHOOKS, {FROM: "default/web"})
    obj = await scene.world.client.get(untyped(VALIDATING_WEBHOOKS), "it")
    managers = {entry["manager"]: entry["operation"] for entry in obj["metadata"]["managedFields"]}
    assert managers["cert-manager-cainjector"] == "Apply"


async def test_a_certificate_that_comes_later_is_waited_for(scene: Injection) -> None:
    await scene.add(VALIDATING_WEBHOOKS, {FROM: "default/late"})
    assert await scene.failures() == [
        f"{FROM}: there is no Certificate default/late; create it, or correct the annotation"
    ]
    await scene.issue("late")
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {await scene.ca()}


async def test_a_secret_must_allow_it(scene: Injection) -> None:
    await scene.world.create(SECRETS, make_secret("direct", {"ca.crt": await scene.ca()}))
    await scene.add(VALIDATING_WEBHOOKS, {FROM_SECRET: "default/direct", FROM: "default/none"})
    assert await scene.failures() == [
        f"{FROM_SECRET}: Secret default/direct does not allow it; annotate it with "
        'cert-manager.io/allow-direct-injection: "true"'
    ]
    allowed = {"metadata": {"annotations": {"cert-manager.io/allow-direct-injection": "true"}}}
    await scene.world.patch(SECRETS, "direct", allowed)
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {await scene.ca()}


async def test_the_ca_of_the_api_server_is_injected(scene: Injection) -> None:
    await scene.add(VALIDATING_WEBHOOKS, {FROM_API_SERVER: "true"})
    assert "contains no CA of the API server" in (await scene.failures())[0]
    await scene.world.start_controllers(api_server_ca=await scene.ca())
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {await scene.ca()}


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({FROM: "web"}, "'web' is not NAMESPACE/NAME"),
        ({FROM_SECRET: "default/none"}, "there is no Secret default/none"),
        ({FROM_SECRET: "a/b/c"}, "'a/b/c' is not NAMESPACE/NAME"),
    ],
)
async def test_what_is_wrong_is_one_event(
    scene: Injection, annotations: dict[str, str], sentence: str
) -> None:
    await scene.add(MUTATING_WEBHOOKS, annotations)
    (message,) = await scene.failures()
    assert sentence in message


async def test_a_source_that_must_not_be_read_is_tried_again(scene: Injection) -> None:
    allowed = {"cert-manager.io/allow-direct-injection": "true"}
    await scene.world.create(SECRETS, make_secret("far", {"ca.crt": await scene.ca()}, annotations=allowed))
    answer = scene.world.recording.handler

    async def refuse(request: Request) -> Response:
        if request.method == "GET" and request.target.endswith("/secrets/far"):
            return failure(Forbidden('secrets "far" is forbidden'))
        return await answer(request)

    scene.world.recording.handler = refuse
    await scene.add(VALIDATING_WEBHOOKS, {FROM_SECRET: "default/far"})
    (message,) = await scene.failures()
    assert "Secret default/far cannot be read" in message
    assert message.endswith("grant certwright the right to")
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {b""}
    scene.world.recording.handler = answer
    await scene.world.advance(timedelta(minutes=5))
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {await scene.ca()}


async def test_a_secret_of_another_certificate_is_not_used(scene: Injection) -> None:
    await scene.world.create(CERTIFICATES, make_certificate("thief", "none", secret_name="web"))
    await scene.add(VALIDATING_WEBHOOKS, {FROM: "default/thief"})
    assert any("belongs to Certificate web, not to thief" in message for message in await scene.failures())
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {b""}


async def test_the_old_ca_stays_beside_the_new_one_until_it_expires(scene: Injection) -> None:
    short = make_certificate(
        "other-ca", "root", is_ca=True, common_name="Other", dns_names=(), duration="48h", renew_before="6h"
    )
    await scene.world.create(CERTIFICATES, short)
    await scene.world.create(ISSUERS, make_ca_issuer("other", "other-ca"))
    await scene.issue("temporary", "other", duration="24h")
    await scene.add(VALIDATING_WEBHOOKS, {FROM: "default/temporary"})
    (old,) = read_chain((await scene.bundles(VALIDATING_WEBHOOKS))[0])
    reference = {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
    await scene.change_spec("temporary", issuerRef=reference)
    both = read_chain((await scene.bundles(VALIDATING_WEBHOOKS))[0])
    (new,) = read_chain(await scene.ca())
    assert [certificate.der for certificate in both] == [old.der, new.der]
    await scene.world.advance_to(START + timedelta(days=3))
    assert [certificate.der for certificate in read_chain((await scene.bundles(VALIDATING_WEBHOOKS))[0])] == [
        new.der
    ]


def test_former_cas_are_limited() -> None:
    """The author of the source may change it as often as it likes."""
    bundle = b""
    roots = [new_root(f"CA {number}") for number in range(MOST_FORMER + 3)]
    for root in roots:
        bundle = merged(bundle, read_chain(root.pem), START).pem
    kept = [certificate.der for certificate in read_chain(bundle)]
    assert kept == [read_chain(root.pem)[0].der for root in roots[-MOST_FORMER - 1 :]]
    # The present one comes back: nothing is moved.
    assert merged(bundle, read_chain(roots[-3].pem), START).pem == bundle


async def test_a_bundle_that_cannot_be_read_is_replaced(scene: Injection) -> None:
    await scene.add(VALIDATING_WEBHOOKS, {FROM: "default/web"})
    garbage = b64encode(b"no certificate").decode()
    patch = [{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": garbage}]
    await scene.world.patch(
        untyped(VALIDATING_WEBHOOKS), "it", patch, content_type="application/json-patch+json"
    )
    assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {await scene.ca()}


async def test_objects_without_annotations_are_not_cached(scene: Injection) -> None:
    await scene.add(VALIDATING_WEBHOOKS, {"example.org/x": "y"})
    for informer in scene.world.manager.wiring.ca_targets:
        assert len(informer.cache) == 0


async def test_it_can_be_left_out() -> None:
    async with make_world(enabled="*,-cainjector") as world:
        scene = Injection(world)
        await scene.add_ca()
        await scene.issue("web")
        await scene.add(VALIDATING_WEBHOOKS, {FROM: "default/web"})
        assert set(await scene.bundles(VALIDATING_WEBHOOKS)) == {b""}
