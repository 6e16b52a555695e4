"""Google Cloud DNS, against a fake of it, of the token service and of the metadata server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from certwright.acme.solvers.contract import NotYet, Ready, SolverError
from certwright.acme.solvers.dns01.hosts.api import Endpoint
from certwright.acme.solvers.dns01.hosts.clouddns import CloudDnsSettings, MetadataServer, ServiceAccountKey
from certwright.acme.solvers.dns01.hosts.contract import CredentialsRejected, HostedZone, Outside
from certwright.acme.solvers.dns01.hosts.session import AfterChange, HostSession
from certwright.kit.outgoing import ServerRules
from conformance.check_dns_host import ZONE, session_of, solver_of, task
from support.dns.clouddns import PROJECT, FakeCloudDns
from support.dns.outside import Time

HTTP = ServerRules(allow_http=True)

PROVIDER = "clouddns"


async def test_the_requests_do_not_grow_with_the_names(fake: FakeCloudDns, session: HostSession) -> None:
    await asyncio.gather(*(solver_of(session).present(task(f"n{n}.{ZONE}", "v")) for n in range(100)))
    zones = f"/dns/v1/projects/{PROJECT}/managedZones"
    assert fake.calls == {"POST /token": 1, f"GET {zones}": 1, f"POST {zones}/{{zone}}/changes": 1}


async def test_a_change_is_awaited_and_not_sent_again(
    fake: FakeCloudDns, time: Time, session: HostSession
) -> None:
    dns_task, solver = task(f"a.{ZONE}", "v"), solver_of(session)
    await solver.present(dns_task)
    check = AfterChange(solver, None)
    assert isinstance(await check.check(dns_task), NotYet)
    time.now += timedelta(seconds=4)
    assert isinstance(await check.check(dns_task), Ready)
    assert isinstance(await check.check(dns_task), Ready)
    assert sum(number for call, number in fake.calls.items() if call.startswith("POST /dns")) == 1


async def test_the_metadata_server_gives_tokens_too(
    fake: FakeCloudDns, settings: CloudDnsSettings, outside: Outside
) -> None:
    login = MetadataServer(metadata=Endpoint(fake.url, HTTP))
    await session_of(replace(settings, login=login), outside).verify()
    assert len(fake.tokens) == 1


async def test_the_named_zone_is_not_looked_up(
    fake: FakeCloudDns, settings: CloudDnsSettings, outside: Outside
) -> None:
    named = replace(settings, zone=HostedZone("", fake.zones[ZONE].id))
    await solver_of(session_of(named, outside)).present(task(f"a.{ZONE}", "v"))
    assert fake.values(f"_acme-challenge.a.{ZONE}")
    assert not [call for call in fake.calls if call.endswith("managedZones")]


async def test_a_key_of_another_account_is_refused(settings: CloudDnsSettings, outside: Outside) -> None:
    other = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    assert isinstance(settings.login, ServiceAccountKey)
    login = replace(settings.login, key_pem=other.decode())
    with pytest.raises(CredentialsRejected, match="Invalid JWT Signature"):
        await session_of(replace(settings, login=login), outside).verify()


async def test_a_key_that_is_none_is_named_and_not_quoted(
    settings: CloudDnsSettings, outside: Outside
) -> None:
    assert isinstance(settings.login, ServiceAccountKey)
    login = replace(settings.login, key_pem="half a key")
    session = session_of(replace(settings, login=login), outside)
    with pytest.raises(SolverError, match="not a private key that can be read") as caught:
        await session.verify()
    assert "half a key" not in str(caught.value)
