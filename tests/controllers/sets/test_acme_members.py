"""A set with two ACME servers and a CA: one fails, another signs; nothing is ordered twice without need."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from acme.fake_ca import FakeCa, Refusal
from certwright.acme.protocol.messages import Action
from certwright.acme.ratelimits.published import CaLimits, Limit
from certwright.kit.rate_limit import Rate
from certwright.kube.api.meta import ObjectMeta
from certwright.resources.issuer import ClusterIssuerSet, IssuerSetSpec, read_member
from certwright.resources.references import IssuerReference
from certwright.resources.table import CLUSTER_ISSUER_SETS, CLUSTER_ISSUERS
from controllers.acme.fake_world import FakeWorld, fake_world
from controllers.acme.test_ari_poller import ari_of, identifier_in, suggest, window
from controllers.scene import SELF_SIGNED, make_cluster_issuer
from support.bind import Bind, running_bind
from support.world import condition_of

SET = {"name": "all", "kind": "ClusterIssuerSet", "group": "certwright.io"}


@pytest.fixture
async def fake() -> AsyncIterator[FakeWorld]:
    """A world with a set of two ACME servers."""
    async with set_world("acme", "second") as made:
        yield made


@asynccontextmanager
async def set_world(*members: str, **options: Any) -> AsyncIterator[FakeWorld]:
    """A world with the ACME servers `acme` and `second`, the ClusterIssuer `self`, and a set of `members`."""
    async with fake_world(**options) as fake:
        other = fake.second_ca()
        await fake.issuer()
        await fake.issuer("second", server=other.directory)
        await fake.world.create(CLUSTER_ISSUERS, make_cluster_issuer("self", SELF_SIGNED))
        issuers = tuple(IssuerReference(name=member, kind="ClusterIssuer") for member in members)
        issuer_set = ClusterIssuerSet(metadata=ObjectMeta(name="all"), spec=IssuerSetSpec(issuers=issuers))
        await fake.world.create(CLUSTER_ISSUER_SETS, issuer_set)
        await fake.world.settle()
        yield fake


def second_of(fake: FakeWorld) -> FakeCa:
    """The CA of `second`."""
    return fake.others[0]


def ordered(ca: FakeCa) -> int:
    """How many orders the CA was sent."""
    return ca.counted()[Action.NEW_ORDER]


async def issue(fake: FakeWorld, *certificates: str) -> None:
    """Make Certificates whose issuer is the set."""
    for name in certificates:
        await fake.issue(name, f"{name}.example.org", issuerRef=SET)


async def signer_of(fake: FakeWorld, certificate: str = "web") -> str:
    """The member that the last request of the Certificate was sent to."""
    requests = [
        request for request in await fake.requests() if request.metadata.name.startswith(f"{certificate}-")
    ]
    member = read_member(requests[-1].metadata.annotations)
    return member.name if member is not None else ""


async def active_of(fake: FakeWorld) -> str:
    """The active member of the set."""
    active = (await fake.world.get(CLUSTER_ISSUER_SETS, "all")).status.active
    return active.name if active is not None else ""


async def test_the_order_names_the_member_and_the_request_the_set(fake: FakeWorld) -> None:
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=10))
    assert await fake.world.is_ready("web")
    (order,), (request,) = await fake.orders(), await fake.requests()
    assert order.spec.issuer_ref.name == "acme"
    assert request.spec.issuer_ref == IssuerReference(**SET)
    assert ordered(second_of(fake)) == 0


@pytest.mark.parametrize("answers", [0, 503])
async def test_another_member_signs_while_the_first_fails(fake: FakeWorld, answers: int) -> None:
    fake.ca.is_away, fake.ca.status_while_away = True, answers
    certificates = [f"web{number}" for number in range(10)]
    await issue(fake, *certificates)
    await fake.world.advance(timedelta(seconds=30))
    assert all([await fake.world.is_ready(name) for name in certificates])
    assert {await signer_of(fake, name) for name in certificates} == {"second"}
    assert ordered(second_of(fake)) == 10
    assert await active_of(fake) == "second"
    # Nothing counts as a failure.
    assert {(await fake.certificate(name)).status.failed_issuance_attempts for name in certificates} == {None}


async def test_the_set_returns_when_the_first_member_works_again(fake: FakeWorld) -> None:
    fake.ca.is_away = True
    await issue(fake, *(f"web{number}" for number in range(5)))
    await fake.world.advance(timedelta(minutes=1))
    fake.ca.is_away = False
    await fake.world.advance(timedelta(minutes=5))
    await issue(fake, "soon")
    await fake.world.advance(timedelta(seconds=10))
    assert await signer_of(fake, "soon") == "second"
    await fake.world.advance(timedelta(minutes=10))
    assert await active_of(fake) == "acme"
    await issue(fake, "later")
    await fake.world.advance(timedelta(seconds=10))
    assert await signer_of(fake, "later") == "acme"
    assert await fake.world.is_ready("later")
    requests = await fake.requests()
    assert len(requests) == 7


async def test_a_rate_limit_of_one_server_sends_the_request_to_another(fake: FakeWorld) -> None:
    fake.ca.refuse(Action.NEW_ORDER, "rateLimited", "too many certificates", status=429, retry_after="3600")
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=30))
    assert await fake.world.is_ready("web")
    assert await signer_of(fake) == "second"
    assert ordered(fake.ca) == 1


@pytest.mark.parametrize("refused", ["name", "request"])
async def test_what_one_server_refuses_is_not_tried_at_another(refused: str, fake: FakeWorld) -> None:
    if refused == "name":
        fake.ca.verdicts["web.example.org"] = Refusal("caa", "CAA forbids it")
    else:
        fake.ca.refuse(Action.NEW_ORDER, "rejectedIdentifier", "not that name", status=400)
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=30))
    assert not await fake.world.is_ready("web")
    assert (await fake.certificate()).status.failed_issuance_attempts == 1
    assert ordered(second_of(fake)) == 0


async def test_an_order_that_the_server_has_taken_is_given_up_only_after_ten_minutes(fake: FakeWorld) -> None:
    fake.ca.slow.add("web.example.org")
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=5))
    assert ordered(fake.ca) == 1
    fake.ca.is_away = True
    await issue(fake, *(f"web{number}" for number in range(4)))
    await fake.world.advance(timedelta(minutes=8))
    assert not await fake.world.is_ready("web")
    assert await fake.world.is_ready("web3")
    await fake.world.advance(timedelta(minutes=5))
    assert await fake.world.is_ready("web")
    assert await signer_of(fake) == "second"


async def test_an_order_that_no_other_member_can_take_over_goes_on_where_it_is(fake: FakeWorld) -> None:
    fake.ca.slow.add("web.example.org")
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=5))
    fake.ca.is_away = second_of(fake).is_away = True
    await issue(fake, *(f"web{number}" for number in range(4)))
    # Longer than the patience with the first member.
    async with asyncio.timeout(60):
        await fake.world.advance(timedelta(minutes=15))
    fake.ca.is_away = False
    fake.decide()
    await fake.world.advance(timedelta(minutes=5))
    assert await fake.world.is_ready("web")
    assert await signer_of(fake) == "acme"


async def test_an_order_that_the_server_has_taken_goes_on_there_after_a_short_outage(fake: FakeWorld) -> None:
    fake.ca.slow.add("web.example.org")
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=5))
    fake.ca.is_away = True
    await fake.world.advance(timedelta(minutes=3))
    fake.ca.is_away = False
    fake.decide()
    await fake.world.advance(timedelta(minutes=2))
    assert await fake.world.is_ready("web")
    assert (ordered(fake.ca), ordered(second_of(fake))) == (1, 0)


async def test_certificates_that_left_a_failing_member_do_not_delay_those_that_stay(fake: FakeWorld) -> None:
    fake.ca.processing_polls = 1000
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=5))
    fake.ca.is_away = True
    # These open the breaker, and go to the other member; only then does the order of the first one fail.
    left = [f"web{number}" for number in range(6)]
    await issue(fake, *left)
    await fake.world.advance(timedelta(minutes=2))
    assert {await signer_of(fake, certificate) for certificate in left} == {"second"}
    fake.ca.is_away = False
    for order in fake.ca.orders.values():
        order.polls_left = 0
    # The longest interval between two probes.
    await fake.world.advance(timedelta(minutes=2, seconds=30))
    assert await fake.world.is_ready("web")
    assert await signer_of(fake) == "acme"


async def test_a_restart_keeps_the_request_where_it_is(fake: FakeWorld) -> None:
    fake.ca.slow.add("web.example.org")
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=5))
    await fake.start()
    await fake.world.advance(timedelta(seconds=30))
    fake.decide()
    await fake.world.advance(timedelta(minutes=1))
    assert await fake.world.is_ready("web")
    assert (ordered(fake.ca), ordered(second_of(fake))) == (1, 0)


async def test_while_no_member_works_the_request_waits_and_continues_with_the_first_that_does(
    fake: FakeWorld,
) -> None:
    fake.ca.is_away = second_of(fake).is_away = True
    certificates = [f"web{number}" for number in range(8)]
    await issue(fake, *certificates)
    await fake.world.advance(timedelta(minutes=20))
    assert not any([await fake.world.is_ready(name) for name in certificates])
    assert ordered(fake.ca) <= 12
    assert ordered(second_of(fake)) <= 12
    second_of(fake).is_away = False
    await fake.world.advance(timedelta(minutes=15))
    assert all([await fake.world.is_ready(name) for name in certificates])


async def test_a_ca_of_our_own_signs_while_both_servers_fail() -> None:
    async with set_world("acme", "second", "self") as fake:
        fake.ca.is_away = second_of(fake).is_away = True
        await issue(fake, *(f"web{number}" for number in range(6)))
        await fake.world.advance(timedelta(minutes=3))
        assert all([await fake.world.is_ready(f"web{number}") for number in range(6)])
        ready = condition_of((await fake.world.get(CLUSTER_ISSUER_SETS, "all")), "Ready")
        assert 'ClusterIssuer "acme" is failing' in ready.message


@pytest.fixture(scope="module")
def bind() -> Iterator[Bind]:
    """Records that let only the second CA issue for one name, and no CA for another."""
    records = 'web CAA 0 issue "second.example"\nnone CAA 0 issue ";"'
    with running_bind(["example.org"], records={"example.org": records}) as running:
        yield running


async def until_ready(fake: FakeWorld, certificate: str) -> None:
    """Let it be issued, with questions to a real name server."""
    async with asyncio.timeout(30):
        while not await fake.world.is_ready(certificate):
            await asyncio.sleep(0.01)
            await fake.world.advance(timedelta(seconds=1))


async def test_caa_records_choose_the_server(bind: Bind) -> None:
    async with set_world("acme", "second", "self", dns01_nameservers=(bind.address,)) as fake:
        fake.ca.meta = {"caaIdentities": ["first.example"]}
        second_of(fake).meta = {"caaIdentities": ["second.example"]}
        await fake.start()
        await issue(fake, "web", "none", "else")
        for certificate in ("web", "none", "else"):
            await until_ready(fake, certificate)
        assert [await signer_of(fake, name) for name in ("web", "none", "else")] == ["second", "self", "acme"]


@pytest.mark.long  # the timeout of a lookup
async def test_a_failed_lookup_of_caa_records_excludes_no_server() -> None:
    async with set_world("acme", "second", dns01_nameservers=("127.0.0.1:1",)) as fake:
        fake.ca.meta = {"caaIdentities": ["first.example"]}
        await fake.start()
        await issue(fake, "web")
        await until_ready(fake, "web")
        assert await signer_of(fake) == "acme"


def replaced_at(ca: FakeCa) -> list[str]:
    """What each order at the CA replaces."""
    return [order.payload.get("replaces", "") for order in ca.orders.values()]


async def test_the_member_that_signed_says_when_to_renew_and_what_it_replaces(fake: FakeWorld) -> None:
    begin = fake.world.clock.now() + timedelta(days=20)
    for ca in (fake.ca, second_of(fake)):
        suggest(fake, window(begin))
        ca.suggests = fake.ca.suggests
    await fake.start()
    fake.ca.is_away = True
    await issue(fake, "web")
    await fake.world.advance(timedelta(minutes=1))
    fake.ca.is_away = False
    ari = ari_of(await fake.certificate())
    assert ari.suggested_window is not None
    assert ari.suggested_window.start == begin
    assert second_of(fake).counted()[Action.RENEWAL_INFO] == 1
    await fake.world.advance(timedelta(days=19))
    asked = second_of(fake).counted()[Action.RENEWAL_INFO]
    assert asked > 10
    # The set has returned to the first server, which does not know the certificate.
    fake.ca.suggests = lambda _identifier: window(fake.world.clock.now() + timedelta(days=30))
    await fake.world.advance(timedelta(days=2))
    assert (await fake.certificate()).status.revision == 2
    assert await signer_of(fake) == "acme"
    assert replaced_at(fake.ca) == [""]


async def test_a_renewal_by_the_same_member_names_what_it_replaces(fake: FakeWorld) -> None:
    begin = fake.world.clock.now() + timedelta(days=20)
    suggest(fake, window(begin))
    await fake.start()
    await issue(fake, "web")
    await fake.world.advance(timedelta(minutes=1))
    identifier = await identifier_in(fake)
    fake.ca.suggests = lambda certificate_id: window(
        begin + timedelta(days=0 if certificate_id == identifier else 60)
    )
    await fake.world.advance(timedelta(days=21))
    assert (await fake.certificate()).status.revision == 2
    assert replaced_at(fake.ca) == ["", identifier]


async def test_a_rate_limit_of_our_own_sends_the_request_to_another_server() -> None:
    limits = CaLimits(name="the CA", limits={"newOrders": Limit(Rate(1, timedelta(hours=3)))})
    async with set_world("acme", "second", limits={"ca.example": limits}) as fake:
        await issue(fake, "web0", "web1", "web2")
        await fake.world.advance(timedelta(seconds=30))
        assert all([await fake.world.is_ready(f"web{number}") for number in range(3)])
        assert (ordered(fake.ca), ordered(second_of(fake))) == (1, 2)


@pytest.mark.parametrize("leaves", ["the set", "the cluster"])
async def test_a_member_that_leaves_loses_its_requests(leaves: str, fake: FakeWorld) -> None:
    fake.ca.slow.add("web.example.org")
    await issue(fake, "web")
    await fake.world.advance(timedelta(seconds=5))
    if leaves == "the set":
        members = [{"name": "second", "kind": "ClusterIssuer"}]
        await fake.world.client.patch(CLUSTER_ISSUER_SETS, "all", "", {"spec": {"issuers": members}})
    else:
        await fake.world.client.delete(CLUSTER_ISSUERS, "acme")
    await fake.world.advance(timedelta(seconds=30))
    assert await fake.world.is_ready("web")
    assert await signer_of(fake) == "second"
    if leaves == "the set":
        states = {order.spec.issuer_ref.name: order.status.state for order in await fake.orders()}
        assert states == {"acme": "errored", "second": "valid"}
        assert fake.shown.tokens == {}
