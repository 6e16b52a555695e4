"""The status of a set: which member signs, and in one sentence what is wrong with the others."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from certwright.controllers.issuer_sets import RETURN_AFTER, Activity, next_activity
from certwright.kube.api.errors import ApiError
from certwright.kube.api.kinds import AnyKind
from certwright.kube.api.meta import ObjectMeta
from certwright.kube.apiserver.server import ApiServer
from certwright.kube.store.memory import MemoryStore
from certwright.kube.util.clock import SystemClock
from certwright.kube.util.http_messages import Request
from certwright.resources.crds import custom_resource_definitions
from certwright.resources.issuer import ClusterIssuerSet, IssuerSet, IssuerSetSpec, IssuerSetStatus
from certwright.resources.references import IssuerReference
from certwright.resources.table import CLUSTER_ISSUER_SETS, CLUSTER_ISSUERS, ISSUER_SETS, ISSUERS
from certwright.resources.validation import validate
from controllers.scene import SELF_SIGNED, Scene, make_ca_issuer, make_cluster_issuer
from controllers.sets.test_members import make_set
from support.world import ADMIN, START, World, condition_of


async def ready_of(world: World, name: str = "both") -> tuple[str, str, str]:
    """Status, reason and message of its condition Ready."""
    issuer_set = await world.get(ISSUER_SETS, name)
    ready = condition_of(issuer_set, "Ready")
    assert ready.observed_generation == issuer_set.metadata.generation
    return ready.status, ready.reason, ready.message


async def active_of(world: World, name: str = "both") -> str:
    """The name of the active member."""
    active = (await world.get(ISSUER_SETS, name)).status.active
    return active.name if active is not None else ""


async def test_a_set_whose_members_all_work_says_which_one_signs(scene: Scene, world: World) -> None:
    await world.add(ISSUER_SETS, make_set("ca", "root"))
    assert await ready_of(world) == ("True", "AllMembersReady", 'Issuer "ca" signs')
    assert await active_of(world) == "ca"


async def test_a_member_that_does_not_exist_is_named_with_the_fix(scene: Scene, world: World) -> None:
    await world.add(ISSUER_SETS, make_set("absent", "ca"))
    missing = (
        'spec.issuers[0]: Issuer "absent" does not exist in namespace default; create it or remove it from '
        "the set"
    )
    assert await ready_of(world) == ("True", "SomeMembersReady", f'Issuer "ca" signs; {missing}')
    await world.delete(ISSUERS, "ca")
    status, reason, message = await ready_of(world)
    assert (status, reason) == ("False", "NoMemberReady")
    assert message.startswith(missing)
    assert await active_of(world) == ""


async def test_the_set_returns_after_ten_minutes_and_reissues_nothing(scene: Scene, world: World) -> None:
    await world.create(ISSUER_SETS, make_set("late", "ca"))
    reference = IssuerReference(name="both", kind="IssuerSet", group="certwright.io")
    issued = await scene.issue(issuer_ref=reference)
    secret = await world.secret("web")
    await world.add(ISSUERS, make_ca_issuer("late", "ca"))
    issuer_set = await world.get(ISSUER_SETS, "both")
    assert issuer_set.status.return_time == START + timedelta(minutes=10)
    await world.advance(timedelta(minutes=9))
    assert await active_of(world) == "ca"
    await world.advance(timedelta(minutes=2))
    assert await active_of(world) == "late"
    assert (await world.get(ISSUER_SETS, "both")).status.return_time is None
    assert (await world.certificate("web")).status.revision == issued.status.revision == 1
    assert await world.secret("web") == secret
    assert "ActiveMemberChanged" in [event.reason for event in await world.events()]


async def test_a_cluster_set_serves_every_namespace(scene: Scene, world: World) -> None:
    await world.create(CLUSTER_ISSUERS, make_cluster_issuer("self", SELF_SIGNED))
    member = IssuerReference(name="self", kind="ClusterIssuer")
    issuer_set = ClusterIssuerSet(metadata=ObjectMeta(name="all"), spec=IssuerSetSpec(issuers=(member,)))
    await world.create(CLUSTER_ISSUER_SETS, issuer_set)
    reference = IssuerReference(name="all", kind="ClusterIssuerSet", group="certwright.io")
    await scene.issue(issuer_ref=reference)
    assert await world.is_ready("web")
    assert (await world.get(CLUSTER_ISSUER_SETS, "all")).status.active == member


def _member(**fields: str) -> IssuerReference:
    return IssuerReference(**{"name": "x", **fields})


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ((), "spec.issuers"),
        (
            (_member(kind="IssuerSet", group="certwright.io"),),
            'spec.issuers[0].kind: Invalid value: "IssuerSet": a set has issuers, not sets',
        ),
        ((_member(kind="Thing", group="example.com"),), "spec.issuers[0].group"),
        ((_member(kind="Thing"),), "spec.issuers[0].kind"),
        ((_member(name=""),), "spec.issuers[0].name"),
        ((_member(), _member(kind="Issuer")), "spec.issuers[1]: Forbidden: each member is named once"),
    ],
)
async def test_a_bad_member_is_rejected_with_its_field(
    world: World, members: tuple[IssuerReference, ...], message: str
) -> None:
    meta = ObjectMeta(name="bad", namespace="default")
    with pytest.raises(ApiError) as raised:
        await world.create(ISSUER_SETS, IssuerSet(metadata=meta, spec=IssuerSetSpec(issuers=members)))
    assert message in str(raised.value)


async def test_a_cluster_set_rejects_an_issuer_of_a_namespace(world: World) -> None:
    issuer_set = ClusterIssuerSet(metadata=ObjectMeta(name="bad"), spec=IssuerSetSpec(issuers=(_member(),)))
    with pytest.raises(ApiError) as raised:
        await world.create(CLUSTER_ISSUER_SETS, issuer_set)
    assert 'spec.issuers[0].kind: Invalid value: "Issuer": must be ClusterIssuer' in str(raised.value)


@pytest.mark.parametrize("kind", [ISSUER_SETS, CLUSTER_ISSUER_SETS], ids=lambda kind: str(kind.kind))
@pytest.mark.parametrize(
    "member",
    [
        {"name": "x", "kind": "IssuerSet", "group": "certwright.io"},
        {"name": "x", "kind": "Thing", "group": "example.com"},
        {"name": "x", "kind": "Thing"},
        {"name": "x"},
        {"name": "x", "kind": "Issuer", "group": "cert-manager.io"},
        {"name": "x", "kind": "ClusterIssuer"},
        {"name": "x", "kind": "ClusterIssuer", "group": "cert-manager.io"},
    ],
    ids=lambda member: " ".join(member.values()),
)
async def test_another_api_server_gives_the_same_verdict_by_the_rules_of_the_definitions(
    kind: AnyKind, member: dict[str, str]
) -> None:
    spec = {"issuers": [member]}
    ours = validate(kind.kind, kind.group, {"metadata": {"name": "x"}, "spec": spec}, None)
    store = MemoryStore()
    server = ApiServer(store, SystemClock(), authenticator=lambda _: None)
    await server.start(custom_resource_definitions())
    meta = {"name": "x"} | ({"namespace": "default"} if kind.namespaced else {})
    manifest = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}
    path, body = kind.path("default"), msgspec.json.encode(manifest)
    try:
        answer = await server.handle(Request("POST", path, body=body, user=ADMIN))
    finally:
        await server.close()
        await store.close()
    text = msgspec.json.decode(answer.body).get("message", "")
    assert (answer.status == 201) == (not ours), text
    for error in ours:
        assert error.field in text
        assert error.message.rpartition('": ')[2] in text


A, B, C = (IssuerReference(name=name) for name in "abc")
ALL = (A, B, C)
SOON, SECOND = START + RETURN_AFTER, timedelta(seconds=1)


@pytest.mark.parametrize(
    ("former", "working", "expected", "more"),
    [
        pytest.param(None, ALL, Activity(A), {}, id="at first the preferred member is active"),
        pytest.param(None, (), Activity(), {}, id="none is active where none works"),
        pytest.param(A, (B, C), Activity(B), {}, id="a failing member is left immediately"),
        pytest.param(B, (C,), Activity(C), {}, id="also where the preferred one still fails"),
        pytest.param(
            B, ALL, Activity(B, SOON), {}, id="a preferred member that works again must prove itself"
        ),
        pytest.param(B, (B, C), Activity(B), {}, id="nothing changes while the preferred one fails"),
        pytest.param(C, (A, C), Activity(C, SOON), {}, id="the first that works is the one to return to"),
        pytest.param(B, (A, C), Activity(A), {}, id="a failing member is left even for a returned one"),
        pytest.param(
            B, ALL, Activity(B, SOON), {"now": SOON - SECOND, "due": SOON}, id="not before its time"
        ),
        pytest.param(B, ALL, Activity(A), {"now": SOON, "due": SOON}, id="the set returns at its time"),
        pytest.param(B, (B, C), Activity(B), {"due": SOON}, id="one that fails again begins anew"),
        pytest.param(B, ALL, Activity(A), {"is_changed": True}, id="a changed order applies immediately"),
    ],
)
def test_the_active_member_follows_from_the_former_and_those_that_work(
    former: IssuerReference | None,
    working: tuple[IssuerReference, ...],
    expected: Activity,
    more: dict[str, Any],
) -> None:
    status, is_changed = IssuerSetStatus(active=former, return_time=more.get("due")), "is_changed" in more
    assert next_activity(ALL, working, status, more.get("now", START), is_changed=is_changed) == expected
