"""Whatever fails meanwhile: everything converges, nothing is done twice, nobody asks without end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from certwright.kube.api import errors
from certwright.kube.api.core import EVENTS, NAMESPACES, SECRETS, Namespace
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.util.http_messages import Request, Response
from certwright.pki.certificates import read_certificate
from certwright.pki.keys import load_private_key, public_key_der
from certwright.resources.certificate import Certificate, SecretTemplate
from certwright.resources.table import CERTIFICATE_REQUESTS, CERTIFICATES, CLUSTER_ISSUERS
from controllers.crashes import Handler, Ledger, Outage, Unreliable, is_write
from controllers.scene import CA, SELF_SIGNED, Scene, make_certificate, make_cluster_issuer
from controllers.stages import NEVER, STAGES, keep_ledger, shape_of, staged, undisturbed
from controllers.test_contention import OTHER_KEY, Rival
from support.world import CONTROLLER, World, make_world

pytestmark = pytest.mark.every(3)

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
FEW = settings(max_examples=5, deadline=None)
SEEDS = st.integers(0, 2**32)
BY_NAME = {stage.name: stage for stage in STAGES}


@pytest.mark.parametrize(
    ("patch", "most_writes"),
    [({"metadata": {"labels": {"app": "theirs"}}}, 40), ({"data": {"tls.key": OTHER_KEY}}, 80)],
    ids=["label", "key"],
)
async def test_a_fight_costs_a_bounded_number_of_writes_a_day(
    scene: Scene, patch: dict[str, Any], most_writes: int
) -> None:
    await scene.issue(secret_template=SecretTemplate(labels={"app": "ours"}))
    ledger = Ledger(scene.world.recording.handler)
    scene.world.recording.handler = ledger.handle
    await Rival.begin(scene, patch)
    await scene.world.advance(DAY)
    first, events_before = len(ledger.writes), len(scene.world.recording.event_writes())
    assert first <= most_writes
    assert events_before <= most_writes
    await scene.world.advance(DAY)
    assert len(ledger.writes) - first <= 40
    assert len(scene.world.recording.event_writes()) - events_before <= 20
    assert all(len(signed) == 1 for signed in ledger.signed.values())


class Deletes:
    """Deletes a namespace when the controllers have written `writes` times in it and ask for more."""

    def __init__(self, world: World, namespace: str, writes: int) -> None:
        self._world = world
        self._namespace = namespace
        self._handler: Handler = world.recording.handler
        self._left = writes
        world.recording.handler = self.handle
        self.asked = 0

    async def handle(self, request: Request) -> Response:
        """Serve, and delete."""
        inside = request.user == CONTROLLER and f"/namespaces/{self._namespace}/" in request.target
        self.asked += inside
        if inside and self._left == 0:
            self._left = -1
            await self._world.client.delete(NAMESPACES, self._namespace, "")
        response = await self._handler(request)
        self._left -= inside and is_write(request) and response.status < 400 and self._left > 0
        return response


@asynccontextmanager
async def with_cluster_ca() -> AsyncIterator[World]:
    """A world with a ClusterIssuer `ca`, and a namespace `team`."""
    async with make_world() as world:
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("root", SELF_SIGNED))
        ca = make_certificate(
            "ca", "root", kind="ClusterIssuer", namespace="kube-system", is_ca=True, common_name="CA"
        )
        await world.create(CERTIFICATES, ca)
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("ca", CA))
        await world.add(NAMESPACES, Namespace(metadata=ObjectMeta(name="team")))
        yield world


def in_team() -> Certificate:
    """A Certificate in that namespace."""
    return make_certificate("web", "ca", kind="ClusterIssuer", namespace="team")


@pytest.mark.parametrize("writes", range(8))
async def test_a_namespace_that_is_deleted_in_mid_issue_goes_with_all_that_is_in_it(writes: int) -> None:
    async with with_cluster_ca() as world:
        deletes = Deletes(world, "team", writes)
        await world.add(CERTIFICATES, in_team())
        await world.advance(5 * MINUTE)
        with pytest.raises(errors.NotFound):
            await world.get(NAMESPACES, "team")
        kinds: tuple[AnyKind, ...] = (CERTIFICATES, CERTIFICATE_REQUESTS, SECRETS, EVENTS)
        for kind in kinds:
            assert (await world.client.list(kind, "team")).items == []
        before = deletes.asked
        await world.advance(DAY)
        assert deletes.asked == before, "something is tried again and again"
        # Whoever makes the namespace again finds nothing of the old one in the way.
        await world.create(NAMESPACES, Namespace(metadata=ObjectMeta(name="team")))
        await world.add(CERTIFICATES, in_team())
        assert await world.is_ready("web", "team")
        assert (await world.certificate("web", "team")).status.revision == 1


@pytest.mark.parametrize("writes", range(8))
async def test_an_api_server_that_is_gone_for_a_minute_is_waited_for(scene: Scene, writes: int) -> None:
    world = scene.world
    ledger = Ledger(world.recording.handler)
    outage = Outage(ledger.handle)

    async def begin_after(request: Request) -> Response:
        response = await outage.handle(request)
        if len(ledger.writes) >= writes > -1 and is_write(request):
            outage.begin()
        return response

    world.recording.handler = begin_after
    await world.start_controllers()
    if writes == 0:
        outage.begin()
    await scene.issue()
    await world.advance(MINUTE)
    assert outage.refused <= 150
    world.recording.handler = outage.handle
    outage.end()
    await world.advance(MINUTE)
    await check_end(scene, ledger, ["web"])
    assert len(ledger.writes) == 7


async def check_end(scene: Scene, ledger: Ledger, names: list[str]) -> None:
    """All are Ready; one signature each, pairs that belong together, nothing left over."""
    assert ledger.broken == []
    assert all(len(signed) == 1 for signed in ledger.signed.values()), ledger.signed
    assert await scene.next_keys() == []
    for name in names:
        assert await scene.world.is_ready(name)
        revision = (await scene.world.certificate(name)).status.revision
        requests = await scene.requests(name)
        assert [request.metadata.name for request in requests] == [f"{name}-{revision}"]
        secret = await scene.world.secret(name)
        assert secret.data["tls.crt"] == requests[0].status.certificate
        leaf = read_certificate(secret.data["tls.crt"])
        assert public_key_der(load_private_key(secret.data["tls.key"])) == leaf.public_key_der


@FEW
@given(seed=SEEDS)
async def test_many_certificates_of_an_unreliable_api_server_are_issued_once_each(seed: int) -> None:
    async with make_world() as world:
        scene = Scene(world)
        await scene.add_ca()
        ledger = Ledger(world.recording.handler)
        world.recording.handler = Unreliable(ledger.handle, seed).handle
        names = [f"web{number}" for number in range(8)]
        for name in names:
            await world.create(CERTIFICATES, make_certificate(name, "ca"))
        await world.create(CERTIFICATES, make_certificate("never", "ca", private_key=NEVER))
        await world.advance(HOUR)
        await check_end(scene, ledger, [*names, "never"])
        assert len(ledger.signed) == 9
        assert len(ledger.writes) <= 9 * 9


@pytest.mark.every(3)
@pytest.mark.parametrize("name", BY_NAME)
@FEW
@given(seed=SEEDS)
async def test_every_stage_of_life_survives_an_unreliable_api_server(name: str, seed: int) -> None:
    stage = BY_NAME[name]
    async with staged(stage) as scene:
        ledger = keep_ledger(scene)
        scene.world.recording.handler = Unreliable(ledger.handle, seed).handle
        await stage.happens(scene)
        await scene.world.advance(HOUR)
        await stage.finish(scene)
        await scene.world.advance(HOUR)
        assert ledger.broken == []
        assert all(len(signed) == 1 for signed in ledger.signed.values()), ledger.signed
        assert await shape_of(scene) == await undisturbed(stage)
