"""Deliveries whose root no process offers: the leader reports them, until a process takes them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from certwright.controllers.deliveries.lifecycle import Announcement, Offer, format_offers, parse_offers
from certwright.controllers.deliveries.permissions import DeliveryOptions, Root
from certwright.controllers.manager import ControllerManager
from certwright.controllers.settings import Settings
from certwright.kube.api.core import LEASES
from certwright.kube.api.meta import ObjectKey
from certwright.kube.client.rest import Client
from certwright.kube.client.transport import LocalTransport
from certwright.kube.runtime.controller import Result
from certwright.kube.util.executor import Inline
from certwright.resources.delivery import ServedAt
from certwright.resources.names import DELIVERY_ROOTS
from certwright.resources.table import DELIVERIES
from controllers.scene import Scene
from controllers.test_deliveries import ROOT, condition_of, delivery, reason
from support.world import CONTROLLER, World, make_world


@asynccontextmanager
async def leading(**options: Any) -> AsyncIterator[World]:
    """A world with a Certificate `web`, whose controllers offer no root, or those of `deliveries`."""
    async with make_world(**options) as world:
        scene = Scene(world)
        await scene.add_ca()
        await scene.issue("web")
        yield world


def roots(directory: Path, *names: str, namespaces: Sequence[str] = ()) -> DeliveryOptions:
    made = {name: Root(directory=str(directory), namespaces=namespaces) for name in names}
    return DeliveryOptions(roots=made, hooks={"ok": "true"}, host="host-1")


@asynccontextmanager
async def machine(world: World, options: DeliveryOptions) -> AsyncIterator[ControllerManager]:
    """A further process that only delivers; at the end it is stopped."""
    client = Client(LocalTransport(world.recording.handle, CONTROLLER), user_agent="host", clock=world.clock)
    settings = Settings(enabled="deliveries", deliveries=options)
    controllers = ControllerManager(client, world.clock, Inline(), settings, None)
    controllers.start()
    try:
        await world.settle()
        yield controllers
    finally:
        await controllers.close()


async def test_a_root_that_no_process_offers_is_reported_within_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with leading() as world, machine(world, roots(tmp_path, "nginx", "mail")):
        await world.create(DELIVERIES, delivery(root="ngnix"))
        await world.advance(timedelta(seconds=50))
        condition = await condition_of(world)
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "NoProcess")
        assert condition.message == (
            "no process offers the root ngnix (offered are: mail, nginx); start one with --delivery-root "
            "ngnix=DIR (`deliveryRoot` in its configuration), or correct spec.root"
        )
        text = world.manager.metrics.take()().decode()
        name = 'certwright_delivery_delivered_status{name="web",namespace="default",condition="False"} 1'
        assert name in text
        assert 'certwright_delivery_no_process{name="web",namespace="default",root="ngnix"} 1' in text
        await world.manager.flush()
        events = [event for event in await world.events() if event.reason == "NoProcess"]
        assert [event.involved_object.name for event in events] == ["web"]
        assert len(reports(caplog)) == 1


async def test_a_process_that_ends_or_dies_is_noticed_and_its_successor_delivers(tmp_path: Path) -> None:
    async with leading() as world:
        await world.create(DELIVERIES, delivery(hook="ok", served_at=(ServedAt(address="127.0.0.1:1"),)))
        async with machine(world, roots(tmp_path, ROOT)):
            await reason(world, "Delivered", tick_s=0.3)
            await world.advance(timedelta(minutes=5))
            await reason(world, "Delivered")
        assert (await world.client.list(LEASES, labels=DELIVERY_ROOTS)).items == []
        await world.advance(timedelta(seconds=50))
        assert "no root is offered at all" in await reason(world, "NoProcess")
        deployed = await condition_of(world, kind="Deployed")
        assert deployed is not None
        assert (deployed.status, deployed.reason) == ("Unknown", "NoProcess")

        async with machine(world, roots(tmp_path, ROOT)) as controllers:
            await reason(world, "Delivered", tick_s=0.3)
            deployed = await condition_of(world, kind="Deployed")
            assert deployed is not None
            assert deployed.status == "False"
            # As after SIGKILL: nothing is withdrawn.
            controllers.wiring.announcement = None
        assert (await world.client.list(LEASES, labels=DELIVERY_ROOTS)).items
        await world.advance(timedelta(seconds=55))
        await reason(world, "NoProcess")


async def test_roots_of_the_leader_itself_cost_no_lease(tmp_path: Path) -> None:
    async with leading(deliveries=roots(tmp_path, ROOT)) as world:
        await world.create(DELIVERIES, delivery())
        await reason(world, "Delivered")
        await world.advance(timedelta(minutes=3))
        await reason(world, "Delivered")
        assert (await world.client.list(LEASES, labels=DELIVERY_ROOTS)).items == []


async def test_an_unknown_root_is_logged_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with leading(deliveries=roots(tmp_path, ROOT)) as world:
        await world.create(DELIVERIES, delivery(root="ngnix"))
        caplog.clear()
        for enabled in ("*", "deliveries"):
            await world.start_controllers(deliveries=roots(tmp_path, ROOT), enabled=enabled)
            (record,) = [record for record in caplog.records if record.message == "root not offered"]
            values = record.__dict__["values"]
            assert (values["delivery"], values["root"], values["offeredHere"]) == (
                "default/web",
                "ngnix",
                ROOT,
            )
            caplog.clear()


async def test_a_process_that_announces_nothing_is_believed_until_the_secret_is_newer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Announcement, "run", _announces_nothing)  # an earlier version
    async with leading() as world:
        await world.create(DELIVERIES, delivery())
        async with machine(world, roots(tmp_path, ROOT)):
            await reason(world, "Delivered")
            await world.advance(timedelta(minutes=2))
            await reason(world, "Delivered")
            await world.advance(timedelta(hours=3))
            await reason(world, "Delivered")
            assert len(reports(caplog)) == 1
        await world.advance(timedelta(hours=1))
        await reason(world, "Delivered")
        await issue_again(world)
        await world.advance(timedelta(minutes=3))
        await reason(world, "NoProcess")


async def test_a_process_that_does_not_deliver_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leading() as world:
        await world.create(DELIVERIES, delivery())
        async with machine(world, roots(tmp_path, ROOT)) as controllers:
            await reason(world, "Delivered")
            for controller in controllers.wiring.controllers:
                monkeypatch.setattr(controller, "_reconcile", _hangs)
            await issue_again(world)
            await world.advance(timedelta(seconds=50))
            await reason(world, "Delivered")
            await world.advance(timedelta(minutes=2))
            assert "has not delivered the certificate that the Secret has now" in await reason(
                world, "Outdated"
            )


def reports(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """The log lines of the leader about Deliveries without a process."""
    return [record for record in caplog.records if record.message == "delivery has no process"]


async def issue_again(world: World) -> None:
    await world.renew()
    assert (await world.certificate("web")).status.revision == 2


async def _announces_nothing(_announcement: Announcement) -> None:
    return


async def _hangs(_key: ObjectKey) -> Result:
    return Result()


@pytest.mark.parametrize(
    ("within", "offers"),
    [
        ("", [Offer("mail", ["a", "b"]), Offer("nginx", [])]),
        # Its tenants may have written it.
        ("a", [Offer("mail", ("a",)), Offer("nginx", ("a",))]),
        ("c", [Offer("nginx", ("c",))]),
    ],
)
def test_an_announcement_counts_where_it_may(within: str, offers: list[Offer]) -> None:
    options = DeliveryOptions(
        roots={"nginx": Root(directory="/a"), "mail": Root(directory="/b", namespaces=("a", "b"))}
    )
    assert format_offers(options) == "mail=a+b nginx"
    assert list(parse_offers(format_offers(options), within)) == offers
