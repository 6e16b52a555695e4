"""What cert-manager has begun is finished, with the keys, requests and orders that are there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from certwright.acme.protocol.messages import Action
from certwright.kube.api.core import CONFIG_MAPS, SECRETS, ConfigMap
from certwright.kube.api.errors import NotFound
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.table import CERTIFICATE_REQUESTS
from controllers.acme.fake_world import FakeWorld, Shown, fake_world
from support.world import World, make_world
from takeover import fleet
from takeover.go_x509 import key_pem
from takeover.in_flight import NEXT, STAGES, renewal
from takeover.objects import Json
from takeover.scene import created, everything, store_of, taken_over


@pytest.mark.parametrize("stage", STAGES)
async def test_a_renewal_goes_on_where_cert_manager_has_left_it(stage: str) -> None:
    objects_of, secrets, requests = STAGES[stage]
    interrupted = renewal()
    objects = [*fleet.issuers(), *fleet.issuer_secrets(), *objects_of(interrupted)]
    has_key, is_signed = interrupted.next_key in objects, stage in ("it is signed", "it is stored")
    async with taken_over(objects) as world:
        certificate = await world.certificate("web")
        assert await world.is_ready("web")
        assert certificate.status.revision == 2
        assert certificate.status.next_private_key_secret_name is None
        # The target is applied, never created.
        assert created(world, "secrets") == secrets
        assert created(world, "certificaterequests") == requests
        secret = await world.secret("web")
        if has_key:
            kept = public_key_der(load_private_key(key_pem(interrupted.new.key)))
            assert public_key_der(load_private_key(secret.data["tls.key"])) == kept
        if is_signed:
            assert secret.data["tls.crt"] == interrupted.new.chain
        with pytest.raises(NotFound):
            await world.client.get(SECRETS, NEXT, "default")
        left = (await world.client.list(CERTIFICATE_REQUESTS)).items
        assert [request.metadata.name for request in left] == ["web-2"]


def as_cert_manager_has_it(objects: list[Json], finalizer: str) -> list[Json]:
    """The same moment, with the names and marks of cert-manager."""
    for obj in objects:
        metadata, status = obj["metadata"], obj.get("status", {})
        for mark in list(metadata.get("annotations", {})):
            if mark.startswith("certwright.io/"):
                del metadata["annotations"][mark]
        if obj["kind"] == "Order":
            metadata["name"] = "web-1-2745722290"
        elif obj["kind"] == "Challenge":
            metadata["name"] = "web-1-2745722290-439160286"
            metadata["finalizers"] = [finalizer]
            metadata["ownerReferences"][0]["name"] = "web-1-2745722290"
            obj["status"] = {
                "presented": True,
                "processing": True,
                "reason": "Waiting for HTTP-01 challenge propagation: wrong status code '404'",
                "state": "pending",
            }
        elif obj["kind"] == "CertificateRequest":
            text = 'Waiting on certificate issuance from order default/web-1-2745722290: "pending"'
            ready = {"type": "Ready", "status": "False", "reason": "Pending", "message": text}
            other_conditions = [c for c in status["conditions"] if c["type"] != "Ready"]
            status["conditions"] = [
                *other_conditions,
                {**ready, "lastTransitionTime": "2026-01-01T00:00:02Z"},
            ]
    return objects


async def begun() -> tuple[Any, list[Json]]:
    """A CA that has an order of ours, and the objects of the moment when it waits for the proof."""
    async with fake_world() as first:
        await first.issuer()
        first.ca.sees = lambda *_: False
        first.ca.slow.add("a.example.org")
        await first.issue("web")
        assert [order.status.state for order in await first.orders()] == ["pending"]
        assert len(await first.challenges()) == 1
        return first.ca, await everything(first.world)


@pytest.mark.parametrize("is_told", [False, True], ids=["on show", "told to the CA"])
@pytest.mark.parametrize("finalizer", ["acme.cert-manager.io/finalizer", "finalizer.acme.cert-manager.io"])
async def test_an_order_that_waits_for_its_proof_is_finished_and_not_placed_again(
    finalizer: str, *, is_told: bool
) -> None:
    ca, objects = await begun()
    (proof,) = ca.authorizations.values()
    if not is_told:
        proof.accepted = ""
    store = await store_of(as_cert_manager_has_it(objects, finalizer))
    async with make_world(store=store, controllers=False) as world:
        second = FakeWorld(world, ca, Shown())
        ca.now = world.clock.now
        await second.start()
        await world.advance(timedelta(minutes=1))
        assert proof.token in second.shown.tokens
        ca.decide(proof)
        await world.advance(timedelta(minutes=1))
        assert await world.is_ready("web")
        actions = [action for action, _ in ca.requests]
        assert actions.count(Action.NEW_ORDER) == actions.count(Action.NEW_ACCOUNT) == 1
        assert [order.metadata.name for order in await second.orders()] == ["web-1-2745722290"]
        assert await second.challenges() == []
        assert [request.metadata.name for request in await second.requests()] == ["web-1"]
        assert created(world, "challenges") == created(world, "orders") == 0


async def test_what_a_solver_has_left_is_not_touched_and_goes_with_its_challenge() -> None:
    """Pods, Services and Ingresses of solvers belong to the Challenge; a ConfigMap stands for them here."""
    ca, objects = await begun()
    (proof,) = ca.authorizations.values()
    objects = as_cert_manager_has_it(objects, "acme.cert-manager.io/finalizer")
    store = await store_of(
        [*objects, left_by_solver(next(obj for obj in objects if obj["kind"] == "Challenge"))]
    )
    async with make_world(store=store, controllers=False) as world:
        second = FakeWorld(world, ca, Shown())
        ca.now = world.clock.now
        await second.start()
        await world.advance(timedelta(minutes=1))
        assert [obj.metadata.name for obj in await left(world)] == ["cm-acme-http-solver-x2vdk"]
        ca.decide(proof)
        await world.advance(timedelta(minutes=1))
        assert await world.is_ready("web")
        assert await second.challenges() == []
        assert await left(world) == []
        assert not [
            write.path for write in world.recording.object_writes() if "cm-acme-http-solver" in write.path
        ]


def left_by_solver(challenge: Json) -> Json:
    """As cert-manager marks what it makes for a Challenge."""
    meta = challenge["metadata"]
    labels = {
        "acme.cert-manager.io/http-domain": "592939313",
        "acme.cert-manager.io/http-token": "900588431",
        "acme.cert-manager.io/http01-solver": "true",
    }
    metadata = {
        "name": "cm-acme-http-solver-x2vdk",
        "generateName": "cm-acme-http-solver-",
        "namespace": "default",
        "uid": "5b1d0a0e-6a1c-4a6b-9a57-0d9d6f6d9a01",
        "labels": labels,
        "creationTimestamp": "2026-01-01T00:00:01Z",
        "ownerReferences": [
            {
                "apiVersion": "acme.cert-manager.io/v1",
                "kind": "Challenge",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"port": "8089"}}


async def left(world: World) -> list[ConfigMap]:
    """What there is of a solver."""
    return (await world.client.list(CONFIG_MAPS, labels="acme.cert-manager.io/http01-solver=true")).items
