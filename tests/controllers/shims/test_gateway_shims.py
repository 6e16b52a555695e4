"""Certificates of annotated Gateways and ListenerSets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from certwright.controllers.shims.annotations import ShimOptions
from certwright.kube.api.kinds import Kind
from certwright.resources.ingress import EXPERIMENTAL_LISTENER_SETS, GATEWAYS, LISTENER_SETS
from controllers.shims.shim_scene import GATEWAY_KINDS, ShimScene, listener, shim_scene

SOLVER = "acme.cert-manager.io/http01"


@pytest.fixture
async def scene() -> AsyncIterator[ShimScene]:
    """A world with the CA issuer `ca` and the kinds of the Gateway API."""
    async with shim_scene(*GATEWAY_KINDS) as made:
        yield made


async def test_listeners_of_a_gateway_get_certificates(scene: ShimScene) -> None:
    await scene.gateway(
        listener("a.example.com", "one"),
        listener("b.example.com", "one", name="again", protocol="TLS"),
        listener("c.example.com", "two"),
        listener("d.example.com", "three", tls={"mode": "Passthrough", "certificateRefs": [{"name": "x"}]}),
        {"name": "plain", "port": 80, "protocol": "HTTP"},
        issuer="ca",
    )
    certificates = await scene.certificates()
    assert {name: certificate["spec"]["dnsNames"] for name, certificate in certificates.items()} == {
        "one": ["a.example.com", "b.example.com"],
        "two": ["c.example.com"],
    }
    meta = certificates["one"]["metadata"]
    assert meta["ownerReferences"][0]["apiVersion"] == "gateway.networking.k8s.io/v1"
    assert meta["annotations"][f"{SOLVER}-parentrefkind"] == "Gateway"
    assert meta["annotations"][f"{SOLVER}-parentrefname"] == "gate"
    assert await scene.world.is_ready("one")


async def test_a_name_that_a_wildcard_covers_is_left_out(scene: ShimScene) -> None:
    await scene.gateway(
        listener("*.example.com", "one"),
        listener("keycloak.example.com", "one", name="again"),
        listener("a.b.example.com", "one", name="deeper"),
        listener("example.com", "one", name="apex"),
        issuer="ca",
    )
    (certificate,) = (await scene.certificates()).values()
    assert certificate["spec"]["dnsNames"] == ["*.example.com", "a.b.example.com", "example.com"]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"hostname": ""}, "spec.listeners[0].hostname: Required value"),
        ({"protocol": "QUIC"}, 'spec.listeners[0].protocol: Invalid value: "QUIC"'),
        ({"tls": None}, "spec.listeners[0].tls: Required value"),
        ({"tls": {"certificateRefs": []}}, "spec.listeners[0].tls.certificateRefs: Required value"),
        (
            {"tls": {"certificateRefs": [{"name": "x", "namespace": "other"}]}},
            'spec.listeners[0].tls.certificateRefs[0].namespace: Invalid value: "other"',
        ),
        (
            {"tls": {"certificateRefs": [{"name": "x", "kind": "ConfigMap"}]}},
            'spec.listeners[0].tls.certificateRefs[0].kind: Unsupported value: "ConfigMap"',
        ),
    ],
)
async def test_a_listener_that_cannot_be_served_is_an_event(
    scene: ShimScene, wrong: dict[str, Any], sentence: str
) -> None:
    await scene.gateway(
        {**listener("a.example.com", "one"), **wrong}, listener("b.example", "two"), issuer="ca"
    )
    assert set(await scene.certificates()) == {"two"}
    events = await scene.events_of("Gateway")
    assert any(reason == "BadConfig" and sentence in message for reason, message in events), events


async def test_listeners_can_be_left_out(scene: ShimScene) -> None:
    await scene.gateway(
        listener("a.example.com", "one"),
        listener("b.example.com", "two"),
        issuer="ca",
        ignore_tls_listeners="one, three",
    )
    assert set(await scene.certificates()) == {"two"}
    assert "names listeners that do not exist" in await scene.messages("Gateway")


async def test_further_protocols_are_the_operators_choice() -> None:
    options = ShimOptions(extra_protocols=("example.com/custom",))
    async with shim_scene(GATEWAYS, shims=options) as scene:
        await scene.gateway(listener("a.example.com", "one", protocol="example.com/custom"), issuer="ca")
        assert set(await scene.certificates()) == {"one"}


@pytest.mark.parametrize("kind", [LISTENER_SETS, EXPERIMENTAL_LISTENER_SETS], ids=lambda kind: kind.kind)
async def test_a_listener_set_inherits_the_issuer_of_its_gateway(scene: ShimScene, kind: Kind[Any]) -> None:
    await scene.gateway(name="gate")
    await scene.listener_set(listener("a.example.com", "one"), kind=kind)
    assert await scene.certificates() == {}
    await scene.change(GATEWAYS, "gate", {"metadata": {"annotations": {"cert-manager.io/issuer": "ca"}}})
    meta = (await scene.certificates())["one"]["metadata"]
    assert meta["ownerReferences"][0]["kind"] == kind.kind
    assert meta["annotations"][f"{SOLVER}-parentrefkind"] == kind.kind
    assert meta["annotations"][f"{SOLVER}-parentrefname"] == "more"


async def test_the_issuer_of_a_listener_set_comes_before_that_of_its_gateway(scene: ShimScene) -> None:
    await scene.gateway(name="gate", issuer="ca")
    await scene.listener_set(
        listener("a.example.com", "one"),
        cluster_issuer="other",
        **{f"{SOLVER}-parentreffallback": "true"},
    )
    certificate = (await scene.certificates())["one"]
    assert certificate["spec"]["issuerRef"]["kind"] == "ClusterIssuer"
    annotations = certificate["metadata"]["annotations"]
    assert annotations[f"{SOLVER}-parentrefkind"] == "Gateway"
    assert annotations[f"{SOLVER}-parentrefname"] == "gate"
    assert annotations[f"{SOLVER}-parentrefnamespace"] == "default"


async def test_kinds_that_are_not_served_are_no_error_and_found_later() -> None:
    async with shim_scene() as scene:
        assert scene.world.manager.synced
        await scene.serve(GATEWAYS)
        await scene.gateway(listener("a.example.com", "one"), issuer="ca")
        while not await scene.certificates():
            moment = scene.world.clock.next_deadline()
            assert moment is not None
            assert (moment - scene.world.clock.now()).total_seconds() < 600
            await scene.world.advance_to(moment)


@pytest.mark.parametrize("options", [{"shims": ShimOptions(gateways=False)}, {"enabled": "*,-gateway-shim"}])
async def test_gateways_can_be_left_out(options: dict[str, Any]) -> None:
    async with shim_scene(GATEWAYS, **options) as scene:
        await scene.gateway(listener("a.example.com", "one"), issuer="ca")
        assert await scene.certificates() == {}
