"""Which member of an IssuerSet signs a request."""

from __future__ import annotations

from datetime import timedelta

from certwright.kube.api.meta import ObjectMeta
from certwright.resources.issuer import IssuerSet, IssuerSetSpec, read_member
from certwright.resources.references import IssuerReference
from certwright.resources.table import CERTIFICATES, CLUSTER_ISSUERS, ISSUER_SETS, ISSUERS
from controllers.fake_vault import vault_world
from controllers.scene import SELF_SIGNED, Scene, make_ca_issuer, make_certificate, make_cluster_issuer
from support.world import World, condition_of

SET = IssuerReference(name="both", kind="IssuerSet", group="certwright.io")


def make_set(*members: str, kind: str = "") -> IssuerSet:
    """The IssuerSet `both` with those Issuers, or issuers of that kind."""
    issuers = tuple(IssuerReference(name=member, kind=kind) for member in members)
    meta = ObjectMeta(name="both", namespace="default")
    return IssuerSet(metadata=meta, spec=IssuerSetSpec(issuers=issuers))


async def signer_of(scene: Scene, certificate: str = "web") -> str:
    """The member that its request was sent to."""
    (request,) = await scene.requests(certificate)
    member = read_member(request.metadata.annotations)
    return member.name if member is not None else ""


async def test_the_second_member_signs_while_the_first_is_not_ready(scene: Scene, world: World) -> None:
    await world.create(ISSUERS, make_ca_issuer("broken", "missing"))
    await world.create(ISSUER_SETS, make_set("broken", "ca"))
    await scene.issue(issuer_ref=SET)
    assert await world.is_ready("web")
    assert await signer_of(scene) == "ca"
    (request,) = await scene.requests()
    assert request.spec.issuer_ref == SET
    secret = await world.secret("web")
    assert secret.metadata.annotations["cert-manager.io/issuer-kind"] == "IssuerSet"


async def test_a_request_waits_until_a_member_can_sign(scene: Scene, world: World) -> None:
    await world.create(ISSUERS, make_ca_issuer("broken", "missing"))
    await world.create(ISSUER_SETS, make_set("broken", "absent"))
    await scene.issue(issuer_ref=SET)
    (request,) = await scene.requests()
    ready = condition_of(request, "Ready")
    assert ready.message.startswith(
        'No member of IssuerSet "both" can sign now: Issuer "broken" is not ready: '
    )
    assert 'Issuer "absent" does not exist in namespace default' in ready.message
    await world.add(ISSUERS, make_ca_issuer("absent", "ca"))
    assert await world.is_ready("web")
    assert await signer_of(scene) == "absent"


async def test_a_request_waits_until_its_set_exists(scene: Scene, world: World) -> None:
    await scene.issue(issuer_ref=SET)
    (request,) = await scene.requests()
    ready = condition_of(request, "Ready")
    assert ready.message == 'Referenced "IssuerSet" not found: issuerset.certwright.io "both" not found'
    await world.add(ISSUER_SETS, make_set("ca"))
    assert await world.is_ready("web")


async def test_a_set_costs_no_write_and_no_event(scene: Scene, world: World) -> None:
    await world.add(ISSUER_SETS, make_set("ca"))
    world.recording.writes.clear()
    await scene.issue(issuer_ref=SET)
    assert await world.is_ready("web")
    assert len(world.recording.object_writes()) == 7
    assert len(world.recording.event_writes()) == 3


async def test_a_request_that_goes_to_another_member_does_not_wait_for_the_former_one() -> None:
    async with vault_world() as vault:
        world = vault.world
        await world.create(CLUSTER_ISSUERS, make_cluster_issuer("self", SELF_SIGNED))
        await world.add(ISSUER_SETS, make_set("vault", "self", kind="ClusterIssuer"))
        vault.vault.is_broken = True
        names = [f"web{number}" for number in range(5)]
        for name in names:
            await world.create(CERTIFICATES, make_certificate(name, "both", issuer_ref=SET))
        await world.advance(timedelta(seconds=30))
        assert all([await world.is_ready(name) for name in names])
        (state,) = world.manager.wiring.gate.states()
        assert (state.name, state.waiting) == ("vault", 0)
