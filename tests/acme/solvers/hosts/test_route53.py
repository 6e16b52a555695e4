"""Route 53: ministack, which checks signatures and permissions, behind a proxy with further rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web

from certwright.acme.solvers.contract import NotYet, Ready, SolverError
from certwright.acme.solvers.dns01.hosts.contract import (
    CredentialsRejected,
    HostedZone,
    Outside,
    Throttled,
)
from certwright.acme.solvers.dns01.hosts.route53 import Route53Settings, endpoint_in
from certwright.acme.solvers.dns01.hosts.session import AfterChange, HostSession
from certwright.kit.aws.credentials import AssumedRole
from certwright.kit.aws.service import AwsCredentials, AwsEndpoint, StaticKeys
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import OF_OTHERS, SHARED, ZONE, check_dns_host, session_of, solver_of, task
from support.dns.outside import Time
from support.dns.route53 import StrictRoute53
from support.ministack import Aws, running_ministack

ACTIONS = (
    "route53:GetChange",
    "route53:ChangeResourceRecordSets",
    "route53:ListResourceRecordSets",
    "route53:ListHostedZonesByName",
)
LIST = "GET /2013-04-01/hostedzonesbyname"
CHANGE = "POST /2013-04-01/hostedzone/{zone}/rrset/"
READ = "GET /2013-04-01/hostedzone/{zone}/rrset"
STATE = "GET /2013-04-01/change/{change}"


@pytest.fixture(scope="module")
def aws() -> Iterator[Aws]:
    with running_ministack() as running:
        running.make_zone(ZONE, is_private=True)
        yield running


@pytest.fixture(scope="module")
def user(aws: Aws) -> AwsCredentials:
    return aws.make_user("certwright", *ACTIONS)


@pytest.fixture(scope="module")
def zones(aws: Aws) -> StrictRoute53:
    return StrictRoute53(aws, ZONE)


@pytest.fixture
async def strict(zones: StrictRoute53) -> AsyncIterator[StrictRoute53]:
    zones.calls.clear()
    async with zones.running():
        yield zones


@pytest.fixture
def time() -> Time:
    """ministack accepts signatures of the present only."""
    clock = Time()
    clock.now = datetime.now(UTC)
    return clock


@pytest.fixture
def settings(strict: StrictRoute53, user: AwsCredentials) -> Route53Settings:
    return Route53Settings(source=keys(user), endpoint=endpoint(strict.url))


def keys(credentials: AwsCredentials) -> StaticKeys:
    return StaticKeys(credentials.access_key_id, credentials.secret_access_key)


def endpoint(url: str) -> AwsEndpoint:
    return AwsEndpoint(url, "us-east-1", ServerRules(allow_http=True))


async def test_it_behaves_as_a_dns_host(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside
) -> None:
    # All values of others in one record: it is replaced, and comes back.
    name = f"_acme-challenge.{SHARED}"
    await asyncio.to_thread(strict.write, ZONE, name, OF_OTHERS)

    async def see(name: str) -> set[str]:
        return await asyncio.to_thread(strict.values, name)

    await check_dns_host(lambda: session_of(settings, outside), see)
    assert strict.zones[ZONE].records[name] == {"": f'"{OF_OTHERS}"'}


async def test_records_of_others_with_the_same_policy_stay(
    strict: StrictRoute53, session: HostSession
) -> None:
    name, policy = (
        f"_acme-challenge.multi.{ZONE}",
        "<SetIdentifier>x</SetIdentifier><MultiValueAnswer>true</MultiValueAnswer>",
    )
    await asyncio.to_thread(strict.write, ZONE, name, OF_OTHERS, policy=policy)
    dns_task, solver = task(f"multi.{ZONE}", "v"), solver_of(session)
    await solver.present(dns_task)
    assert await asyncio.to_thread(strict.values, name) == {OF_OTHERS, dns_task.key}
    await solver.clean_up(dns_task)
    assert await asyncio.to_thread(strict.values, name) == {OF_OTHERS}
    assert READ not in strict.calls


async def test_another_routing_policy_is_named(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside
) -> None:
    name, policy = f"_acme-challenge.weighted.{ZONE}", "<SetIdentifier>x</SetIdentifier><Weight>1</Weight>"
    await asyncio.to_thread(strict.write, ZONE, name, OF_OTHERS, policy=policy)
    strict.planned.append(invalid_batch())
    named = replace(settings, zone=HostedZone("", strict.zones[ZONE].id))
    solver = solver_of(session_of(named, outside))
    with pytest.raises(
        SolverError, match=f"the TXT records of {name} in Route 53 .* have a routing policy other"
    ):
        await solver.present(task(f"weighted.{ZONE}", "v"))
    strict.planned.append(invalid_batch())
    await solver.clean_up(task(f"weighted.{ZONE}", "v"))


async def test_two_processes_change_one_simple_record(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside
) -> None:
    name = f"_acme-challenge.both.{ZONE}"
    await asyncio.to_thread(strict.write, ZONE, name, OF_OTHERS)
    tasks = [task(f"both.{ZONE}", f"v{number}") for number in range(6)]
    solvers = [solver_of(session_of(settings, outside)) for _ in tasks]
    await asyncio.gather(*(solver.present(dns_task) for solver, dns_task in zip(solvers, tasks, strict=True)))
    assert await asyncio.to_thread(strict.values, name) == {OF_OTHERS, *(dns_task.key for dns_task in tasks)}
    await asyncio.gather(
        *(solver.clean_up(dns_task) for solver, dns_task in zip(solvers, tasks, strict=True))
    )
    assert await asyncio.to_thread(strict.values, name) == {OF_OTHERS}


async def test_the_requests_do_not_grow_with_the_names(
    strict: StrictRoute53, time: Time, session: HostSession
) -> None:
    tasks = [task(f"n{number}.{ZONE}", "v") for number in range(200)]
    solvers = [solver_of(session) for _ in tasks]
    await asyncio.gather(*(solver.present(dns_task) for solver, dns_task in zip(solvers, tasks, strict=True)))
    assert strict.calls == {LIST: 1, CHANGE: 2}
    checks = [AfterChange(solver, None) for solver in solvers]
    pairs = list(zip(checks, tasks, strict=True))
    assert all(
        isinstance(verdict, NotYet) for verdict in await asyncio.gather(*(c.check(t) for c, t in pairs))
    )
    time.now += timedelta(seconds=4)
    assert all(
        isinstance(verdict, Ready) for verdict in await asyncio.gather(*(c.check(t) for c, t in pairs))
    )
    # One challenge asks for all of a change, which is never sent again.
    assert strict.calls == {LIST: 1, CHANGE: 2, STATE: 4}
    await asyncio.gather(
        *(solver.clean_up(dns_task) for solver, dns_task in zip(solvers, tasks, strict=True))
    )
    assert strict.calls[CHANGE] == 4


async def test_one_name_of_many_has_a_simple_record(strict: StrictRoute53, session: HostSession) -> None:
    name = f"_acme-challenge.m3.{ZONE}"
    await asyncio.to_thread(strict.write, ZONE, name, OF_OTHERS)
    tasks = [task(f"m{number}.{ZONE}", "v") for number in range(64)]
    await asyncio.gather(*(solver_of(session).present(dns_task) for dns_task in tasks))
    assert await asyncio.to_thread(strict.values, name) == {OF_OTHERS, tasks[3].key}
    assert await asyncio.to_thread(strict.values, f"_acme-challenge.m63.{ZONE}") == {tasks[63].key}
    # Halves of the batch, not each name.
    assert strict.calls[READ] == 1
    assert strict.calls[CHANGE] <= 14


async def test_the_named_zone_is_not_looked_up(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside, aws: Aws
) -> None:
    writer = await asyncio.to_thread(
        aws.make_user, "writer", "route53:ChangeResourceRecordSets", "route53:GetChange"
    )
    named = replace(settings, source=keys(writer), zone=HostedZone("", strict.zones[ZONE].id))
    session = session_of(named, outside)
    await session.verify()
    await solver_of(session).present(task(f"named.{ZONE}", "v"))
    assert await asyncio.to_thread(strict.values, f"_acme-challenge.named.{ZONE}")
    assert LIST not in strict.calls


async def test_a_role_is_assumed(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside, aws: Aws
) -> None:
    base = await asyncio.to_thread(aws.make_user, "base", "sts:AssumeRole")
    role = await asyncio.to_thread(aws.make_role, "dns", *ACTIONS)
    source = AssumedRole(role=role, base=keys(base), endpoint=endpoint(strict.url))
    session = session_of(replace(settings, source=source), outside)
    await asyncio.gather(*(solver_of(session).present(task(f"r{n}.{ZONE}", "v")) for n in range(5)))
    assert strict.calls == {"POST /": 1, LIST: 1, CHANGE: 1}


async def test_a_name_outside_the_zone_is_refused(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside
) -> None:
    named = replace(settings, zone=HostedZone("", strict.zones[ZONE].id))
    with pytest.raises(SolverError, match=r"not permitted in zone example\.org"):
        await solver_of(session_of(named, outside)).present(task("a.elsewhere.example", "v"))


async def test_a_zone_that_is_gone_is_named(settings: Route53Settings, outside: Outside) -> None:
    named = replace(settings, zone=HostedZone("", "ZGONE"))
    with pytest.raises(SolverError, match="NoSuchHostedZone"):
        await solver_of(session_of(named, outside)).present(task(f"a.{ZONE}", "v"))


async def test_a_wrong_key_is_rejected(
    settings: Route53Settings, outside: Outside, user: AwsCredentials
) -> None:
    wrong = replace(settings, source=StaticKeys(user.access_key_id, "a-wrong-secret"))
    with pytest.raises(CredentialsRejected, match="SignatureDoesNotMatch") as caught:
        await session_of(wrong, outside).verify()
    assert "a-wrong-secret" not in str(caught.value)
    named = replace(wrong, zone=HostedZone("", "Z1"))
    with pytest.raises(CredentialsRejected):
        await session_of(named, outside).verify()


async def test_a_missing_permission_is_named(settings: Route53Settings, outside: Outside, aws: Aws) -> None:
    nobody = await asyncio.to_thread(aws.make_user, "may-not", "sts:AssumeRole")
    session = session_of(replace(settings, source=keys(nobody)), outside)
    message = (
        "is not authorized to perform: route53:ListHostedZonesByName.*; give the identity that permission"
    )
    with pytest.raises(SolverError, match=message):
        await session.find_zone((ZONE,))
    # A role for one zone need not allow to list the zones.
    await session.verify()


async def test_credentials_that_expired_early_are_replaced(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside, aws: Aws
) -> None:
    base = await asyncio.to_thread(aws.make_user, "revoked", "sts:AssumeRole")
    role = await asyncio.to_thread(aws.make_role, "revoked", *ACTIONS)
    source = AssumedRole(role=role, base=keys(base), endpoint=endpoint(strict.aws.url))
    session = session_of(replace(settings, source=source), outside)
    strict.planned.append(error("ExpiredToken", "The security token included in the request is expired", 403))
    await solver_of(session).present(task(f"e.{ZONE}", "v"))
    assert strict.calls[LIST] == 2


async def test_throttling_pauses_all_challenges_of_the_credentials(
    strict: StrictRoute53, time: Time, session: HostSession
) -> None:
    strict.planned += [error("Throttling", "Rate exceeded", 400) for _ in range(2)]
    for pause in (1, 2):
        with pytest.raises(Throttled, match="Rate exceeded") as caught:
            await solver_of(session).present(task(f"t.{ZONE}", "v"))
        assert caught.value.until - time.now == timedelta(seconds=pause)
        with pytest.raises(Throttled):
            await solver_of(session).present(task(f"t2.{ZONE}", "v"))
        time.now += timedelta(seconds=pause)
    assert strict.calls == {LIST: 2}
    await solver_of(session).present(task(f"t.{ZONE}", "v"))


async def test_a_change_that_is_forgotten_is_not_pending(session: HostSession) -> None:
    assert not await session.is_pending("CFORGOTTEN")


async def test_a_private_zone_and_further_pages(strict: StrictRoute53, session: HostSession) -> None:
    strict.planned.append(listed(("ZPRIVATE", f"{ZONE}.", "true"), following=(f"{ZONE}.", "A")))
    zone = await session.find_zone((ZONE,))
    assert zone.id == strict.zones[ZONE].id
    assert strict.calls[LIST] == 2


@pytest.mark.parametrize(
    "answer", ["<html><body>Bad Gateway</body></html>", "no XML", "<!DOCTYPE x><a/>", "<a/>"]
)
async def test_an_answer_that_is_none_of_route_53(
    strict: StrictRoute53, settings: Route53Settings, outside: Outside, answer: str
) -> None:
    strict.planned.append(web.Response(status=502, text=answer))
    with pytest.raises(
        SolverError, match=r"Route 53 refused to find the hosted zone example\.org: status 502"
    ):
        await session_of(settings, outside).find_zone((ZONE,))
    strict.planned.append(web.Response(text=answer))
    with pytest.raises(SolverError):
        await session_of(settings, outside).find_zone((ZONE,))


def test_each_partition_has_its_endpoint() -> None:
    assert (
        endpoint_in("")
        == endpoint_in("eu-central-1")
        == AwsEndpoint("https://route53.amazonaws.com", "us-east-1")
    )
    assert endpoint_in("cn-north-1").url == "https://route53.amazonaws.com.cn"
    assert endpoint_in("us-gov-east-1").region == "us-gov-west-1"


def error(code: str, text: str, status: int) -> web.Response:
    """An error as Route 53 answers it."""
    body = (
        '<?xml version="1.0"?><ErrorResponse xmlns="https://route53.amazonaws.com/doc/2013-04-01/">'
        f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{text}</Message></Error></ErrorResponse>"
    )
    return web.Response(status=status, text=body, content_type="text/xml")


def invalid_batch() -> web.Response:
    """The refusal of a record beside one with another routing policy."""
    return error("InvalidChangeBatch", "a record with another routing policy exists", 400)


def listed(*zones: tuple[str, str, str], following: tuple[str, str]) -> web.Response:
    """A page of hosted zones: ID, name, whether it is private."""
    shown = "".join(
        f"<HostedZone><Id>/hostedzone/{id}</Id><Name>{name}</Name>"
        f"<Config><PrivateZone>{private}</PrivateZone></Config></HostedZone>"
        for id, name, private in zones
    )
    body = (
        '<?xml version="1.0"?><ListHostedZonesByNameResponse '
        f'xmlns="https://route53.amazonaws.com/doc/2013-04-01/"><HostedZones>{shown}</HostedZones>'
        f"<IsTruncated>true</IsTruncated><NextDNSName>{following[0]}</NextDNSName>"
        f"<NextHostedZoneId>{following[1]}</NextHostedZoneId></ListHostedZonesByNameResponse>"
    )
    return web.Response(text=body, content_type="text/xml")
